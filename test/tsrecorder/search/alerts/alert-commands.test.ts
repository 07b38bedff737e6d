/** `tailcast alerts test`, and its messages about errors in the file of rules. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { startRecorder } from '../../../../src/compose/recorder.ts';
import { readRoleSettings } from '../../../../src/cli/role-options.ts';
import { RECORDER_SETTINGS } from '../../../../src/config/recorder.ts';
import { createSilentLogger } from '../../../../src/observe/logger.ts';
import { loadAlerts } from '../../../../src/compose/alert-settings.ts';
import { parseViewRule } from '../../../../src/tsrecorder/serving/viewing.ts';
import { runCommand as run } from '../../../support/run-command.ts';
import { createRig, HEADER, request, until, UPLOADER, uploadWhole } from '../../recorder-rig.ts';
import { KEY, openReceiver } from './webhook-receiver.ts';

async function withFile(
  content: string,
  act: (file: string, directory: string) => Promise<void>,
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-alert-file-'));
  try {
    const file = join(directory, 'alerts.yaml');
    await writeFile(file, content);
    await writeFile(join(directory, 'hook.key'), `whsec_${KEY.toString('base64')}\n`);
    await act(file, directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

const HOOK = 'webhooks: {hook: {url: https://hooks.example.com, secretFile: hook.key}}\n';
const RULE = "rules: {deletes: {query: 'cmd:delete', webhook: hook}}\n";

describe('a file of alert rules', () => {
  it.each([
    ['', 'rules in FILE: the list is empty'],
    [`${HOOK}${RULE}colour: red`, 'colour in FILE: no such key; there are webhooks, rules, giveUpHours'],
    [`${HOOK}${RULE}giveUpHours: 1000`, 'giveUpHours in FILE: a number of hours up to 720'],
    [`${HOOK}rules: []`, 'rules in FILE: a mapping is expected'],
    [
      `${HOOK}rules: {deletes: {query: x, webhook: other}}`,
      'rules.deletes.webhook in FILE: there is no other; there are hook',
    ],
    [
      `${HOOK}rules: {deletes: {query: 'usr:alice', webhook: hook}}`,
      'rules.deletes.query in FILE: there is no key usr:',
    ],
    [
      `${HOOK}rules: {deletes: {query: ' ', webhook: hook}}`,
      'rules.deletes.query in FILE: a text is expected',
    ],
    [`${HOOK}rules: {deletes: {query: 'x after:7d', webhook: hook}}`, 'remove after:7d'],
    [`${HOOK}rules: {deletes: {webhook: hook}}`, 'rules.deletes.query in FILE: is missing'],
    [`${HOOK}rules: {keys: {output: '(', webhook: hook}}`, 'rules.keys.output in FILE: error parsing regexp'],
    [
      `${HOOK}rules: {keys: {output: 'a*', webhook: hook}}`,
      'rules.keys.output in FILE: matches an empty line',
    ],
    [
      `${HOOK}rules: {keys: {output: a, command: b, webhook: hook}}`,
      'rules.keys in FILE: has output and command',
    ],
    [`${HOOK}rules: {keys: {output: a, query: word, webhook: hook}}`, 'rules.keys.query in FILE: has words'],
    [
      `${HOOK}rules: {keys: {output: a, action: stop}}`,
      'rules.keys.action in FILE: one of notify, mark, hold, end',
    ],
    [`${HOOK}rules: {keys: {output: a}}`, 'rules.keys.webhook in FILE: is missing'],
    [
      `${HOOK}rules: {keys: {output: a, accessRequests: true, webhook: hook}}`,
      'rules.keys.output in FILE: does not apply to accessRequests',
    ],
    [`${HOOK}rules: {De letes: {query: x, webhook: hook}}`, 'rules.De letes in FILE: a name has lower case'],
    [`webhooks: {hook: {secretFile: hook.key}}\n${RULE}`, 'webhooks.hook.url in FILE: is missing'],
    [
      `webhooks: {hook: {url: https://h, secretFiles: k}}\n${RULE}`,
      'webhooks.hook.secretFiles in FILE: no such key',
    ],
    [
      `webhooks: {hook: {url: http://hooks.example.com, secretFile: hook.key}}\n${RULE}`,
      'webhooks.hook.url in FILE: is not encrypted',
    ],
    [
      `webhooks: {hook: {url: 'https://a:b@h', secretFile: hook.key}}\n${RULE}`,
      'webhooks.hook.url in FILE: has a password',
    ],
    [
      `webhooks: {hook: {url: https://h, secretFile: none.key}}\n${RULE}`,
      'webhooks.hook.secretFile in FILE: none.key cannot be read',
    ],
    [
      `webhooks: {hook: {url: https://h, secretFile: alerts.yaml}}\n${RULE}`,
      'webhooks.hook.secretFile in FILE: alerts.yaml is not a key',
    ],
    [
      `webhooks: {hook: {url: https://h, secretFile: hook.key, caFile: hook.key}}\n${RULE}`,
      'webhooks.hook.caFile in FILE: hook.key contains no certificate',
    ],
    [
      `webhooks: {hook: {url: https://h, secretFile: hook.key, text: perhaps}}\n${RULE}`,
      'webhooks.hook.text in FILE: true or false',
    ],
    [
      `webhooks: {hook: {url: https://h, format: discord}}\n${RULE}`,
      'webhooks.hook.format in FILE: one of json, slack, teams, mattermost is expected',
    ],
    [`webhooks: {hook: {url: https://h}}\n${RULE}`, 'webhooks.hook.secretFile in FILE: is missing'],
    [
      `${HOOK}rules: {access: {accessRequests: true, webhook: hook}}`,
      'webhooks.hook.player in FILE: is missing; rule access links to the page of access requests',
    ],
    [
      `${HOOK}rules: {access: {accessRequests: true, query: x, webhook: hook}}`,
      'rules.access.query in FILE: does not apply to accessRequests',
    ],
  ])('with an error is refused with the error, its position, and what to do: %#', (content, said) =>
    withFile(content, async (file) => {
      const { code, err } = await run('alerts', 'test', file, '--no-search');
      expect(code).toBe(2);
      expect(err.replaceAll(file, 'FILE')).toContain(said);
    }),
  );

  it('needs no webhook for rules that only have actions', async () => {
    await withFile(
      "rules: {keys: {output: 'AKIA[0-9A-Z]{16}', query: 'ns:prod', action: mark}}",
      async (file) => {
        const { rules, webhooks } = await loadAlerts(file, { viewers: [], searchText: 'commands' });
        expect(webhooks.size).toBe(0);
        expect(rules).toMatchObject([
          { name: 'keys', action: 'mark', pattern: { in: 'output', source: 'AKIA[0-9A-Z]{16}' } },
        ]);
        await expect(loadAlerts(file, { viewers: [], searchText: 'off' })).rejects.toThrow(
          'is never true while searchText is off',
        );
      },
    );
  });

  it('is refused if a rule can never match', () =>
    withFile(`${HOOK}rules: {deletes: {query: 'text:rm OR cmd:rm', webhook: hook}}`, async (file) => {
      const viewers = [] as const;
      await expect(loadAlerts(file, { viewers, searchText: 'commands' })).rejects.toThrow(
        /text:rm is never true while searchText is commands; set searchText to all/,
      );
      await expect(loadAlerts(file, { viewers, searchText: 'off' })).rejects.toThrow(/cmd:rm is never true/);
      expect((await loadAlerts(file, { viewers, searchText: 'all' })).rules).toHaveLength(1);
    }));

  it('with access requests needs a viewer of all recordings, and no key for a chat service', () => {
    const hook = 'url: https://hooks.example.com, format: slack, player: https://gate/-/recordings/';
    const rule = 'rules: {access: {accessRequests: true, webhook: hook}}';
    const viewers = ['soc@example.com=namespace:prod', 'tag:audit'].map(parseViewRule);
    return withFile(`webhooks: {hook: {${hook}, viewer: soc@example.com}}\n${rule}`, async (file) => {
      await expect(loadAlerts(file, { viewers, searchText: 'off' })).rejects.toThrow(
        /webhooks\.hook\.viewer in .*: name a viewer of all recordings for rule access/,
      );
      await writeFile(file, `webhooks: {hook: {${hook}, viewer: 'tag:audit'}}\n${rule}`);
      const { webhooks, rules } = await loadAlerts(file, { viewers, searchText: 'off' });
      expect(webhooks.get('hook')).toMatchObject({ format: 'slack', target: { keys: [] } });
      expect(rules).toEqual([{ name: 'access', query: undefined, webhook: 'hook' }]);
    });
  });

  it('needs for each webhook a viewer with a viewer rule, if the recorder has viewer rules', async () => {
    const viewers = ['soc@example.com=namespace:prod', 'tag:audit'].map(parseViewRule);
    const load = (viewer: string, act: (loaded: ReturnType<typeof loadAlerts>) => Promise<void>) =>
      withFile(HOOK.replace('hook.key', `hook.key${viewer}`) + RULE, (file) =>
        act(loadAlerts(file, { viewers, searchText: 'all' })),
      );
    await load('', (loaded) => expect(loaded).rejects.toThrow(/webhooks\.hook\.viewer in .*: is missing/));
    await load(', viewer: eve@example.com', (loaded) =>
      expect(loaded).rejects.toThrow(/eve@example\.com may see no recording/),
    );
    await load(', viewer: soc@example.com', async (loaded) => {
      expect((await loaded).webhooks.get('hook')?.scope).toEqual(['namespace:prod']);
    });
    await load(", viewer: 'tag:audit'", async (loaded) => {
      expect((await loaded).webhooks.get('hook')?.scope).toBe('everything');
    });
  });
});

describe('a recorder with a file of alert rules', () => {
  it('starts with it, and without search reports what is missing', async () => {
    await using receiver = await openReceiver();
    const content = `webhooks: {hook: {url: '${receiver.url}', secretFile: hook.key}}\n${RULE}`;
    await withFile(content, async (file, directory) => {
      const role = { store: join(directory, 'store'), listen: '127.0.0.1:0', search: 'true', alerts: file };
      const start = (settings: Readonly<Record<string, string>>) =>
        startRecorder(readRoleSettings(RECORDER_SETTINGS, settings, new Map()), {
          identify: async () => UPLOADER,
          log: createSilentLogger(),
        });
      await expect(start({ ...role, search: 'false' })).rejects.toThrow(
        'alerts needs search: rules with a query are compared with the index, so set search to true',
      );
      const recorder = await start(role);
      const body = '[1,"o","\\u001b]133;B\\u0007kubectl delete pod\\u001b]133;C\\u0007\\r\\n"]\n';
      await uploadWhole(recorder, HEADER + body);
      const [told] = await until(async () => (receiver.received.length > 0 ? receiver.received : undefined));
      expect(told).toMatchObject({ data: { rule: 'deletes', query: 'cmd:delete' } });
      await recorder.close();
    });
  });
});

describe('a recorder with a file about access requests', () => {
  it('sends them without search', async () => {
    await using receiver = await openReceiver();
    const hook = `url: '${receiver.url}', secretFile: hook.key, format: slack, player: 'https://gate/-/recordings/'`;
    const content = `webhooks: {hook: {${hook}}}\nrules: {access: {accessRequests: true, webhook: hook}}`;
    await withFile(content, async (file, directory) => {
      const sent = await run('alerts', 'test', file, '--no-search', '--deliver');
      expect(sent).toMatchObject({ code: 0, out: 'webhook hook: answered 204, alerts are accepted\n' });
      expect(receiver.received[0]?.raw).toBe(
        JSON.stringify({
          text: '*Test of tailcast*\nRules: `access`\n<https://gate/-/recordings/|Open the page>',
        }),
      );
      const store = join(directory, 'store');
      const role = { store, listen: '127.0.0.1:0', search: 'false', alerts: file };
      const recorder = await startRecorder(readRoleSettings(RECORDER_SETTINGS, role, new Map()), {
        identify: async () => UPLOADER,
        log: createSilentLogger(),
      });
      const access = {
        request: 'k7m2p9xq4t',
        step: 'revoked',
        requester: 'alice@example.com',
        node: 'laptop',
        groups: ['sre'],
        user: '',
        writes: false,
        namespaces: [],
        reason: '',
        call: '',
        durationSeconds: 60,
        expires: '2026-11-28T01:00:00Z',
        approvers: [],
        approvalsMissing: 0,
        comment: '',
      };
      const body = JSON.stringify({
        type: 'tailcast-access-request',
        timestamp: 1,
        access,
        source: { node: 'laptop', nodeUser: 'bob@example.com' },
      });
      await request(recorder, { method: 'POST', path: '/v2/event', body });
      const [, message] = await until(async () =>
        receiver.received.length > 1 ? receiver.received : undefined,
      );
      expect(message?.raw).toContain('*Access is revoked*');
      await recorder.close();
    });
  });
});

describe('tailcast alerts test', () => {
  it('prints what rules would have found, and whether their webhooks accept a message', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ searchText: 'all' });
    await uploadWhole(rig.recorder, `${HEADER}[1.5,"o","a needle in it\\r\\n"]\n`);
    const recorder = ['--recorder', rig.recorder.url];
    await until(async () => ((await run('search', 'needle', ...recorder)).code === 0 ? true : undefined));
    const content = `webhooks: {hook: {url: '${receiver.url}', secretFile: hook.key}}
rules: {found: {query: needle, webhook: hook}, absent: {query: nothing, webhook: hook}}`;
    await withFile(content, async (file) => {
      const dry = await run('alerts', 'test', file, ...recorder);
      expect(dry).toMatchObject({ code: 0, err: '' });
      expect(dry.out).toContain('rule found: matches 1 sessions: needle\n');
      expect(dry.out).toContain('a needle in it');
      expect(dry.out).toContain('rule absent: matches 0 sessions: nothing\n');
      expect(receiver.received).toEqual([]);
      const sent = await run('alerts', 'test', file, 'found', '--no-search', '--deliver');
      expect(sent).toMatchObject({ code: 0, out: 'webhook hook: answered 204, alerts are accepted\n' });
      expect(receiver.received).toMatchObject([{ type: 'tailcast.alert.test', data: { rules: ['found'] } }]);
      receiver.answer = 401;
      const json = await run('alerts', 'test', file, '--no-search', '--deliver', '--json');
      expect([json.code, JSON.parse(json.out)]).toEqual([1, { webhook: 'hook', status: 401, taken: false }]);
      expect(await run('alerts', 'test', file, 'other', '--no-search')).toMatchObject({
        code: 2,
        err: expect.stringContaining('there is no rule other'),
      });
    });
  });
});

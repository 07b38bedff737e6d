import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { compareCoverage, type RecordedSession } from '../../src/cli/coverage.ts';
import { runProgram } from '../../src/cli/program.ts';
import { createRig, uploadWhole } from '../tsrecorder/recorder-rig.ts';
import { runCommand } from '../support/run-command.ts';
import type { AuditedSession } from '../../src/kube/audit-log.ts';

const session = (overrides: Partial<AuditedSession>): AuditedSession => ({
  auditId: 'a',
  time: '2026-01-01T00:00:00Z',
  user: 'alice',
  impersonatedBy: 'system:serviceaccount:tailcast:tailcast-gateway',
  subresource: 'exec',
  resource: 'pods',
  namespace: 'n',
  name: 'p',
  gatewayId: undefined,
  ...overrides,
});

const R1: RecordedSession = {
  id: 'r1',
  isImpersonated: true,
  user: 'alice',
  subresource: 'exec',
  namespace: 'n',
  name: 'p',
};

describe('coverage', () => {
  it.each<[string, Partial<AuditedSession>, string]>([
    ['through a gateway and recorded', { gatewayId: 'r1' }, 'recorded'],
    ['recorded by a gateway without extras', { auditId: 'r1' }, 'recorded'],
    ['through a gateway, without a recording', { gatewayId: 'x' }, 'unrecorded'],
    ['an attach without a recording', { gatewayId: 'x', subresource: 'attach' }, 'unrecorded'],
    ['a port-forward through a gateway', { gatewayId: 'x', subresource: 'portforward' }, 'unrecordable'],
    ['a port-forward at the API server', { subresource: 'portforward' }, 'direct'],
    ['at the API server', {}, 'direct'],
    [
      'with the audit id of a recording and the session of none',
      { auditId: 'r1', gatewayId: 'x' },
      'unrecorded',
    ],
    ['that took the audit id of a recording', { auditId: 'r1', impersonatedBy: undefined }, 'direct'],
    ['of somebody else under the id of a recording', { auditId: 'r1', user: 'eve' }, 'direct'],
    ['in another pod under the id of a recording', { gatewayId: 'r1', name: 'q' }, 'unrecorded'],
    ['in another namespace under that id', { gatewayId: 'r1', namespace: 'm' }, 'unrecorded'],
    ['on something else of that name', { gatewayId: 'r1', resource: 'machines' }, 'unrecorded'],
    ['of another kind under that id', { gatewayId: 'r1', subresource: 'attach' }, 'unrecorded'],
    ['that is an upgrade of another kind', { gatewayId: 'x', subresource: '' }, 'unrecordable'],
  ])('of a session %s is %s', (_what, overrides, coverage) => {
    expect(compareCoverage([session(overrides)], [R1])).toMatchObject([{ coverage }]);
  });

  it.each<[string, Partial<AuditedSession>, string]>([
    ['with the audit id of the gateway', { auditId: 'r1' }, 'recorded'],
    ['that the client had impersonate somebody', { auditId: 'r1', impersonatedBy: 'dev' }, 'recorded'],
    ['with another audit id', { auditId: 'x' }, 'direct'],
    ['in another pod under that id', { auditId: 'r1', name: 'q' }, 'direct'],
    ['in another namespace under that id', { auditId: 'r1', namespace: 'm' }, 'direct'],
    ['on something else of that name', { auditId: 'r1', resource: 'machines' }, 'direct'],
    ['of another kind under that id', { auditId: 'r1', subresource: 'attach' }, 'direct'],
  ])('in noauth mode of a session %s is %s', (_what, overrides, coverage) => {
    const ofDev = session({ user: 'dev', impersonatedBy: undefined, ...overrides });
    expect(compareCoverage([ofDev], [{ ...R1, isImpersonated: false }])).toMatchObject([{ coverage }]);
  });

  it('lets a recording cover one session, the first with its id', () => {
    const later = session({ auditId: 'r1', time: '2026-01-01T00:00:01Z' });
    const first = session({ auditId: 'r1', time: '2026-01-01T00:00:00Z' });
    expect(compareCoverage([later, first, first], [R1])).toMatchObject([
      { time: first.time, coverage: 'recorded' },
      { time: later.time, coverage: 'direct' },
    ]);
  });

  it('counts the events of one session once, oldest session first', () => {
    const judged = compareCoverage(
      [
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
        session({ auditId: 'a' }),
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
      ],
      [],
    );
    expect(judged.map(({ auditId }) => auditId)).toEqual(['a', 'b']);
  });
});

/** A session in the audit log of an API server behind a gateway in noauth mode. */
const sessionEvent = (auditID: string, name: string): string =>
  JSON.stringify({
    kind: 'Event',
    apiVersion: 'audit.k8s.io/v1',
    auditID,
    stage: 'ResponseComplete',
    requestReceivedTimestamp: `2026-01-01T00:00:00.00000${name.length}Z`,
    requestURI: `/api/v1/namespaces/n/pods/${name}/exec?command=sh`,
    verb: 'get',
    user: { username: 'dev' },
    objectRef: { resource: 'pods', namespace: 'n', name, subresource: 'exec' },
    responseStatus: { code: 101 },
  });

const castHeader = (
  connectionID: string,
  PodName: string,
  extra: Readonly<Record<string, unknown>>,
): string =>
  JSON.stringify({
    version: 2,
    width: 80,
    height: 24,
    timestamp: 1,
    srcNode: 'laptop.lab.ts.net',
    srcNodeUser: 'alice@example.com',
    connectionID,
    kubernetes: { PodName, Namespace: 'n', Container: 'c', SessionType: 'exec' },
    ...extra,
  });

const EVENT = JSON.stringify({
  kind: 'Event',
  apiVersion: 'audit.k8s.io/v1',
  auditID: 'a',
  stage: 'ResponseComplete',
  requestURI: '/api/v1/namespaces/n/pods',
  verb: 'list',
  user: { username: 'alice' },
});

function textOf(stream: PassThrough): string {
  let text = '';
  for (let chunk: Buffer | null; (chunk = stream.read() as Buffer | null) !== null;) text += chunk.toString();
  return text;
}

interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** @param casts first lines of recordings */
async function coverage(
  logs: readonly string[],
  casts: readonly string[] = [],
  ...options: readonly string[]
): Promise<Said> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-coverage-'));
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const paths = logs.map((_, index) => join(directory, `${index}.log`));
  for (const [index, text] of logs.entries()) await writeFile(paths[index]!, text);
  await mkdir(join(directory, 'nNode'));
  for (const [index, header] of casts.entries())
    await writeFile(
      join(directory, 'nNode', `2026-01-0${index + 1}T00:00:00.000000000Z.cast`),
      `${header}\n`,
    );
  const signal = new AbortController().signal;
  const context = { stdout, stderr, environment: new Map<string, string>(), signal };
  const code = await runProgram(['coverage', ...paths, '--store', directory, ...options], context);
  await rm(directory, { recursive: true });
  return { code, stdout: textOf(stdout), stderr: textOf(stderr) };
}

describe('a gateway in noauth mode', () => {
  const log = `${sessionEvent('r1', 'p')}\n${sessionEvent('mine', 'qq')}\n`;
  const casts = [
    castHeader('r1', 'p', { tailcastAuditId: 'r1' }),
    castHeader('r2', 'qq', { tailcastAuditId: '' }),
    castHeader('', 'p', {}),
  ];

  it('covers what it recorded under its own audit id, and says which recording cannot be tied and why', async () => {
    const { code, stdout } = await coverage([log], casts);
    const lines = stdout.split('\n').map((line) => line.replaceAll(/ {2,}/g, '  '));
    expect(code).toBe(1);
    expect(lines.slice(1)).toEqual([
      '2026-01-01T00:00:00.000002Z  dev  exec  n pods/qq  no sign of a gateway',
      expect.stringMatching(
        /^2026-01-02T00:00:00\.000Z {2}alice@example\.com {2}exec {2}n pods\/qq {2}recorded as nNode_2026-01-02\S+, but its client had chosen the audit id$/,
      ),
      '2 sessions: 1 recorded, 0 unrecorded, 1 without a sign of a gateway, 0 of other kinds',
      '2 recordings cannot be tied to an audit log: 1 of clients that had chosen the audit id, 1 without an id',
      '',
    ]);
  });

  it('says so as JSON', async () => {
    const { stdout } = await coverage([log], casts, '--json');
    const said = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Readonly<Record<string, unknown>>);
    expect(said.map(({ coverage: kind, because }) => [kind, because])).toEqual([
      ['recorded', undefined],
      ['direct', undefined],
      ['untied', 'none'],
      ['untied', 'chosen'],
    ]);
  });

  it('covers nothing by an id that the client had chosen', async () => {
    const { stdout } = await coverage([`${sessionEvent('r2', 'qq')}\n`], casts);
    expect(stdout).toContain('1 sessions: 0 recorded');
  });
});

it('a recording that no trusted recorder signed covers nothing', async () => {
  await using rig = await createRig();
  await uploadWhole(rig.recorder, `${castHeader('r1', 'p', { tailcastAuditId: 'r1' })}\n[1,"o","a"]\n`);
  await mkdir(join(rig.directory, 'nNode'));
  const forged = join(rig.directory, 'nNode', '2026-01-02T00:00:00.000000000Z.cast');
  await writeFile(forged, `${castHeader('r2', 'qq', { tailcastAuditId: 'r2' })}\n`);
  const log = join(rig.directory, 'audit.log');
  await writeFile(log, `${sessionEvent('r1', 'p')}\n${sessionEvent('r2', 'qq')}\n`);
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const context = {
    stdout,
    stderr,
    environment: new Map<string, string>(),
    signal: new AbortController().signal,
  };
  const code = await runProgram(['coverage', log, '--recorder', rig.recorder.url], context);
  const text = textOf(stdout);
  expect([code, textOf(stderr)]).toEqual([1, '']);
  expect(text).toContain('but no recorder that is trusted signed it');
  expect(text).toContain('2 sessions: 1 recorded, 0 unrecorded, 1 without a sign of a gateway');
  expect(text).toContain('1 recordings cannot be tied to an audit log');
  expect(text).toContain('1 without a trusted signature');
});

it('a header that was changed after the recording was signed covers nothing', async () => {
  await using rig = await createRig();
  await uploadWhole(rig.recorder, `${castHeader('r1', 'p', { tailcastAuditId: 'r1' })}\n[1,"o","a"]\n`);
  const [{ key } = { key: '' }] = await rig.list();
  const path = join(rig.directory, key);
  await writeFile(path, (await readFile(path, 'utf8')).replaceAll('"r1"', '"r2"'));
  const log = join(rig.directory, 'audit.log');
  await writeFile(log, `${sessionEvent('r2', 'p')}\n`);
  const { code, out } = await runCommand('coverage', log, '--recorder', rig.recorder.url);
  expect([code, out]).toEqual([1, expect.stringContaining('1 sessions: 0 recorded')]);
});

describe('an audit log that', () => {
  it.each<[string, string[]]>([
    ['is a file of another program', ['root:x:0:0:root:/root:/bin/sh\n']],
    ['is empty', ['']],
    ['holds empty lines only', ['\n\n']],
    ['was cut inside of its last line', [`${EVENT}\n${EVENT.slice(0, -3)}`]],
    ['was cut inside of its first line', [`${EVENT.slice(5)}\n${EVENT}\n`]],
    ['lost the middle of a line', [`${EVENT}\n${EVENT.slice(0, 40)}${EVENT.slice(60)}\n${EVENT}\n`]],
    ['holds another kind of object', [`${EVENT}\n${EVENT.replace('"Event"', '"EventList"')}\n`]],
    ['holds objects of something else', ['{"level":"info","message":"started"}\n']],
    ['holds a session that cannot be read', [`${EVENT.replace('"verb":"list"', '"verb":1')}\n`]],
    ['is one of two, and the other is a file of another program', [`${EVENT}\n`, 'x\n']],
    ['is one of two, and the other is empty', [`${EVENT}\n`, '']],
  ])('%s proves nothing', async (_what, logs) => {
    const { code, stdout, stderr } = await coverage(logs);
    expect([code, stdout]).toEqual([3, '']);
    expect(stderr).toMatch(
      /^tailcast: the audit log is invalid, so its coverage cannot be judged: .*\.log: .+\n.+ \[AUDIT_LOG_UNUSABLE\]\n$/,
    );
  });

  it('is whole and about no session is one of no sessions', async () => {
    expect(
      await coverage([`${EVENT}\n`, `${EVENT}\n${EVENT.replace('"username":"alice"', '')}`]),
    ).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^0 sessions: /),
    });
  });
});

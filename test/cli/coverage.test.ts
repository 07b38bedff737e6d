import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { judgeCoverage, type RecordedSession } from '../../src/cli/coverage.ts';
import { runProgram } from '../../src/cli/program.ts';
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

const R1: RecordedSession = { id: 'r1', user: 'alice', subresource: 'exec', namespace: 'n', name: 'p' };

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
    expect(judgeCoverage([session(overrides)], [R1])).toMatchObject([{ coverage }]);
  });

  it('lets a recording cover one session, the first with its id', () => {
    const later = session({ auditId: 'r1', time: '2026-01-01T00:00:01Z' });
    const first = session({ auditId: 'r1', time: '2026-01-01T00:00:00Z' });
    expect(judgeCoverage([later, first, first], [R1])).toMatchObject([
      { time: first.time, coverage: 'recorded' },
      { time: later.time, coverage: 'direct' },
    ]);
  });

  it('counts the events of one session once, oldest session first', () => {
    const judged = judgeCoverage(
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

describe('an audit log that', () => {
  async function coverage(
    ...logs: readonly string[]
  ): Promise<{ code: number; stdout: string; stderr: string }> {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-coverage-'));
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const paths = logs.map((_, index) => join(directory, `${index}.log`));
    for (const [index, text] of logs.entries()) await writeFile(paths[index]!, text);
    const signal = new AbortController().signal;
    const context = { stdout, stderr, environment: new Map<string, string>(), signal };
    const code = await runProgram(['coverage', ...paths, '--store', directory], context);
    await rm(directory, { recursive: true });
    return { code, stdout: textOf(stdout), stderr: textOf(stderr) };
  }

  it.each<[string, string[]]>([
    ['is none', ['root:x:0:0:root:/root:/bin/sh\n']],
    ['is empty', ['']],
    ['holds empty lines only', ['\n\n']],
    ['was cut inside of its last line', [`${EVENT}\n${EVENT.slice(0, -3)}`]],
    ['was cut inside of its first line', [`${EVENT.slice(5)}\n${EVENT}\n`]],
    ['lost the middle of a line', [`${EVENT}\n${EVENT.slice(0, 40)}${EVENT.slice(60)}\n${EVENT}\n`]],
    ['holds another kind of object', [`${EVENT}\n${EVENT.replace('"Event"', '"EventList"')}\n`]],
    ['holds objects of something else', ['{"level":"info","message":"started"}\n']],
    ['holds a session that cannot be read', [`${EVENT.replace('"verb":"list"', '"verb":1')}\n`]],
    ['is one of two, and the other is none', [`${EVENT}\n`, 'x\n']],
    ['is one of two, and the other is empty', [`${EVENT}\n`, '']],
  ])('%s is no proof', async (_what, logs) => {
    const { code, stdout, stderr } = await coverage(...logs);
    expect([code, stdout]).toEqual([3, '']);
    expect(stderr).toMatch(
      /^tailcast: the audit log cannot be used, so nothing is said about what it covers: .*\.log: .+\n$/,
    );
  });

  it('is whole and about no session is one of no sessions', async () => {
    expect(
      await coverage(`${EVENT}\n`, `${EVENT}\n${EVENT.replace('"username":"alice"', '')}`),
    ).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^0 sessions: /),
    });
  });
});

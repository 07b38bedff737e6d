import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { explainRequest } from '../../src/compose/gateway-policy.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tailcast-policy-'));
});

const explain = (method: string, target: string, upgrade: boolean, file?: string): string =>
  explainRequest({ method, target, upgrade, file }).join('\n');
const EXEC = '/api/v1/namespaces/n/pods/p/exec?command=sh';

describe('policy explain', () => {
  it('says how an exec is read, and what becomes of it for whom', () => {
    expect(explain('POST', EXEC, true)).toBe(
      [
        `POST ${EXEC} (upgrade)`,
        '  read as   create pods/exec p in n',
        '  class     exec',
        '  enforced:  recorded, or refused (enforced.exec: record)',
        '  recorder:  recorded, or forwarded with a warning (others.exec: record)',
        '  others:    forwarded, because no recorder is named (others.exec: record)',
      ].join('\n'),
    );
  });

  it('says that only an upgrade can be recorded', () => {
    expect(explain('POST', EXEC, false)).toContain('enforced:  refused, as only an upgrade can be recorded');
  });

  it('says what a stream over WebSocket is good for', () => {
    expect(explain('GET', '/api/v1/pods?watch=1', true)).toContain('enforced:  forwarded, for reading only');
  });

  it.each([
    ['GET', '/api/v1/nodes/w/proxy/exec/n/p/c', true, 'enforced:  refused (enforced.kubeletExec: refuse)'],
    ['GET', '/api/v1/nodes/w/proxy/metrics', false, 'enforced:  sent to a recorder, or refused'],
    ['GET', '/apis/x.example/v1/namespaces/n/machines/m/console', true, 'class     opaqueUpgrade'],
    ['POST', '/apis/apps/v1/namespaces/n/deployments', false, 'class     workload'],
    ['POST', '/apis/apps/v1/namespaces/n/deployments', false, 'enforced: refused if the body cannot be read'],
    ['GET', '/any/x/v1/y', true, 'recorder:  refused (enforced.opaqueUpgrade: refuse)'],
    ['GET', '/api/v1/secrets?watch=1', true, 'enforced:  sent to a recorder, or refused'],
    ['GET', '/api/v1/pods', false, 'forwarded; sent to a recorder only if a grant sets enableEvents'],
    ['GET', '/api/v1/namespaces/n/pods/p%2Fexec', true, 'refused for everybody'],
    ['GET', '/api/v1/proxy/nodes/w', false, 'refused for everybody'],
  ])('of %s %s (upgrade: %s) says %s', (method, target, upgrade, said) => {
    expect(explain(method, target, upgrade)).toContain(said);
  });

  it('goes by the file, ports included', () => {
    const file = join(folder, 'policy.yaml');
    writeFileSync(file, 'others:\n  exec: refuse\nportForward:\n  refusePorts: [22, 10250-10259]\n');
    expect(explain('POST', EXEC, true, file)).toContain('others:    refused (others.exec: refuse)');
    expect(explain('POST', '/api/v1/namespaces/n/pods/p/portforward', true, file)).toContain(
      'never to ports 22, 10250-10259',
    );
  });

  it('says everything that is wrong with a file', () => {
    const file = join(folder, 'bad.yaml');
    writeFileSync(file, 'enforced:\n  exec: maybe\nsessions:\n  perUser: 0\n');
    expect(() => explain('GET', '/', false, file)).toThrow(/enforced\.exec.*\n.*sessions\.perUser/);
  });
});

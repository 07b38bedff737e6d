import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gatewayChecks } from '../../src/compose/doctor-gateway.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { kubeconfigOf, startScripted, type ScriptedServer } from '../support/cluster-rig.ts';
import { settingsOf } from '../support/settings.ts';

describe('doctor of a gateway with several clusters', () => {
  let server: ScriptedServer;
  let directory: string;
  beforeAll(async () => {
    server = await startScripted('a');
    directory = await mkdtemp(join(tmpdir(), 'tailcast-doctor-'));
    await mkdir(join(directory, 'd'));
    await writeFile(join(directory, 'a.yaml'), kubeconfigOf(server));
    await writeFile(
      join(directory, 'b.yaml'),
      kubeconfigOf(server, { server: `https://127.0.0.1:${server.port}`, 'certificate-authority-data': CA }),
    );
    const rule = { clusters: ['a'], impersonate: { groups: ['devs'] } };
    await writeFile(
      join(directory, 'identity.json'),
      JSON.stringify({
        nodeId: 'nLAP',
        nodeName: 'laptop',
        login: 'alice@example.com',
        capabilities: { [CAPABILITY]: [rule] },
      }),
    );
  });
  afterAll(async () => {
    await server.close();
  });

  async function examine(content: object): Promise<ReadonlyMap<string, CheckFinding>> {
    const path = join(directory, 'clusters.yaml');
    await writeFile(path, JSON.stringify(content).replaceAll('DIR', directory));
    const flags = {
      clusters: path,
      identity: 'static',
      staticIdentity: join(directory, 'identity.json'),
      tls: 'none',
      listen: '127.0.0.1:0',
      stateDirectory: directory,
    };
    const config = settingsOf(GATEWAY_SETTINGS, flags);
    const over = new AbortController();
    const options = { environment: new Map<string, string>(), signal: over.signal, caller: undefined };
    try {
      const findings = await runChecks(await gatewayChecks(config, options), over.signal);
      return new Map(findings.map((finding) => [finding.id, finding]));
    } finally {
      over.abort();
    }
  }

  const entry = (name: string): object => ({ name, kubeconfig: { file: `DIR/${name}.yaml` } });

  it('checks the API server, the account and the grants of each cluster', async () => {
    const found = await examine({ clusters: [entry('a'), entry('b')] });
    expect(found.get('clusters')).toMatchObject({ status: 'ok', summary: 'a, b' });
    expect(found.get('a/api-server')).toMatchObject({ title: 'a: API server', status: 'failed' });
    expect(found.get('a/api-server')?.summary).toContain('answered GET /version with 200');
    expect(found.get('b/api-server')?.summary).toContain('its certificate is not trusted');
    expect(found.get('b/may-impersonate')).toMatchObject({ status: 'skipped' });
    expect(found.get('a/grants')).toMatchObject({ status: 'ok' });
    expect(found.get('b/grants')).toMatchObject({ status: 'warning' });
    expect(found.get('b/grants')?.summary).toContain('all callers are refused');
    expect(found.has('api-server')).toBe(false);
    expect(server.asked.some(({ headers }) => headers.includes('Bearer token-of-a'))).toBe(true);
  });

  it('reports the clusters that the gateway ignores', async () => {
    await writeFile(join(directory, 'd', 'a.yaml'), kubeconfigOf(server));
    await writeFile(join(directory, 'd', 'c.yaml'), 'clusters: [');
    const found = await examine({ clusters: [entry('a')], discover: [{ directory: 'DIR/d' }] });
    expect(found.get('clusters')).toMatchObject({ status: 'failed' });
    expect(found.get('clusters')?.summary).toContain('two sources describe the cluster a (and 1 more)');
    expect(found.get('a/grants')).toMatchObject({ status: 'ok' });
  });

  it('needs tailscaled for the grants of a Service', async () => {
    const found = await examine({ clusters: [{ ...entry('a'), service: 'svc:a' }] });
    expect(found.get('clusters')?.summary).toContain('need identity=tailscale');
  });
});

const CAPABILITY = 'tailscale.com/cap/kubernetes';
/** A CA that did not issue the server's certificate. */
let CA = '';
beforeAll(async () => {
  const other = await startScripted('other');
  CA = Buffer.from(other.ca).toString('base64');
  await other.close();
});

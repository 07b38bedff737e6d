import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { policyFindings, plainJson } from '../../src/doctor/migration/grants.ts';
import { startApiServerDouble } from '../operator/api-server-double.ts';

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'migrate-'));
});

async function run(...args: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const texts = { out: '', err: '' };
  stdout.on('data', (chunk: Buffer) => (texts.out += chunk.toString()));
  stderr.on('data', (chunk: Buffer) => (texts.err += chunk.toString()));
  const code = await runProgram(['migrate', 'check', ...args], {
    environment: new Map(),
    stdout,
    stderr,
    signal: new AbortController().signal,
  });
  return { code, ...texts };
}

async function check(yaml: string, ...args: readonly string[]): ReturnType<typeof run> {
  const path = join(folder, 'objects.yaml');
  await writeFile(path, yaml);
  return run('--objects', path, ...args);
}

const custom = (kind: string, name: string, spec: string): string =>
  `apiVersion: tailscale.com/v1alpha1\nkind: ${kind}\nmetadata: { name: ${name} }\nspec: ${spec}\n`;

describe('migrate check', () => {
  it('exits with 0 when tailcast reads everything as it is', async () => {
    const { code, out } = await check(
      [
        custom('Recorder', 'prod', '{ enableUI: true, storage: { s3: { bucket: b, endpoint: e } } }'),
        custom('Connector', 'lab', '{ exitNode: true, subnetRouter: { advertiseRoutes: [10.0.0.0/8] } }'),
        custom('ProxyGroup', 'api', '{ type: kube-apiserver, kubeAPIServer: { mode: noauth } }'),
      ].join('---\n'),
    );
    expect(out).toBe(
      'unchanged    Recorder prod\nunchanged    Connector lab\nunchanged    ProxyGroup api\n3 checked: 3 ' +
        'unchanged, 0 different, 0 unsupported, 0 unknown\n',
    );
    expect(code).toBe(0);
  });

  it('names unknown kinds and unknown fields', async () => {
    const { code, out } = await check(
      [
        custom('Recorder', 'prod', '{ retention: { days: 3 } }'),
        custom('Widget', 'w', '{}'),
        custom('ProxyGroup', 'g', '{ type: mesh }'),
      ].join('---\n'),
    );
    expect(out).toContain('unknown      Recorder prod\n               spec.retention.days: ');
    expect(out).toContain('unknown      Widget w\n');
    expect(out).toContain('unknown      ProxyGroup g\n               the type mesh is not known\n');
    expect(code).toBe(1);
  });

  it('says what to do instead of each unsupported kind, field and name', async () => {
    const { code, out } = await check(
      [
        custom('ProxyClass', 'edge', '{ staticEndpoints: { nodePort: { ports: [{ port: 3 }] } } }'),
        custom('PeerRelay', 'r', '{ replicas: 1 }'),
        custom('ProxyGroup', 'api', '{ type: kube-apiserver, proxyClass: edge }'),
        custom('Recorder', 'r'.repeat(53), '{}'),
      ].join('---\n'),
    );
    expect(out).toContain('spec.staticEndpoints: tailcast opens no node ports');
    expect(out).toContain('tailcast runs no peer relays');
    expect(out).toContain('spec.proxyClass: gateways ignore a ProxyClass');
    expect(out).toContain('the name has 53 characters: create a copy with at most 52');
    expect(out).toContain('4 checked: 0 unchanged, 0 different, 4 unsupported, 0 unknown');
    expect(code).toBe(1);
  });

  it('checks Services and Ingresses of the reference, and no others', async () => {
    const { out } = await check(`
apiVersion: v1
kind: List
items:
  - { apiVersion: v1, kind: Service, metadata: { name: plain, namespace: a }, spec: { ports: [{ port: 1 }] } }
  - apiVersion: v1
    kind: Service
    metadata: { name: web, namespace: prod, annotations: { tailscale.com/expose: "true", tailscale.com/tags: "tag:web,tag:k8s" } }
  - apiVersion: v1
    kind: Service
    metadata: { name: odd, namespace: prod, annotations: { tailscale.com/future: "1" } }
  - apiVersion: networking.k8s.io/v1
    kind: Ingress
    metadata: { name: shop, namespace: prod, annotations: { tailscale.com/experimental-forward-cluster-traffic-via-ingress: "true" } }
    spec: { ingressClassName: tailscale }
  - apiVersion: networking.k8s.io/v1
    kind: Ingress
    metadata: { name: other, namespace: prod }
    spec: { ingressClassName: nginx }
`);
    expect(out).toContain('different    Service prod/web\n');
    expect(out).toContain('add prod=tag:web to --allowed-tags of the operator');
    expect(out).not.toContain('prod=tag:k8s');
    expect(out).toContain('unknown      Service prod/odd\n');
    expect(out).toContain('unsupported  Ingress prod/shop\n');
    expect(out).toContain('3 checked:');
  });

  it('refuses nodes with the tag of a recorder', async () => {
    const { out } = await check(
      [
        custom('Recorder', 'prod', '{ tags: ["tag:tsrecorder"] }'),
        custom('Connector', 'lab', '{ tags: ["tag:tsrecorder"] }'),
      ].join('---\n'),
    );
    expect(out).toContain('spec.tags: tag:tsrecorder is the tag of Recorder prod');
  });

  it('reads the values of the Helm release', async () => {
    const release = {
      name: 'ts',
      chart: { metadata: { name: 'tailscale-operator', version: '1.102.5' } },
      config: {
        oauth: { audience: 'a' },
        proxyConfig: { defaultTags: 'tag:own', firewallMode: 'nftables' },
        apiServerProxyConfig: { mode: 'noauth' },
        newKey: 1,
      },
    };
    const data = Buffer.from(gzipSync(JSON.stringify(release)).toString('base64')).toString('base64');
    const { out } = await check(
      `apiVersion: v1\nkind: Secret\nmetadata: { name: s, namespace: n }\ndata: { release: ${data} }\n---\n` +
        'apiVersion: v1\nkind: Service\nmetadata: { name: w, namespace: n, annotations: { tailscale.com/expose: ' +
        '"true", tailscale.com/tags: "tag:own" } }\n',
    );
    expect(out).toContain('unknown      Helm release ts 1.102.5\n');
    expect(out).toContain('values.oauth.audience: store client_id and audience in a Secret');
    expect(out).toContain('gateway.mode=noauth');
    expect(out).toContain('values.newKey: this version of tailcast does not know the field');
    expect(out).toContain('unchanged    Service n/w\n');
  });

  it('skips Secrets of other charts and damaged releases', async () => {
    const { out, code } = await check(
      'apiVersion: v1\nkind: Secret\nmetadata: { name: s, namespace: n }\ndata: { release: bm9wZQ== }\n',
    );
    expect(out).toBe('The reference operator has no objects here.\n');
    expect(code).toBe(0);
  });

  it('reports a damaged release as unreadable', async () => {
    const { out, code } = await check(
      'apiVersion: v1\nkind: Secret\ntype: helm.sh/release.v1\n' +
        'metadata: { name: s, namespace: n }\ndata: { release: bm9wZQ== }\n',
    );
    expect(out).toContain('unreadable   Secret n/s: not a Helm release: ');
    expect(code).toBe(1);
  });

  it.each([
    [
      'an unclosed map',
      'apiVersion: v1\nkind: Service\nmetadata: { name: w, namespace: n\n',
      'not valid YAML: ',
    ],
    ['an unknown alias', 'apiVersion: v1\nkind: Service\nmetadata: *x\n', 'not valid YAML: '],
    [
      'values of a chart',
      'oauth: {}\n',
      'a document is not an object with apiVersion, kind and metadata.name\n',
    ],
  ])('refuses a file with %s', async (_what, yaml, reason) => {
    const { code, err } = await check(yaml);
    expect(err).toContain(`objects.yaml: ${reason}`);
    expect(code).not.toBe(0);
  });

  it('reads a cluster: kinds that the API server serves, and which ones it may not list', async () => {
    const api = await startApiServerDouble();
    try {
      const put = (path: string, object: object): void => void api.put(path, object);
      put('/apis/tailscale.com', {
        metadata: {},
        preferredVersion: { groupVersion: 'tailscale.com/v1alpha1' },
      });
      const kind = (name: string, of: string): object => ({ name, kind: of, namespaced: false });
      put('/apis/tailscale.com/v1alpha1', {
        metadata: {},
        resources: [
          kind('recorders', 'Recorder'),
          kind('recorders/status', 'Recorder'),
          kind('connectors', 'Connector'),
        ],
      });
      put('/apis/tailscale.com/v1alpha1/recorders/prod', {
        metadata: { name: 'prod' },
        spec: { replicas: 1 },
      });
      api.forbidden.add('/apis/tailscale.com/v1alpha1/connectors');
      const { out, code } = await run('--kubeconfig', api.kubeconfig);
      expect(out).toContain('unchanged    Recorder prod\n');
      expect(out).toContain('unreadable   connectors: ');
      expect(code).toBe(1);
      expect(api.requests.every(({ method }) => method === 'GET')).toBe(true);
    } finally {
      await api.close();
    }
  });

  it('explains files that it cannot use', async () => {
    const missing = await run('--objects', join(folder, 'nosuch.yaml'));
    expect(missing).toMatchObject({ code: 2, out: '' });
    expect(missing.err).toContain('nosuch.yaml');
    expect((await check('just: text\n')).code).toBe(2);
  });
});

describe('grants', () => {
  const grant = (rules: unknown, name = 'tailscale.com/cap/kubernetes'): string =>
    JSON.stringify({ grants: [{ src: ['group:a'], dst: ['tag:k'], app: { [name]: rules } }] });

  it.each<[string, string, unknown[]]>([
    [
      'a usual rule',
      grant([{ impersonate: { groups: ['g'] }, recorder: ['tag:r'], enforceRecorder: true }]),
      [],
    ],
    ['a rule in another letter case', grant([{ Impersonate: { Groups: ['g'] } }]), []],
    ['a wrong type', grant([{ impersonate: { groups: 'g' } }]), ['unsupported']],
    ['a value that is not a list', grant({}), ['unsupported']],
    ['a misspelt field', grant([{ enforceRecording: true }]), ['unknown']],
    ['addresses', grant([{ recorder: ['tag:r'], recorderAddrs: ['100.64.0.1:80'] }]), ['different']],
    ['enforcement without a recorder', grant([{ enforceRecorder: true }]), ['different']],
    [
      'the older name',
      grant([{ impersonate: { groups: ['g'] } }], 'https://tailscale.com/cap/kubernetes'),
      [],
    ],
    [
      'a recorder under the older name',
      grant([{ recorder: ['tag:r'] }], 'https://tailscale.com/cap/kubernetes'),
      ['different'],
    ],
  ])('%s', (_name, policy, kinds) => {
    const items = policyFindings(policy);
    expect(items.map(({ name }) => name)).toEqual(['grants[0] group:a → tag:k']);
    expect(items.flatMap(({ findings }) => findings.map(({ kind }) => kind))).toEqual(kinds);
  });

  it('reads comments and trailing commas, and leaves strings as they are', () => {
    const policy = '{ // a\n "grants": [ /* , */ { "app": { "x": [",]", "/*", "\\"//", ], }, }, ], }';
    expect(JSON.parse(plainJson(policy))).toEqual({ grants: [{ app: { x: [',]', '/*', '"//'] } }] });
    expect(policyFindings(policy)).toEqual([]);
  });

  it('leaves JSON as it is', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(plainJson(text)).toBe(text);
      }),
    );
  });
});

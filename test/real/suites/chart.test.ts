import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GATEWAY_SETTINGS } from '../../../src/config/gateway.ts';
import { OPERATOR_SETTINGS } from '../../../src/config/operator.ts';
import { RECORDER_SETTINGS } from '../../../src/config/recorder.ts';
import { readSettings, type SettingTable } from '../../../src/config/settings.ts';
import { apiServerChecks } from '../../../src/doctor/api-server-checks.ts';
import { runChecks, type CheckFinding } from '../../../src/doctor/checks.ts';
import { permissionChecks } from '../../../src/doctor/permission-checks.ts';
import { argumentsOf, commandsOf, type Words } from '../../docs/ledger.ts';
import { createApiServer } from '../../../src/kube/api-server.ts';
import {
  BASES,
  CHART,
  CRDS,
  NAMESPACE,
  ROOT,
  exampleFile,
  exampleNames,
  kustomizeBases,
  manifestsOf,
  run,
  template,
  type Container,
  type Manifest,
  type Workload,
} from '../chart/render.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';

const TABLES: Readonly<Record<string, SettingTable>> = {
  gateway: GATEWAY_SETTINGS,
  recorder: RECORDER_SETTINGS,
  operator: OPERATOR_SETTINGS,
};

let helm: string;
let kubectl: string;
let rig: Rig;
let cluster: Kubernetes;
let admin: string;

beforeAll(async () => {
  helm = (await ensurePeer('helm'))['helm'] ?? '';
  kubectl = (await ensurePeer('kubernetes-1.36'))['kubectl'] ?? '';
  rig = createRig();
  cluster = await startKubernetes(rig, { node: false });
  admin = cluster.kubeconfig('admin', { token: cluster.tokens.admin });
  for (const kind of ['ServiceMonitor', 'PrometheusRule']) {
    const plural = `${kind.toLowerCase()}s`;
    await cluster.api(
      'POST',
      '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
      monitoring(kind, plural),
    );
    await rig.until(`the API of ${plural}`, () =>
      cluster.api('GET', `/apis/monitoring.coreos.com/v1/${plural}`),
    );
  }
});

afterAll(() => rig?.stop());

/** Returns a CRD of the Prometheus operator, with the fields that the chart needs. */
function monitoring(kind: string, plural: string): object {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.monitoring.coreos.com` },
    spec: {
      group: 'monitoring.coreos.com',
      scope: 'Namespaced',
      names: { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase() },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
        },
      ],
    },
  };
}

function asAdmin(args: readonly string[], input?: string): string {
  const outcome = run(kubectl, ['--kubeconfig', admin, ...args], input);
  if (outcome.code !== 0) throw new Error(outcome.stderr);
  return outcome.stdout;
}

/**
 * Deletes objects and waits for their removal. The API server sometimes takes minutes to finalize a new CRD. Each poll
 * is short, because it blocks this process.
 */
async function remove(...what: readonly string[]): Promise<void> {
  const args = ['--kubeconfig', admin, 'delete', '--ignore-not-found', '--timeout=30s', ...what];
  const deadlineMs = performance.now() + REMOVAL_MS;
  for (let outcome = run(kubectl, args); outcome.code !== 0; outcome = run(kubectl, args)) {
    if (performance.now() > deadlineMs) throw new Error(outcome.stderr);
    await nextTurn();
  }
}

function helmDoes(...args: readonly string[]): string {
  const outcome = run(helm, ['--kubeconfig', admin, '--namespace', NAMESPACE, ...args]);
  if (outcome.code !== 0) throw new Error(outcome.stderr);
  return outcome.stdout;
}

const podsOf = (manifests: readonly Manifest[]): readonly Workload[] =>
  manifests.filter((manifest): manifest is Workload => ['StatefulSet', 'Deployment'].includes(manifest.kind));

/** Time limit for the removal of objects; objects that still exist after it count as stuck. */
const REMOVAL_MS = 150_000;
const ROLE_KINDS = ['Role', 'ClusterRole'];
const componentOf = ({ metadata }: Manifest): string | undefined =>
  metadata.labels?.['app.kubernetes.io/component'];

describe.each(exampleNames())('the chart with examples/%s.yaml', (name) => {
  let rendered: string;
  let manifests: readonly Manifest[];
  beforeAll(() => {
    rendered = template(helm, 'tc', '-f', exampleFile(name));
    manifests = manifestsOf(rendered);
  });

  it('renders objects that the API server accepts strictly', () => {
    expect(manifests.length).toBeGreaterThan(3);
    const apply = ['apply', '--server-side', '--dry-run=server', '--validate=strict', '-f', '-'];
    const lines = asAdmin(apply, rendered).trim().split('\n');
    expect(lines).toHaveLength(manifests.length);
  });

  it('puts nothing into a namespace but its own, and labels everything', () => {
    for (const manifest of manifests) {
      const { kind, metadata } = manifest;
      // Events about cluster-scoped resources belong to `default`, so the objects that permit these Events must be
      // there.
      const events = metadata.name === `tc-operator-events-${NAMESPACE}`;
      if (!/^(ClusterRole|IngressClass)/.test(kind)) {
        expect(metadata.namespace, kind).toBe(events ? 'default' : NAMESPACE);
      }
      expect(metadata.labels?.['app.kubernetes.io/instance'], kind).toBe('tc');
    }
  });

  it('locks every container down and bounds what it uses', () => {
    const stateful = podsOf(manifests);
    expect(stateful.length).toBeGreaterThan(0);
    for (const { spec } of stateful) {
      const pod = spec.template.spec;
      expect(pod.securityContext.seccompProfile).toEqual({ type: 'RuntimeDefault' });
      expect(pod.automountServiceAccountToken).toBe(false);
      for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
        expect(container.securityContext).toEqual({
          runAsNonRoot: true,
          runAsUser: 65532,
          runAsGroup: 65532,
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        expect(container.resources.requests.memory).toBeDefined();
        expect(container.resources.limits.memory).toBeDefined();
        expect(container.startupProbe).toBeDefined();
      }
      const [container] = pod.containers;
      expect(container.readinessProbe?.httpGet).toEqual({ path: '/readyz', port: 'ops' });
      expect(container.livenessProbe?.httpGet).toEqual({ path: '/livez', port: 'ops' });
    }
  });

  it('gives each role settings that it knows', () => {
    for (const { spec } of podsOf(manifests)) {
      const [container] = spec.template.spec.containers;
      const environment = new Map(container.env.map((entry) => [entry.name, entry.value ?? '']));
      const read = (): unknown =>
        readSettings(TABLES[container.name]!, { flags: new Map(), environment, file: undefined });
      expect(read).not.toThrow();
    }
  });

  it('lets sessions drain before the pod is killed', () => {
    for (const { spec } of podsOf(manifests).filter(({ kind }) => kind === 'StatefulSet')) {
      const { env } = spec.template.spec.containers[0];
      const drain = Number(env.find((entry) => entry.name === 'TAILCAST_DRAIN_SECONDS')?.value);
      expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(drain);
    }
  });

  it('grants the least', () => {
    const roles = manifests.filter(
      (manifest) => ROLE_KINDS.includes(manifest.kind) && componentOf(manifest) !== 'operator',
    );
    for (const { kind, rules } of roles) {
      for (const { resources, verbs, resourceNames } of rules ?? []) {
        if (kind === 'ClusterRole') {
          expect(verbs).toEqual(['impersonate']);
          expect(resources.join()).toMatch(/^(users|groups|(userextras\/tailcast\.dev\/\w+,?)+)$/);
        } else {
          expect(resources).toEqual(['secrets']);
          // An empty `resourceNames` would permit all Secrets of the namespace.
          expect(resourceNames?.length).toBeGreaterThan(0);
          expect(verbs).toEqual(['get', 'patch', 'update']);
        }
      }
    }
  });

  it('gives the operator what deploy/rbac/operator.yaml gives it, with which it is tested, and nothing more', () => {
    const operators = manifests.filter((manifest) => componentOf(manifest) === 'operator');
    const account =
      operators.find((one) => one.kind === 'ServiceAccount')?.metadata.name ?? 'tailcast-operator';
    const rules = (list: readonly Manifest[], kind: string, namespace?: string): readonly string[] =>
      list
        .filter(
          (one) => one.kind === kind && (namespace === undefined || one.metadata.namespace === namespace),
        )
        .filter((one) => !JSON.stringify(one.rules).includes('impersonate'))
        .flatMap((one) => one.rules ?? [])
        .map(({ apiGroups, resources, verbs, resourceNames }) =>
          JSON.stringify([apiGroups, resources, verbs, resourceNames]).replaceAll(
            account,
            'tailcast-operator',
          ),
        );
    const shipped = manifestsOf(readFileSync(join(ROOT, 'deploy/rbac/operator.yaml'), 'utf8'));
    const wanted = operators.length > 0 ? shipped : [];
    for (const [kind, namespace] of [['ClusterRole'], ['Role', NAMESPACE], ['Role', 'default']] as const) {
      expect(rules(operators, kind, namespace)).toEqual(rules(wanted, kind, namespace));
    }
    const impersonating = operators.filter((one) => JSON.stringify(one.rules ?? '').includes('impersonate'));
    for (const { kind, rules: given } of impersonating) {
      expect(kind).toBe('ClusterRole');
      for (const { resources, verbs } of given ?? []) {
        expect(verbs).toEqual(['impersonate']);
        expect(resources.join()).toMatch(/^(users|groups)$/);
      }
    }
  });

  it('has the parts that keep it available', () => {
    const kinds = manifests.map(({ kind }) => kind);
    expect(kinds).toContain('PodDisruptionBudget');
    for (const { spec } of podsOf(manifests)) {
      expect(JSON.stringify(spec.template.spec.affinity)).toContain('podAntiAffinity');
      const selector = Object.entries(spec.selector.matchLabels);
      for (const [key, value] of selector) expect(spec.template.metadata.labels[key]).toBe(value);
    }
  });
});

describe('the chart', () => {
  it.each([
    ['gateway.tls=nonsense', 'tls'],
    ['gateway.tls=files', 'tlsSecret'],
    ['gateway.mod=auth', 'mod'],
    ['gateway.tags={k8s}', 'tags'],
    ['gateway.replicas=-1', 'replicas'],
    ['recorder.enabled=true,recorder.search.url=https://opensearch', 'recorder.search.enabled'],
    [
      'recorder.enabled=true,recorder.search.enabled=true,recorder.search.caSecret.name=ca',
      'recorder.search.url',
    ],
    [
      'recorder.enabled=true,recorder.search.enabled=true,recorder.search.url=http://opensearch,recorder.search.credentialsSecret.name=user',
      'https://',
    ],
    ['recorder.enabled=true,recorder.search.url=https://user:password@opensearch', 'url'],
  ])('refuses --set %s', (setting, word) => {
    const outcome = run(helm, ['template', 'tc', CHART, '--set', setting]);
    expect(outcome.code).not.toBe(0);
    expect(outcome.stderr).toContain(word);
  });

  it('refuses recorders that would not find each other’s recordings', () => {
    const outcome = run(helm, [
      'template',
      'tc',
      CHART,
      '--set',
      'recorder.enabled=true,recorder.replicas=2',
    ]);
    expect(outcome.stderr).toContain('recorder.store');
  });

  it('refuses recorders that would not trust each other’s recordings, and mounts the key of all of them', () => {
    const two = 'recorder.enabled=true,recorder.replicas=2,recorder.store=s3://recordings';
    const outcome = run(helm, ['template', 'tc', CHART, '--set', two]);
    expect(outcome.code).not.toBe(0);
    expect(outcome.stderr).toContain('recorder.evidenceKeySecret');
    const rendered = template(helm, 'tc', '--set', `${two},recorder.evidenceKeySecret.name=evidence`);
    expect(rendered).toMatch(/name: TAILCAST_EVIDENCE_KEY\n +value: "?\/etc\/tailcast\/evidence\/key\.pem/);
    expect(rendered).toContain('{ name: evidence, mountPath: /etc/tailcast/evidence, readOnly: true }');
    expect(rendered).toMatch(/secretName: evidence\n/);
  });

  it('gives the operator the rights of deploy/rbac/operator-gateways.yaml, and a class, if enabled', () => {
    const on = 'operator.enabled=true,operator.gateways.enabled=true';
    const rulesOf = (list: readonly Manifest[], name: string): unknown =>
      list.find(({ kind, metadata }) => kind === 'ClusterRole' && metadata.name.includes(name))?.rules;
    const manifests = manifestsOf(template(helm, 'tc', '--set', on));
    const shipped = manifestsOf(readFileSync(join(ROOT, 'deploy/rbac/operator-gateways.yaml'), 'utf8'));
    expect(rulesOf(manifests, 'gateway-api')).toEqual(rulesOf(shipped, 'gateways'));
    expect(manifests.filter(({ kind }) => kind === 'GatewayClass')).toHaveLength(1);
    expect(rulesOf(manifests, 'ingress-secrets')).toBeUndefined();
    const more = `${on},operator.gateways.secrets=true,operator.gateways.class=false,operator.ingresses.enabled=false`;
    const others = manifestsOf(template(helm, 'tc', '--set', more));
    expect(rulesOf(others, 'ingress-secrets')).toBeDefined();
    expect(others.some(({ kind }) => kind === 'GatewayClass')).toBe(false);
    const none = manifestsOf(template(helm, 'tc', '--set', 'operator.enabled=true'));
    expect(rulesOf(none, 'gateway-api')).toBeUndefined();
  });

  it('gives no role without Secrets, with no replicas', () => {
    const manifests = manifestsOf(template(helm, 'tc', '--set', 'gateway.replicas=0'));
    expect(manifests.filter(({ kind }) => kind === 'Role')).toEqual([]);
  });

  it('keeps the token from the tailscale container when the node’s key is on a volume', () => {
    const [gateway] = podsOf(manifestsOf(template(helm, 'tc', '--set', 'tailscale.state=volume')));
    const { initContainers, containers } = gateway!.spec.template.spec;
    const mounts = (container: Container | undefined): string[] =>
      (container?.volumeMounts ?? []).map((mount) => mount.name);
    expect(mounts(initContainers?.[0])).not.toContain('kube-api-access');
    expect(mounts(containers[0])).toContain('kube-api-access');
  });

  it('asks for tags only where the key does not carry them', () => {
    const extra = (...sets: readonly string[]): string | undefined => {
      const [gateway] = podsOf(manifestsOf(template(helm, 'tc', ...sets.flatMap((set) => ['--set', set]))));
      const env = gateway?.spec.template.spec.initContainers?.[0]?.env;
      return env?.find((entry) => entry.name === 'TS_EXTRA_ARGS')?.value;
    };
    expect(extra()).toBeUndefined();
    expect(extra('tailscale.loginServer=https://h.example.com')).toBe('--login-server=https://h.example.com');
    expect(extra('tailscale.oauthSecret=oauth')).toBe('--advertise-tags=tag:k8s-gateway');
    expect(extra('tailscale.advertiseTags=true')).toBe('--advertise-tags=tag:k8s-gateway');
  });

  it('lets the user’s settings win, each variable once', () => {
    const [gateway] = podsOf(
      manifestsOf(template(helm, 'tc', '--set', 'gateway.env.TAILCAST_LISTEN=127.0.0.1:9')),
    );
    const env = gateway?.spec.template.spec.containers[0].env ?? [];
    const names = env.map((entry) => entry.name);
    expect(new Set(names).size).toBe(names.length);
    expect(env.find((entry) => entry.name === 'TAILCAST_LISTEN')?.value).toBe('127.0.0.1:9');
    expect(names.indexOf('POD_NAME')).toBeLessThan(names.indexOf('TAILCAST_LISTEN'));
  });

  it('mounts the file of several clusters, and lets the gateway list Secrets in the named namespaces only', () => {
    const sets = ['gateway.clusters.secret=many', 'gateway.clusters.discoverIn={capi}'];
    const manifests = manifestsOf(template(helm, 'tc', ...sets.flatMap((set) => ['--set', set])));
    const [gateway] = podsOf(manifests);
    const { containers, volumes } = gateway!.spec.template.spec as {
      readonly containers: readonly Container[];
      readonly volumes?: readonly unknown[];
    };
    expect(containers[0]?.env).toContainEqual({
      name: 'TAILCAST_CLUSTERS',
      value: '/etc/tailcast-clusters/clusters.yaml',
    });
    const secret: unknown = expect.objectContaining({ secretName: 'many' });
    expect(volumes).toContainEqual({ name: 'clusters', secret });
    const role = `tc-gateway-${NAMESPACE}-clusters`;
    const ofRole = manifests.filter(({ metadata }) => metadata.name === role);
    expect(ofRole.map(({ kind, metadata }) => [kind, metadata.namespace])).toEqual([
      ['Role', 'capi'],
      ['RoleBinding', 'capi'],
    ]);
    expect(ofRole[0]?.rules?.map(({ resources, verbs }) => [resources, verbs])).toEqual([
      [['secrets'], ['list']],
      [['clusterprofiles'], ['list']],
    ]);
  });

  it('gives viewers a port of their own, where one is named', () => {
    const sets = ['recorder.enabled=true', 'recorder.readPort=8081', 'gateway.portalPort=8081'];
    const manifests = manifestsOf(template(helm, 'tc', ...sets.flatMap((set) => ['--set', set])));
    const variables = podsOf(manifests).flatMap(({ spec }) => spec.template.spec.containers[0].env);
    const value = (name: string): string | undefined => variables.find((entry) => entry.name === name)?.value;
    expect(value('TAILCAST_READ_LISTEN')).toBe('127.0.0.1:8081');
    expect(value('TAILCAST_PORTAL_PORT')).toBe('8081');
    const serve = manifests.find(({ metadata }) => metadata.name === 'tc-recorder-serve');
    expect(JSON.stringify(serve)).toContain('127.0.0.77:8080');
  });

  it('leads the recorder to an OpenSearch, with files of Secrets and no value of theirs', () => {
    const manifests = manifestsOf(template(helm, 'tc', '-f', exampleFile('everything')));
    const [recorder] = podsOf(manifests).filter((one) => componentOf(one) === 'recorder');
    const { env, volumeMounts } = recorder!.spec.template.spec.containers[0];
    expect(Object.fromEntries(env.map(({ name, value }) => [name, value]))).toMatchObject({
      TAILCAST_SEARCH: 'true',
      TAILCAST_SEARCH_URL: 'https://opensearch.example.com:9200',
      TAILCAST_SEARCH_NAME: 'audit',
      TAILCAST_SEARCH_CREDENTIALS: '/etc/tailcast/search/credentials',
      TAILCAST_SEARCH_CA: '/etc/tailcast/search/ca.crt',
    });
    expect(volumeMounts).toContainEqual({
      name: 'search',
      mountPath: '/etc/tailcast/search',
      readOnly: true,
    });
    expect(JSON.stringify(recorder)).toContain(
      JSON.stringify({
        name: 'search',
        projected: {
          defaultMode: 0o440,
          sources: [
            { secret: { name: 'opensearch', items: [{ key: 'credentials', path: 'credentials' }] } },
            { secret: { name: 'opensearch', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
          ],
        },
      }),
    );
    const without = template(helm, 'tc', '--set', 'recorder.enabled=true,recorder.search.enabled=true');
    expect(without).toContain('TAILCAST_SEARCH');
    expect(without).not.toMatch(/TAILCAST_SEARCH_|tailcast\.dev\/search/);
  });

  it('runs the image of a digest, where one is named', () => {
    const digest = `sha256:${'0'.repeat(64)}`;
    const rendered = JSON.stringify(manifestsOf(template(helm, 'tc', '--set', `image.digest=${digest}`)));
    expect(rendered).toMatch(new RegExp(`"image":"[^"]+:v[^"]+@${digest}"`));
  });

  it('brings dashboard and alerts as they are', () => {
    const manifests = manifestsOf(template(helm, 'tc', '-f', exampleFile('everything')));
    const dashboard = manifests.find(({ metadata }) => metadata.name === 'tc-dashboard') as unknown as {
      data: Record<string, string>;
      metadata: { labels: Record<string, string> };
    };
    const shipped = (name: string): string => readFileSync(join(ROOT, 'deploy/monitoring', name), 'utf8');
    expect(dashboard.metadata.labels['grafana_dashboard']).toBe('1');
    expect(JSON.parse(dashboard.data['tailcast.json'] ?? '')).toEqual(JSON.parse(shipped('dashboard.json')));
    const rule = manifests.find(({ kind }) => kind === 'PrometheusRule') as unknown as { spec: unknown };
    expect([rule.spec]).toEqual(manifestsOf(shipped('alerts.yaml')));
  });

  it('passes helm’s own lint', () => {
    expect(run(helm, ['lint', '--strict', CHART]).code).toBe(0);
  });
});

describe('a release in a real API server', () => {
  const objects =
    'statefulsets,services,secrets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies';
  /** Returns one text for each object of the release; every write of an object changes its text. */
  function snapshot(): readonly string[] {
    const list = JSON.parse(
      asAdmin(['-n', NAMESPACE, 'get', objects, '-l', 'app.kubernetes.io/instance=tc', '-o', 'json']),
    ) as {
      items: {
        kind: string;
        metadata: { name: string; generation?: number; uid: string; resourceVersion: string };
      }[];
    };
    return list.items
      .map(
        ({ kind, metadata }) =>
          `${kind}/${metadata.name} ${metadata.uid} ${metadata.generation ?? metadata.resourceVersion}`,
      )
      .toSorted();
  }

  beforeAll(() => {
    helmDoes('install', 'tc', CHART, '-f', exampleFile('gateway-auth'));
  });

  it('is there', () => {
    expect(snapshot().map((line) => line.split(' ')[0])).toEqual([
      'ConfigMap/tc-gateway-serve',
      'NetworkPolicy/tc-gateway',
      'PodDisruptionBudget/tc-gateway',
      'Role/tc-gateway-state',
      'RoleBinding/tc-gateway-state',
      'Secret/tc-gateway-0',
      'Secret/tc-gateway-1',
      'Service/tc-gateway',
      'ServiceAccount/tc-gateway',
      'StatefulSet/tc-gateway',
    ]);
  });

  it('is not changed by installing it once more, and keeps what tailscaled put into its Secret', () => {
    const patch = JSON.stringify({ stringData: { device_id: 'n1' } });
    asAdmin(['-n', NAMESPACE, 'patch', 'secret', 'tc-gateway-0', '-p', patch]);
    const before = snapshot();
    helmDoes('upgrade', 'tc', CHART, '-f', exampleFile('gateway-auth'));
    expect(snapshot()).toEqual(before);
    expect(
      asAdmin(['-n', NAMESPACE, 'get', 'secret', 'tc-gateway-0', '-o', 'jsonpath={.data.device_id}']),
    ).not.toBe('');
  });

  it('has an account that may impersonate and nothing else, as the doctor sees it', async () => {
    const findings = await examineAccount('tc-gateway');
    expect(findings.map(({ id, status, summary }) => `${id} ${status}: ${summary}`)).toEqual([
      expect.stringMatching(/^api-server ok: .*v1\.36\.3/),
      `credential ok: accepted as system:serviceaccount:${NAMESPACE}:tc-gateway`,
      'clock ok: agrees with the API server’s',
      'may-impersonate ok: users and groups',
      'may-nothing-else ok: nothing else',
    ]);
  });

  it('can be limited to groups', async () => {
    helmDoes(
      'upgrade',
      'tc',
      CHART,
      '-f',
      exampleFile('gateway-auth'),
      '--set',
      'gateway.rbac.groups={sre,dev}',
    );
    const findings = await examineAccount('tc-gateway');
    expect(findings.find(({ id }) => id === 'may-impersonate')?.summary).toBe('only groups sre, dev');
    helmDoes('upgrade', 'tc', CHART, '-f', exampleFile('gateway-auth'));
  });

  it('has an account without any right to impersonate in noauth mode', async () => {
    helmDoes('upgrade', 'tc', CHART, '-f', exampleFile('gateway-noauth'));
    const findings = await examineAccount('tc-gateway');
    expect(findings.find(({ id }) => id === 'may-impersonate')).toMatchObject({ status: 'failed' });
  });

  it('leaves nothing behind', () => {
    helmDoes('uninstall', 'tc', '--wait');
    expect(snapshot()).toEqual([]);
    expect(
      asAdmin([
        'get',
        'clusterroles,clusterrolebindings',
        '-l',
        'app.kubernetes.io/instance=tc',
        '-o',
        'name',
      ]),
    ).toBe('');
  });

  async function examineAccount(name: string): Promise<readonly CheckFinding[]> {
    const path = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/${name}/token`;
    const request = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { expirationSeconds: 3600 },
    };
    const { status } = (await cluster.api('POST', path, request)) as { status: { token: string } };
    const kubeconfig = cluster.kubeconfig(name, { token: status.token });
    const source = apiServerChecks({
      open: () =>
        createApiServer({ kubeconfig: [kubeconfig], now: () => performance.now(), wallClock: Date.now }),
      unixMs: Date.now,
    });
    const facts = {
      client: source.client,
      mode: 'auth',
      namespace: NAMESPACE,
      podName: `${name}-0`,
    } as const;
    return runChecks([...source.checks, ...permissionChecks(facts)], new AbortController().signal);
  }
});

const CRD_NAMES = CRDS.flatMap((file) =>
  manifestsOf(readFileSync(join(ROOT, 'deploy', 'crds', file), 'utf8')).map(({ metadata }) => metadata.name),
);

describe('the operator in a real API server', () => {
  const kinds =
    'deployments,services,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,servicemonitors';
  function snapshot(): readonly string[] {
    const list = JSON.parse(
      asAdmin(['get', kinds, '-A', '-l', 'app.kubernetes.io/instance=op', '-o', 'json']),
    ) as { items: Manifest[] };
    const crds = JSON.parse(asAdmin(['get', 'crd', ...CRD_NAMES, '-o', 'json'])) as { items: Manifest[] };
    return [...list.items, ...crds.items]
      .map(({ kind, metadata }) => {
        const { uid, generation, resourceVersion } = metadata as {
          uid?: string;
          generation?: number;
          resourceVersion?: string;
        };
        return `${kind}/${metadata.name} ${uid} ${generation ?? resourceVersion}`;
      })
      .toSorted();
  }

  it('comes with its CRDs, and installing it once more changes nothing', () => {
    helmDoes('install', 'op', CHART, '-f', exampleFile('operator-headscale'));
    const first = snapshot();
    expect(first.map((line) => line.split(' ')[0])).toEqual([
      ...CRD_NAMES.map((name) => `CustomResourceDefinition/${name}`).toSorted(),
      'Deployment/op-operator',
      'NetworkPolicy/op-operator',
      'PodDisruptionBudget/op-operator',
      'Role/op-operator',
      `Role/op-operator-events-${NAMESPACE}`,
      'RoleBinding/op-operator',
      `RoleBinding/op-operator-events-${NAMESPACE}`,
      'Service/op-operator',
      'ServiceAccount/kube-apiserver-auth-proxy',
      'ServiceAccount/op-operator',
      'ServiceMonitor/op-operator',
    ]);
    helmDoes('upgrade', 'op', CHART, '-f', exampleFile('operator-headscale'));
    expect(snapshot()).toEqual(first);
  });

  it('leaves its CRDs, and with them everybody’s resources, when it is uninstalled', async () => {
    const resource = {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'ProxyGroup',
      metadata: { name: 'kept' },
      spec: { type: 'kube-apiserver' },
    };
    asAdmin(['apply', '-f', '-'], JSON.stringify(resource));
    helmDoes('uninstall', 'op', '--wait');
    expect(snapshot().map((line) => line.split('/')[0])).toEqual(
      CRD_NAMES.map(() => 'CustomResourceDefinition'),
    );
    expect(asAdmin(['get', 'proxygroups', '-o', 'name'])).toBe('proxygroup.tailscale.com/kept\n');
    await remove('crd', ...CRD_NAMES);
  });

  it('refuses ProxyGroups that change what they are', async () => {
    asAdmin(['apply', '--server-side', '-k', join(ROOT, 'deploy', 'crds')]);
    const group = (spec: object): string =>
      JSON.stringify({
        apiVersion: 'tailscale.com/v1alpha1',
        kind: 'ProxyGroup',
        metadata: { name: 'fixed' },
        spec,
      });
    asAdmin(['apply', '-f', '-'], group({ type: 'kube-apiserver', replicas: 0 }));
    const refusals: readonly (readonly [object, string])[] = [
      [{ type: 'egress' }, 'ProxyGroup type is immutable'],
      [{ type: 'kube-apiserver', replicas: -1 }, 'spec.replicas'],
      [{ type: 'kube-apiserver', tags: ['k8s'] }, 'spec.tags[0]'],
      [{ type: 'kube-apiserver', hostnamePrefix: '-x' }, 'spec.hostnamePrefix'],
      [{ type: 'kube-apiserver', kubeAPIServer: { mode: 'none' } }, 'spec.kubeAPIServer.mode'],
      [{ type: 'kube-apiserver', kubeAPIServer: { hostname: 'A' } }, 'spec.kubeAPIServer.hostname'],
    ];
    for (const [spec, message] of refusals)
      expect(() => asAdmin(['apply', '-f', '-'], group(spec))).toThrow(message);
    await remove('-k', join(ROOT, 'deploy', 'crds'));
  });
});

describe('a shown command', () => {
  /** The objects of the reference's chart (Tailscale's operator) that the commands of docs/migration.md change. */
  beforeAll(() => {
    asAdmin(['create', 'namespace', 'tailscale']);
    const [release, namespace] = ['tailscale-operator', 'tailscale'];
    const annotations = { 'meta.helm.sh/release-name': release, 'meta.helm.sh/release-namespace': namespace };
    const object = (apiVersion: string, kind: string, name: string, more: object = {}): object => ({
      apiVersion,
      kind,
      metadata: { name, namespace, annotations, labels: { owner: 'helm', name: release } },
      ...more,
    });
    const [labels, containers] = [{ app: 'operator' }, [{ name: 'operator', image: 'a' }]];
    const spec = {
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers } },
    };
    const ingress = { spec: { controller: 'tailscale.com/ts-ingress' } };
    const items = [
      object('v1', 'ServiceAccount', 'kube-apiserver-auth-proxy'),
      object('networking.k8s.io/v1', 'IngressClass', 'tailscale', ingress),
      object('v1', 'Secret', `sh.helm.release.v1.${release}.v1`),
      object('apps/v1', 'Deployment', 'operator', { spec }),
    ];
    asAdmin(['create', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
  });

  // The namespace `tailcast` already exists, so the test creates a namespace `shown` instead.
  const words = (command: string): Words =>
    command.startsWith('kubectl create namespace') ? { 'namespace tailcast': 'namespace shown' } : {};

  it.each(commandsOf('chart'))('exits with 0: %s', (command) => {
    const [program, ...args] = argumentsOf(command, words(command));
    const path = { kubectl, helm }[program ?? ''] ?? '';
    const said = run(path, ['--kubeconfig', admin, ...args], '', ROOT);
    expect(said).toMatchObject({ code: 0 });
  });

  afterAll(async () => {
    helmDoes('uninstall', 'tailcast');
    run(helm, ['--kubeconfig', admin, '--namespace', 'tailscale', 'uninstall', 'tailcast']);
    for (const name of ['gateway-auth', 'recorder', 'operator']) {
      await remove('-k', join(ROOT, 'deploy', 'kustomize', name));
    }
  }, 3 * REMOVAL_MS);
});

describe('the kustomize bases', () => {
  it.each(BASES)('%s is what the chart renders', (name) => {
    const bases = [...kustomizeBases(helm)].filter(([path]) => path.startsWith(`deploy/kustomize/${name}/`));
    expect(bases).toHaveLength(2);
    for (const [path, content] of bases) expect(readFileSync(join(ROOT, path), 'utf8'), path).toBe(content);
  });

  it.each(BASES)('%s is built by kubectl, applies, and applies again without a change', async (name) => {
    const folder = join(ROOT, 'deploy', 'kustomize', name);
    const apply = (): string => asAdmin(['apply', '--server-side', '-k', folder, '-o', 'json']);
    const versions = (json: string): unknown =>
      (JSON.parse(json) as { items: Manifest[] }).items.map(({ kind, metadata }) => ({
        kind,
        name: metadata.name,
        // The status of a StatefulSet may change, but its specification must not.
        at: (metadata as { generation?: number }).generation,
      }));
    const first = versions(apply());
    expect(versions(apply())).toEqual(first);
    await remove('-k', folder);
  });
});

/**
 * Events about API requests that a recorder receives. Events contain the caller and the resource, but no password.
 * All callers in this file have a rule that requires request events. Each request contains `MARK` in the place of a
 * secret, and the test searches everything that the recorder got for `MARK`.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { introduce, openArena, type Arena, type Caller } from './arena.ts';
import { honest, send, type Ask } from './transports.ts';
import { expectForwarded, MARK, observe } from './verdict.ts';

/**
 * The gateway sends an event about each request of this caller, and forwards the request after the recorder has
 * accepted the event.
 */
const DAVE: Caller = { address: '100.64.0.7', login: 'dave@example.com', groups: ['devs'] };

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
  introduce(arena.localApi, DAVE, [
    {
      impersonate: { groups: DAVE.groups },
      recorderAddrs: [arena.recorder.address],
      enforceRecorder: true,
      enableEvents: true,
    },
  ]);
});
afterAll(() => arena.close());

interface Told {
  readonly request: { readonly body: string; readonly path: string };
}

const TRANSPORTS = ['h1 request', 'h2 request'] as const;

/** Sends a request, checks that it arrives unchanged, and returns its event with the body as text. */
async function requestEvent(
  transport: (typeof TRANSPORTS)[number],
  ask: Ask,
): Promise<{ text: string; body: string }> {
  const full: Ask = {
    caller: DAVE,
    ...ask,
    ...(ask.body === undefined || transport === 'h2 request'
      ? {}
      : {
          fields: [['Content-Length', String(Buffer.byteLength(ask.body, 'latin1'))], ...(ask.fields ?? [])],
        }),
  };
  const before = arena.recorder.events.length;
  const observed = await observe(arena, () => send(arena, transport, full));
  const request = expectForwarded(observed, honest(transport, full));
  if (ask.body !== undefined) expect(request.body.includes(ask.body)).toBe(true);
  expect(arena.recorder.events.length).toBe(before + 1);
  const event = arena.recorder.events.at(-1) ?? '';
  const parsed = JSON.parse(event) as Told;
  const body = Buffer.from(parsed.request.body, 'base64').toString();
  return { text: `${event}\n${body}`, body };
}

const json = (value: unknown): string => JSON.stringify(value);
const CORE = '/api/v1/namespaces/n';

/** Method, target, body. */
const SECRETS: readonly (readonly [string, string, string])[] = [
  // requests to programs in the cluster through /proxy, to aggregated APIs, and to unknown paths
  ['POST', `${CORE}/pods/p/proxy/login`, `username=admin&password=${MARK}`],
  ['POST', `${CORE}/services/https:s:443/proxy/login`, `username=admin&password=${MARK}`],
  ['PUT', `${CORE}/services/s/proxy/login`, json({ password: MARK })],
  ['POST', `${CORE}/pods/p/proxy`, MARK],
  ['GET', `${CORE}/pods/p/proxy/login?user=a&password=${MARK}`, ''],
  ['GET', `${CORE}/services/s/proxy/?${MARK}`, ''],
  ['POST', '/apis/x.example/v1/machines/m/connect', json({ kind: 'Connect', password: MARK })],
  ['POST', `/apis/x.example/v1/machines/m/connect?password=${MARK}`, ''],
  [
    'PUT',
    '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/v/start',
    json({ metadata: { name: MARK } }),
  ],
  ['POST', '/elsewhere', MARK],
  ['GET', `/elsewhere?token=${MARK}`, ''],
  // bodies with secrets, in every form
  ['POST', `${CORE}/secrets`, json({ kind: 'Secret', data: { a: MARK }, stringData: { b: MARK } })],
  ['POST', `${CORE}/secrets`, `kind: Secret\nstringData:\n  a: ${MARK}\n`],
  ['POST', `${CORE}/secrets`, `k8s\0\u0001${MARK}`],
  ['POST', `${CORE}/secrets`, `{"data":{"a":"${MARK}"`],
  ['POST', `${CORE}/secrets`, json({ Data: { a: MARK }, [`x-${MARK.length}`]: MARK })],
  ['POST', `${CORE}/secrets`, json(MARK)],
  ['POST', `${CORE}/secrets`, json([MARK])],
  ['PATCH', `${CORE}/secrets/s`, json([{ op: 'add', path: '/data/a', value: MARK }])],
  ['PATCH', `${CORE}/secrets/s`, json([{ op: 'add', path: '', value: { data: { a: MARK } } }])],
  ['PATCH', `${CORE}/secrets/s`, json([{ op: 'add', path: '/metadata/annotations/x', value: MARK }])],
  ['PATCH', `${CORE}/secrets/s`, json([{ op: 'test', path: 'data', value: MARK }])],
  ['PATCH', `${CORE}/secrets/s`, json({ data: { a: MARK }, $patch: 'merge' })],
  [
    'PUT',
    `${CORE}/secrets/s`,
    json({ metadata: { annotations: { 'kubectl.kubernetes.io/last-applied-configuration': MARK } } }),
  ],
  ['PUT', `${CORE}/secrets/s`, json({ metadata: { managedFields: [{ fieldsV1: MARK }] } })],
  ['POST', `${CORE}/secrets`, json({ data: { a: [[[{ b: MARK }]]] } })],
  ['POST', `${CORE}/secrets`, '['.repeat(30_000) + json(MARK) + ']'.repeat(30_000)],
  ['POST', `${CORE}/secrets`, json({ data: { a: MARK, b: 'x'.repeat(70_000) } })],
  // bodies with kubeconfigs and similar content
  ['POST', `${CORE}/configmaps`, json({ kind: 'ConfigMap', data: { kubeconfig: `token: ${MARK}` } })],
  ['PUT', `${CORE}/configmaps/c`, json({ binaryData: { kubeconfig: MARK } })],
  ['PATCH', `${CORE}/configmaps/c`, json([{ op: 'replace', path: '/data/kubeconfig', value: MARK }])],
  // credentials
  ['POST', '/apis/authentication.k8s.io/v1/tokenreviews', json({ spec: { token: MARK, audiences: ['a'] } })],
  ['POST', `${CORE}/serviceaccounts/s/token`, json({ spec: { audiences: ['a'] }, status: { token: MARK } })],
  [
    'POST',
    '/apis/certificates.k8s.io/v1/certificatesigningrequests',
    json({ spec: { request: MARK, extra: { a: [MARK] } } }),
  ],
  [
    'PUT',
    '/apis/certificates.k8s.io/v1/certificatesigningrequests/c/status',
    json({ status: { certificate: MARK } }),
  ],
  [
    'POST',
    '/apis/authorization.k8s.io/v1/subjectaccessreviews',
    json({ spec: { user: 'a', extra: { token: [MARK] } } }),
  ],
  ['POST', '/apis/client.authentication.k8s.io/v1/execcredentials', json({ status: { token: MARK } })],
  // the body registers an API group and its server
  [
    'POST',
    '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations',
    json({ webhooks: [{ name: 'a', clientConfig: { url: `https://h/?token=${MARK}` } }] }),
  ],
  [
    'PATCH',
    '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/m',
    json([{ op: 'replace', path: '/webhooks/0/clientConfig/url', value: MARK }]),
  ],
  [
    'POST',
    '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
    json({ spec: { conversion: { webhook: { clientConfig: { url: MARK } } } } }),
  ],
  ['POST', '/apis/apiregistration.k8s.io/v1/apiservices', json({ spec: { group: 'a', caBundle: MARK } })],
  // bodies with commands that the cluster will run
  [
    'POST',
    `${CORE}/pods`,
    json({ spec: { containers: [{ name: 'c', env: [{ name: 'PASSWORD', value: MARK }] }] } }),
  ],
  [
    'POST',
    `${CORE}/pods`,
    json({
      metadata: { annotations: { a: MARK } },
      spec: { volumes: [{ name: 'v', csi: { volumeAttributes: { key: MARK } } }] },
    }),
  ],
  [
    'POST',
    `${CORE}/pods`,
    json({
      spec: {
        containers: [
          { livenessProbe: { httpGet: { httpHeaders: [{ name: 'Authorization', value: MARK }] } } },
        ],
      },
    }),
  ],
  [
    'POST',
    '/apis/apps/v1/namespaces/n/deployments',
    json({ spec: { template: { spec: { initContainers: [{ env: [{ name: 'A', value: MARK }] }] } } } }),
  ],
  [
    'PATCH',
    '/apis/apps/v1/namespaces/n/statefulsets/s',
    json([{ op: 'add', path: '/spec/template/spec/containers/0/env/-', value: { name: 'A', value: MARK } }]),
  ],
  [
    'PATCH',
    '/apis/apps/v1/namespaces/n/daemonsets/d',
    json([{ op: 'add', path: '/spec/template/spec/containers/0/env/0/value', value: MARK }]),
  ],
  [
    'POST',
    '/apis/batch/v1/namespaces/n/cronjobs',
    json({
      spec: { jobTemplate: { spec: { template: { spec: { containers: [{ env: [{ value: MARK }] }] } } } } },
    }),
  ],
  [
    'PATCH',
    `${CORE}/pods/p/ephemeralcontainers`,
    json({ spec: { ephemeralContainers: [{ env: [{ name: 'A', value: MARK }] }] } }),
  ],
  // an unknown API
  ['POST', '/apis/x.example/v1/databases', json({ kind: 'Database', spec: { password: MARK } })],
  ['PATCH', '/apis/x.example/v1/databases/d', json([{ op: 'add', path: '/spec/password', value: MARK }])],
  ['POST', '/apis/x.example/v1/secrets', json({ stringData: { a: MARK } })],
  ['PUT', '/apis/x.example/v1/databases/d/status', json({ status: { connection: MARK } })],
  ['PUT', '/apis/x.example/v1/databases/d', json({ __proto__: null, constructor: MARK, toString: MARK })],
  ['POST', `${CORE}/events`, json({ message: MARK })],
  ['DELETE', `${CORE}/secrets/s`, json({ kind: 'DeleteOptions', data: MARK })],
];

describe.each(TRANSPORTS)('an event (%s)', (transport) => {
  // the tests' small HTTP/2 client sends the body in one frame, which has a maximum size
  const rows = SECRETS.map((row, index) => [`F1.${index}`, ...row] as const).filter(
    ([, , , body]) => transport === 'h1 request' || body.length < 16_384,
  );
  it.each(rows)('%s of %s %s holds no password', async (_id, method, target, body) => {
    const { text } = await requestEvent(transport, { method, target, ...(body === '' ? {} : { body }) });
    expect(text).not.toContain(MARK);
  });

  it.each<[string, string, unknown]>([
    [
      'POST',
      '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
      {
        kind: 'ClusterRoleBinding',
        metadata: { name: 'b' },
        roleRef: { name: 'cluster-admin' },
        subjects: [{ kind: 'User', name: 'mallory' }],
      },
    ],
    [
      'POST',
      '/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles',
      { kind: 'Role', rules: [{ verbs: ['*'] }] },
    ],
    [
      'PATCH',
      '/apis/rbac.authorization.k8s.io/v1/clusterroles/c',
      [{ op: 'add', path: '/rules/-', value: { verbs: ['*'] } }],
    ],
    [
      'PATCH',
      `${CORE}/pods/p/ephemeralcontainers`,
      {
        spec: { ephemeralContainers: [{ name: 'd', image: 'i', command: ['sh'], targetContainerName: 't' }] },
      },
    ],
    [
      'PATCH',
      `${CORE}/pods/p/ephemeralcontainers`,
      [{ op: 'add', path: '/spec/ephemeralContainers/-', value: { name: 'd', command: ['sh'] } }],
    ],
    ['POST', `${CORE}/serviceaccounts/s/token`, { spec: { audiences: ['a'], expirationSeconds: 600 } }],
    [
      'POST',
      `${CORE}/pods`,
      {
        spec: {
          hostPID: true,
          serviceAccountName: 's',
          containers: [{ name: 'c', command: ['sh'], securityContext: { privileged: true } }],
          volumes: [{ name: 'v', hostPath: { path: '/' } }],
        },
      },
    ],
    ['PATCH', '/apis/apps/v1/namespaces/n/deployments/d/scale', { spec: { replicas: 0 } }],
    [
      'POST',
      `${CORE}/pods/p/eviction`,
      { kind: 'Eviction', metadata: { name: 'p' }, deleteOptions: { gracePeriodSeconds: 0 } },
    ],
    ['DELETE', `${CORE}/pods`, { kind: 'DeleteOptions', propagationPolicy: 'Background' }],
    [
      'POST',
      '/apis/x.example/v1/databases',
      { apiVersion: 'x.example/v1', kind: 'Database', metadata: { name: 'd', labels: { a: 'b' } } },
    ],
  ])('F2 of %s %s holds what was asked for', async (method, target, asked) => {
    const { body } = await requestEvent(transport, { method, target, body: json(asked) });
    expect(JSON.parse(body)).toEqual(asked);
  });

  it('F2 of a log, a watch and a kubelet request holds the parameters that Kubernetes reads', async () => {
    for (const target of [
      `${CORE}/pods/p/log?container=c`,
      '/api/v1/nodes/w/proxy/containerLogs/n/p/c?tailLines=5',
      `${CORE}/pods?watch=1`,
    ])
      expect((await requestEvent(transport, { target })).text).toContain(target);
  });

  it('F2 of a node proxy holds the path, and no value of a parameter that the kubelet does not read', async () => {
    const path = '/api/v1/nodes/w/proxy/stats/summary';
    const { text } = await requestEvent(transport, { target: `${path}?key=hunter2` });
    expect(text).toContain(`${path}?key=`);
    expect(text).not.toContain('hunter2');
  });
});

/**
 * Compares tailcast's parsing of requests with a running API server: its audit log, its responses, and the caller that
 * it sees.
 */
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { buildUpstreamHeaders } from '../../../src/impersonation/apply.ts';
import type { ImpersonationTarget } from '../../../src/impersonation/target.ts';
import { parseTarget, type Target } from '../../../src/kube/canonical-target.ts';
import { classifyRequest, type RequestClass } from '../../../src/kube/interactive.ts';
import { parseRequestInfo, type RequestInfo } from '../../../src/kube/request-info.ts';
import { createRandom, runSeed, type Random } from '../../support/random.ts';
import { sendRaw, type RawRequest, type RawResponse } from '../differential/raw-requests.ts';
import { NAMES, randomRequest, type RequestLine } from '../differential/requests.ts';
import {
  startKubernetes,
  type AuditEvent,
  type Kubernetes,
  type KubernetesVersion,
} from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';

const CONNECTIONS = 16;
const seed = runSeed();

/** Request as tailcast parses it; undefined if tailcast rejects it. */
interface Reading {
  readonly info: RequestInfo;
  readonly requestClass: RequestClass;
  readonly upgradeClass: RequestClass;
}

function readRequest({ method, target }: RequestLine): Reading | undefined {
  let parsed: Target;
  try {
    parsed = parseTarget(target);
    const info = parseRequestInfo(method, parsed);
    return {
      info,
      requestClass: classifyRequest(info, { upgrade: false, method }),
      upgradeClass: classifyRequest(info, { upgrade: true, method }),
    };
  } catch (error) {
    const refusals = ['REQUEST_NOT_CANONICAL', 'TARGET_TOO_LONG', 'POLICY_REFUSED'];
    if (error instanceof TailcastError && refusals.includes(error.code)) return undefined;
    throw error;
  }
}

/** Returns the audit event that tailcast's parsing of a request predicts. */
function expectedEvent({ info }: Reading): object {
  if (!info.isResourceRequest) return { verb: info.verb };
  const members = {
    resource: info.resource,
    namespace: info.namespace,
    name: info.name,
    apiGroup: info.apiGroup,
    apiVersion: info.apiVersion,
    subresource: info.subresource,
  };
  // Go omits empty fields.
  return {
    verb: info.verb,
    objectRef: Object.fromEntries(Object.entries(members).filter(([, value]) => value !== '')),
  };
}

/** Classes that the policy treats as a session; all other classes are forwarded as ordinary requests. */
const SESSIONS: ReadonlySet<RequestClass> = new Set([
  'exec',
  'attach',
  'portForward',
  'nodeProxy',
  'podProxy',
  'serviceProxy',
  'otherProxy',
]);

const ROUTES: Readonly<Record<string, RequestClass>> = {
  'pods/exec': 'exec',
  'pods/attach': 'attach',
  'pods/portforward': 'portForward',
  'pods/proxy': 'podProxy',
  'services/proxy': 'serviceProxy',
  'nodes/proxy': 'nodeProxy',
};

/**
 * Returns the request class according to the audit event of the API server, or undefined for a request that cannot open
 * a session.
 */
function sessionRoute(event: AuditEvent): RequestClass | undefined {
  const { resource = '', subresource = '', apiGroup, apiVersion } = event.objectRef ?? {};
  // an aggregated API server, which is not part of this test, interprets the part of the path after `proxy`
  if (apiGroup !== undefined && subresource === 'proxy') return 'otherProxy';
  if (apiGroup !== undefined || apiVersion !== 'v1') return undefined;
  return ROUTES[`${resource}/${subresource}`];
}

/** True if the handler of exec, attach or port-forward rejected a request without an upgrade. */
function reachedStreamHandler({ status, body }: RawResponse): boolean {
  return status === 400 && /upgrade request required/i.test(body);
}

const ROLE = 'differential';

/** Creates a user who may read and connect to everything, and change nothing. */
async function prepare(cluster: Kubernetes): Promise<void> {
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  await cluster.api('POST', `${rbac}/clusterroles`, {
    metadata: { name: ROLE },
    rules: [
      { apiGroups: ['*'], resources: ['*'], verbs: ['get', 'list', 'watch'] },
      {
        apiGroups: ['*'],
        resources: [
          'pods/exec',
          'pods/attach',
          'pods/portforward',
          'pods/proxy',
          'services/proxy',
          'nodes/proxy',
          'clusters/proxy',
        ],
        verbs: ['*'],
      },
      { nonResourceURLs: ['*'], verbs: ['*'] },
      { apiGroups: ['authentication.k8s.io'], resources: ['selfsubjectreviews'], verbs: ['create'] },
    ],
  });
  await cluster.api('POST', `${rbac}/clusterrolebindings`, {
    metadata: { name: ROLE },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: ROLE },
    subjects: [
      { apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'rig-nobody' },
      // Users who are impersonated with this group may create a SelfSubjectReview, too.
      { apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'system:unauthenticated' },
    ],
  });
  await cluster.api('POST', '/api/v1/namespaces', { metadata: { name: NAMES.namespace } });
  await cluster.api('POST', `/api/v1/namespaces/${NAMES.namespace}/services`, {
    metadata: { name: NAMES.service },
    spec: { ports: [{ port: 80 }] },
  });
}

/** Registers an API group, so that the API server forwards its requests to another server, which does not exist. */
async function registerGroup(rig: Rig, cluster: Kubernetes): Promise<void> {
  await cluster.api('POST', '/apis/apiregistration.k8s.io/v1/apiservices', {
    metadata: { name: 'v1.aggregated.example' },
    spec: {
      group: 'aggregated.example',
      version: 'v1',
      service: { namespace: NAMES.namespace, name: NAMES.service },
      insecureSkipTLSVerify: true,
      groupPriorityMinimum: 1000,
      versionPriority: 15,
    },
  });
  await rig.until('the API group is passed on', async () => {
    const [answer] = await sendRaw(
      cluster,
      [
        {
          method: 'GET',
          target: '/apis/aggregated.example/v1/clusters',
          headers: ['Host', 'kubernetes', 'Authorization', `Bearer ${cluster.tokens.admin}`],
        },
      ],
      1,
    );
    return answer?.status === 503 ? true : undefined;
  });
}

async function startPod(rig: Rig, cluster: Kubernetes, name: string): Promise<void> {
  const pods = `/api/v1/namespaces/${NAMES.namespace}/pods`;
  await cluster.api('POST', pods, {
    metadata: { name },
    spec: { containers: [{ name: 'main', image: 'local/shell', command: ['sleep', 'infinity'] }] },
  });
  await rig.until('the pod runs', async () => {
    const pod = (await cluster.api('GET', `${pods}/${name}`)) as { status: { phase: string } };
    return pod.status.phase === 'Running' ? true : undefined;
  });
}

const clusters: readonly { version: KubernetesVersion; requests: number }[] = [
  { version: '1.36', requests: 24_000 },
  { version: '1.34', requests: 6_000 },
];

describe.each(clusters)(`API server $version (TEST_SEED=${seed})`, ({ version, requests }) => {
  let rig: Rig;
  let cluster: Kubernetes;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version });
    await prepare(cluster);
    await rig.until('the namespace has a service account', () =>
      cluster.api('GET', `/api/v1/namespaces/${NAMES.namespace}/serviceaccounts/default`),
    );
    await Promise.all(NAMES.pods.map((name) => startPod(rig, cluster, name)));
    await registerGroup(rig, cluster);
  });

  afterAll(() => rig.stop());

  function rawRequest({ method, target }: RequestLine, auditId: string): RawRequest {
    const headers = [
      'Host',
      'kubernetes',
      'Authorization',
      `Bearer ${cluster.tokens.nobody}`,
      'Audit-ID',
      auditId,
    ];
    return { method, target, headers: [...headers, 'Content-Length', '0'] };
  }

  /** Returns the first audit event of each Audit-ID, which the API server writes before the response starts. */
  async function auditEvents(prefix: string, sent: number): Promise<ReadonlyMap<string, AuditEvent>> {
    let seen = -1;
    return rig.until('the audit log is complete', async () => {
      const events = new Map<string, AuditEvent>();
      for (const event of cluster.audit()) {
        if (event.auditID.startsWith(prefix) && !events.has(event.auditID)) events.set(event.auditID, event);
      }
      // Some requests have no audit event, so the test waits until the log stops growing.
      const atRest = events.size === seen && events.size > sent / 2;
      seen = events.size;
      await new Promise((done) => setTimeout(done, 500));
      return atRest ? events : undefined;
    });
  }

  it(
    'reads an accepted request as we do, and has no session road that we call plain',
    { timeout: 480_000 },
    async () => {
      const random = createRandom(seed);
      const lines = Array.from({ length: requests }, () => randomRequest(random));
      const prefix = `${randomUUID().slice(0, 8)}-`;
      const started = performance.now();
      const responses = await sendRaw(
        cluster,
        lines.map((line, index) => rawRequest(line, `${prefix}${index}`)),
        CONNECTIONS,
      );
      const seconds = Math.round((performance.now() - started) / 1000);
      const events = await auditEvents(prefix, requests);
      const report = judge(lines, responses, (index) => events.get(`${prefix}${index}`));
      console.log(`API server ${version}`, { ...report.counts, seconds });
      expect(report.problems.slice(0, 5)).toEqual([]);
      expect(report.counts.compared).toBeGreaterThan(requests / 4);
      expect(report.counts.streamHandlers).toBeGreaterThan(requests / 400);
      expect(report.counts.passedOn).toBeGreaterThan(requests / 200);
      expect(report.counts.otherProxies).toBeGreaterThan(requests / 400);
    },
  );

  it(
    'takes the caller for whom we meant, and never gets what claims another',
    { timeout: 60_000 },
    async () => {
      const random = createRandom(seed + 2);
      const path = '/apis/authentication.k8s.io/v1/selfsubjectreviews';
      const body = JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' });
      const targets: ImpersonationTarget[] = [];
      const requestsToSend: RawRequest[] = [];
      let refused = 0;
      let named = 0;
      while (targets.length < 400) {
        const target = randomTarget(random);
        const tries = clientHeaders(random);
        const own = random.oneIn(4) ? ownIdentity(target) : [];
        const isOther = tries.some(
          (name, index) =>
            index % 2 === 0 && /^impersonate/i.test(name) && !own.includes(tries[index + 1] ?? ''),
        );
        const send = (): readonly string[] =>
          buildUpstreamHeaders({
            rawHeaders: [...own, ...tries],
            host: 'kubernetes',
            identity: { mode: 'auth', target, authorization: `Bearer ${cluster.tokens.admin}` },
          });
        if (isOther) {
          expect(send, JSON.stringify({ target, tries })).toThrow(
            expect.objectContaining({ code: 'IMPERSONATION_REFUSED' }),
          );
          refused++;
          continue;
        }
        if (own.length > 0) named++;
        targets.push(target);
        requestsToSend.push({
          method: 'POST',
          target: path,
          headers: [...send(), 'Content-Type', 'application/json'],
          body,
        });
      }
      const responses = await sendRaw(cluster, requestsToSend, CONNECTIONS);
      const problems: object[] = [];
      for (const [index, target] of targets.entries()) {
        const { status, body: answer } = responses[index]!;
        const seen = status === 201 ? (JSON.parse(answer) as Review).status.userInfo : { status, answer };
        const meant = meantUser(target);
        if (!isDeepStrictEqual(seen, meant)) problems.push({ meant, seen, sent: requestsToSend[index] });
      }
      console.log(`identities, API server ${version}`, {
        sent: targets.length,
        named,
        refused,
        problems: problems.length,
      });
      expect(problems.slice(0, 5)).toEqual([]);
      expect(named).toBeGreaterThan(20);
      expect(refused).toBeGreaterThan(100);
    },
  );
});

interface Report {
  readonly counts: Readonly<Record<'compared' | 'streamHandlers' | 'passedOn' | 'otherProxies', number>>;
  readonly problems: object[];
}

function judge(
  lines: readonly RequestLine[],
  responses: readonly RawResponse[],
  eventOf: (index: number) => AuditEvent | undefined,
): Report {
  const counts = {
    sent: lines.length,
    accepted: 0,
    refused: 0,
    compared: 0,
    unaudited: 0,
    sessions: 0,
    streamHandlers: 0,
    /** Requests that the API server forwarded to the server of the other group. */
    passedOn: 0,
    otherProxies: 0,
    endless: 0,
  };
  const problems: object[] = [];
  for (const [index, line] of lines.entries()) {
    const response = responses[index]!;
    const event = eventOf(index);
    const reading = readRequest(line);
    if (response.endless) counts.endless++;
    if (reading === undefined) counts.refused++;
    else counts.accepted++;
    const route = event === undefined ? undefined : sessionRoute(event);
    if (route !== undefined) counts.sessions++;
    if (route === 'otherProxy') counts.otherProxies++;
    if (response.status === 503 && event?.objectRef?.apiGroup === 'aggregated.example') counts.passedOn++;
    if (reachedStreamHandler(response)) counts.streamHandlers++;
    if (reading === undefined) continue;
    const problem = problemOf(reading, event, response, route);
    if (problem !== undefined) problems.push({ problem, line, reading, event, response });
    if (event === undefined) counts.unaudited++;
    else counts.compared++;
  }
  return { counts, problems };
}

function problemOf(
  reading: Reading,
  event: AuditEvent | undefined,
  response: RawResponse,
  route: RequestClass | undefined,
): string | undefined {
  const { requestClass, upgradeClass, info } = reading;
  if (upgradeClass === 'plain' || upgradeClass === 'longRunning') return 'an upgrade that we call plain';
  if (reachedStreamHandler(response) && !['exec', 'attach', 'portForward'].includes(requestClass)) {
    return 'a stream handler behind a request that we call something else';
  }
  if (event === undefined) {
    // Only a path with a verb but without a resource fails before the API server writes an audit event.
    const dies = response.status === 500 && info.isResourceRequest && info.parts.length === 0;
    return dies ? undefined : 'not in the audit log';
  }
  if (route !== undefined && requestClass !== route) return `to the API server this is ${route}`;
  if (route !== undefined && !SESSIONS.has(requestClass)) return 'a session that we do not treat as one';
  const { verb, objectRef } = event;
  const seen = objectRef === undefined ? { verb } : { verb, objectRef };
  try {
    expect(seen).toEqual(expectedEvent(reading));
    return undefined;
  } catch {
    return 'read differently';
  }
}

interface UserInfo {
  readonly username: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

interface Review {
  readonly status: { readonly userInfo: UserInfo };
}

/** Returns the `SelfSubjectReview` that the API server must return if it received exactly the target's headers. */
function meantUser({ user, groups, extra }: ImpersonationTarget): UserInfo {
  const authenticated = groups.includes('system:authenticated') || groups.includes('system:unauthenticated');
  const values: Record<string, string[]> = {};
  for (const [key, value] of extra) (values[key] ??= []).push(value);
  return {
    username: user,
    groups: authenticated ? groups : [...groups, 'system:authenticated'],
    ...(extra.length === 0 ? {} : { extra: values }),
  };
}

const USERS = [
  'a b',
  'a, b',
  'e\u0301',
  '\u{10ffff}',
  ...(
    'alice@example.com bob node.lab.ts.net a;b a"b o\'hara x=y a\\b a:b %41 Ünïcode 用户@例子.测试 Алиса 😀 é ﬀ ſ K İ ' +
    'ÿ ÿ@x ¿'
  ).split(' '),
];
const GROUPS = [
  'g2, with comma',
  'a b',
  ...'system:masters readers tag:prod Grüppe 组 😀 a%2Fb x:y/z " system:authenticated system:unauthenticated a=b A a ÿ \\'.split(
    ' ',
  ),
];
const EXTRA_KEYS = [
  'a b',
  ...(
    'tailcast.dev/session tailcast.dev/node scopes a%2fb a% % a:b a,b a"b ключ 键 ü 😀 x_y x.y ' +
    "x!#$&'*+-^_`|~ ( ) <> @ " +
    '[] {} \\ ; = ? / // ß ﬀ'
  ).split(' '),
];
const EXTRA_VALUES = ['1', 'a b', 'a,b', 'ü', '😀', '%41', '"', 'x=y;z', 'A', '\\'];

function randomTarget(random: Random): ImpersonationTarget {
  const user = random.oneIn(3) ? `${random.pick(USERS)}${random.pick(USERS)}` : random.pick(USERS);
  return {
    user,
    groups: [...new Set(random.list(5, () => random.pick(GROUPS)))],
    extra: random.list(4, (): readonly [string, string] => [
      random.pick(EXTRA_KEYS),
      random.pick(EXTRA_VALUES),
    ]),
  };
}

/** Returns the headers that kubectl sends if `--as` and `--as-group` name the caller's own identity. */
function ownIdentity({ user, groups }: ImpersonationTarget): readonly string[] {
  const bytes = (text: string): string => Buffer.from(text).toString('latin1');
  return ['Impersonate-User', bytes(user), ...groups.flatMap((group) => ['Impersonate-Group', bytes(group)])];
}

/**
 * Returns the headers of a client that claims another identity. {@link randomTarget} returns none of the claimed
 * identities.
 */
function clientHeaders(random: Random): readonly string[] {
  const tries: readonly (readonly [string, string])[] = [
    ['Impersonate-User', 'root'],
    ['impersonate-group', 'system:masters'],
    ['IMPERSONATE-UID', '0'],
    ['Impersonate-Extra-Scopes', 'all'],
    ['Connection', 'Impersonate-User, Authorization'],
    ['X-Remote-User', 'root'],
    ['X-Remote-Group', 'system:masters'],
    ['Authorization', 'Bearer something'],
    ['X-Forwarded-For', '1.2.3.4'],
    ['Cookie', 'a=b'],
    ['Accept', 'application/json'],
    ['User-Agent', 'kubectl'],
  ];
  return random.list(6, () => random.pick(tries)).flat();
}

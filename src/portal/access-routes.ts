/**
 * Routes for access requests. Their parameters are in the query, because the portal does not read request
 * bodies.
 *
 * ```
 * GET  /-/recordings/api/v1/access/requests                    requests that the caller may see
 * POST /-/recordings/api/v1/access/requests?group=…&reason=…   a new request
 * GET  /-/recordings/api/v1/access/requests/<id>
 * POST /-/recordings/api/v1/access/requests/<id>/<verdict>     approve, deny or revoke
 * ```
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AccessRequests, AccessVerdict, Decider } from '../access/requests.ts';
import { requestable, requestView } from '../access/view.ts';
import { TailcastError } from '../errors.ts';
import { queryValues } from '../kube/canonical-target.ts';
import type { GatedCluster } from '../proxy/gate/cluster-gate.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import { callerName } from '../tailnet/identity.ts';
import { standingIn } from './cluster-list.ts';
import { DATA_HEADERS, PORTAL_PATH } from './page-headers.ts';
import type { PortalRequest } from './portal-request.ts';

const ROUTE = `${PORTAL_PATH}/api/v1/access/requests`;
const ID = ':id(^[a-z0-9]{10}$)';
const VERDICTS: ReadonlyMap<string, AccessVerdict> = new Map([
  ['approve', 'approved'],
  ['deny', 'denied'],
  ['revoke', 'revoked'],
]);

export interface AccessDeps {
  /** Source of access requests; undefined if the gateway does not store access requests. */
  readonly access?: AccessRequests | undefined;
  /** Returns the clusters of the gateway. Undefined if the gateway serves only one cluster. */
  readonly clusters?: (() => Iterable<GatedCluster>) | undefined;
}

/** @param methods all methods of requests that the gateway's front server (`proxy/front`) passes to the portal */
export function registerAccess(
  app: FastifyInstance,
  { access, clusters }: AccessDeps,
  methods: readonly string[],
): void {
  const requests = (): AccessRequests => {
    if (access !== undefined) return access;
    throw new TailcastError('ACCESS_REQUEST_UNAVAILABLE', 'the gateway stores no access requests');
  };
  const answer = (reply: FastifyReply, body: object): FastifyReply =>
    reply.headers(DATA_HEADERS).header('cache-control', 'no-store').send(body);
  const method = [...methods];
  app.route({
    method,
    url: ROUTE,
    config: { isAction: true },
    async handler(request, reply) {
      const { caller, own, one, all, signal, inbound } = read(request);
      if (inbound.method === 'POST') {
        const seconds = one('seconds');
        if (seconds !== undefined && !/^\d{1,7}$/.test(seconds))
          throw new TailcastError('USAGE', 'seconds is not a whole number');
        const standing = await requesterIn(one('cluster'), request.portal, clusters);
        const record = await requests().request(
          {
            identity: caller.identity,
            own,
            rules: standing.access ?? [],
            recording: standing.recording,
            cluster: standing.cluster?.name,
            groups: all('group'),
            user: one('user'),
            writes: one('writes') === '1',
            reason: one('reason') ?? '',
            durationMs: seconds === undefined ? undefined : Number(seconds) * 1000,
          },
          signal,
        );
        const viewer = await deciderOf(request.portal, clusters);
        return answer(reply.code(201), requestView(record, viewer, requests().nowMs));
      }
      const viewer = await deciderOf(request.portal, clusters);
      const found = await requests().list(viewer, signal);
      return answer(reply, {
        caller: callerName(caller.identity),
        requestable: requestable(caller),
        requests: found.map((record) => requestView(record, viewer, requests().nowMs)),
      });
    },
  });
  app.route({
    method,
    url: `${ROUTE}/${ID}`,
    async handler(request, reply) {
      const { signal, segments } = read(request);
      const id = segments.at(-1) ?? '';
      const viewer = await deciderOf(request.portal, clusters);
      const found = await requests().list(viewer, signal);
      const record = found.find((one) => one.id === id);
      if (record === undefined) throw new TailcastError('ACCESS_REQUEST_UNKNOWN', id);
      return answer(reply, requestView(record, viewer, requests().nowMs));
    },
  });
  app.route({
    method,
    url: `${ROUTE}/${ID}/:verdict(^(?:approve|deny|revoke)$)`,
    config: { isAction: true },
    async handler(request, reply) {
      const { one, signal, segments, inbound } = read(request);
      const [id = '', word = ''] = segments.slice(-2);
      const verdict = VERDICTS.get(word);
      if (inbound.method !== 'POST' || verdict === undefined)
        throw new TailcastError('METHOD_REFUSED', 'use POST');
      const viewer = await deciderOf(request.portal, clusters);
      const decider = { ...viewer, reason: one('reason') ?? '' };
      const record = await requests().decide(id, verdict, decider, signal);
      return answer(reply, requestView(record, viewer, requests().nowMs));
    },
  });
}

/**
 * Returns the caller, with the caller's rights in the cluster that a new access request names. Rules and recorders can
 * differ between clusters.
 * @throws TailcastError `CLUSTER_REFUSED` for a cluster in which no rule applies to the caller
 */
async function requesterIn(
  name: string | undefined,
  portal: PortalRequest,
  clusters: AccessDeps['clusters'],
): Promise<Caller> {
  const { caller } = portal;
  if (caller !== undefined && (name === undefined || name === caller.cluster?.name)) return caller;
  for (const cluster of clusters?.() ?? []) {
    const found = cluster.name === name ? await standingIn(cluster, portal) : undefined;
    if (found !== undefined) return found;
  }
  throw new TailcastError('CLUSTER_REFUSED', name);
}

/**
 * Returns the caller with the caller's groups in each cluster. The groups of each cluster are separate, because a group
 * in one cluster gives no rights in another cluster.
 */
async function deciderOf(portal: PortalRequest, clusters: AccessDeps['clusters']): Promise<Decider> {
  const { caller } = portal;
  if (caller?.impersonation === undefined)
    throw new TailcastError('ACCESS_REQUEST_UNAVAILABLE', 'access requests need mode=auth');
  const groups = new Map<string, readonly string[]>();
  if (clusters === undefined) groups.set('', caller.impersonation.groups);
  for (const cluster of clusters?.() ?? [])
    groups.set(cluster.name, (await standingIn(cluster, portal))?.impersonation?.groups ?? []);
  return { identity: caller.identity, groupsIn: (cluster) => groups.get(cluster) ?? [] };
}

function read({ portal }: FastifyRequest) {
  const { caller, target, signal, inbound } = portal;
  if (caller?.impersonation === undefined)
    throw new TailcastError('ACCESS_REQUEST_UNAVAILABLE', 'access requests need mode=auth');
  const all = (name: string): readonly string[] => queryValues(target.query, name);
  return {
    caller,
    own: caller.impersonation,
    signal,
    inbound,
    segments: target.segments,
    all,
    one: (name: string) => all(name)[0],
  };
}

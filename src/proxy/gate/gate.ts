/**
 * Decides whether a request may pass: HTTP/1.1, HTTP/2 and upgrades.
 *
 * Steps, in order; each may reject the request: method and header limits → canonical target → identity →
 * grants → impersonation target → headers for the API server → class of the request → recording policy →
 * access review, if enabled. The result contains all decisions about the request.
 *
 * The gate does not send requests or responses, and does not open recorders. The modules that use the gate convert its
 * errors to a `metav1.Status`.
 */
import { TailcastError } from '../../errors.ts';
import { buildUpstreamHeaders, nameForAuditLog, refuseOtherIdentity } from '../../impersonation/apply.ts';
import { requireClaimable, reservedGroups } from '../../impersonation/group-limit.ts';
import { resolveTarget, type ImpersonationTarget } from '../../impersonation/target.ts';
import { AUDIT_EXTRA } from '../../kube/audit-extras.ts';
import { hasBearerToken } from '../../kube/bearer-token.ts';
import { parseExecOptions, type ExecOptions } from '../../kube/exec-options.ts';
import { parseTarget, queryValues, refuseLongTarget, type Target } from '../../kube/canonical-target.ts';
import { classifyRequest, type RequestClass } from '../../kube/interactive.ts';
import { parseRequestInfo, type RequestInfo } from '../../kube/request-info.ts';
import { decideRecording, type RecordingPolicy } from '../../recording/policy.ts';
import {
  parseAccessRules,
  parseModerationRules,
  type AccessRule,
  type ModerationRule,
} from '../../tailnet/access-rules.ts';
import { parseClusterRules, parseKubernetesRules } from '../../tailnet/capabilities.ts';
import { callerName, type Identity, type IdentitySource, type Peer } from '../../tailnet/identity.ts';
import { questionOf, type AccessQuestion, type AccessReviews } from './access-review.ts';
import { isShownByBrowser, refusePages } from './browser-pages.ts';
import { isFollowedLink, refuseForeignPages, type BrowserFields, type PageRules } from './browser-guard.ts';
import type { GatewayCluster } from './cluster.ts';
import { moderate, type ModeratedSession } from './moderation.ts';
import { assertStillGranted, type GrantedAdmission } from './still-granted.ts';
import { upstreamIdentity } from './upstream-identity.ts';
import {
  confirmElevation,
  elevate,
  type Elevation,
  type Elevations,
  type CallerStanding,
  type Standee,
} from './elevation.ts';
import {
  decide,
  DEFAULT_POLICY,
  isBodyRequired,
  policyClassOf,
  refusedPort,
  type Policy,
  type PolicyClass,
} from './policy.ts';

/** A request as received from a client, not checked yet. */
export interface InboundRequest {
  readonly method: string;
  /** The request target as received. */
  readonly target: string;
  /**
   * Flat list `[name, value, …]`. For HTTP/2, `host` contains `:authority`, and the list contains no
   * pseudo-headers.
   */
  readonly rawHeaders: readonly string[];
  readonly peer: Peer;
  /** True if the client requests a protocol switch. */
  readonly upgrade: boolean;
}

/** An admitted request: identity, class, impersonation, and headers for the API server. */
export interface Admission {
  /** Unique id of the request, in the access log and in every event about the request. */
  readonly id: string;
  /**
   * Id of the request in the API server's audit log; undefined if the client or the API server chooses the
   * id.
   */
  readonly auditId: string | undefined;
  readonly startedAtMs: number;
  readonly identity: Identity;
  /** Name of the caller in logs, events and recordings. */
  readonly user: string;
  readonly target: Target;
  readonly info: RequestInfo;
  readonly requestClass: RequestClass;
  /** Options in the query of `pods/exec`. Each read of this property parses the query. */
  readonly exec: ExecOptions;
  /**
   * User and groups for the API server; undefined in `noauth` mode, in which the API server gets the client's own
   * credentials.
   */
  readonly impersonation: ImpersonationTarget | undefined;
  /**
   * Flat list of the headers for the API server, with Host, Authorization and Impersonate-*, but without
   * connection, upgrade and framing headers.
   */
  readonly headers: readonly string[];
  readonly recording: RecordingPolicy;
  /** Policy class of the request; undefined for requests that the policy does not cover. */
  readonly policyClass: PolicyClass | undefined;
  /**
   * True if the session is recorded. The gateway then opens the upload to a recorder before it sends the request to the
   * API server.
   */
  readonly record: boolean;
  /** True if the gateway sends an event about the request to a recorder before it forwards the request. */
  readonly event: boolean;
  /** True if the request must be rejected when its event cannot contain the body. */
  readonly isBodyRequired?: boolean;
  /** The access review of the request. The gateway repeats it while the session runs. */
  readonly review?: AccessQuestion;
  /** True if a browser will render the response; headers then come from `browser-pages.ts`. */
  readonly shown: boolean;
  /** The cluster of the request; undefined at a gateway with one cluster. */
  readonly cluster?: GatewayCluster;
  /** Granted access (access on request) with which the request runs. */
  readonly elevation?: Elevation;
  /** Rules of a moderated session. */
  readonly moderation?: readonly ModerationRule[];
}

/** The caller of a service of the gateway itself, such as the portal. */
export type Caller = Pick<
  Admission,
  'id' | 'identity' | 'impersonation' | 'recording' | 'review' | 'cluster' | 'elevation'
> & {
  /** Rules of access on request; absent without rules. */
  readonly access?: readonly AccessRule[];
};

type OnIdentified = (caller: Pick<Caller, 'id' | 'identity'>) => void;

/** External dependencies of the gate. */
export interface GateDeps {
  /** `auth`: the tailnet identity is impersonated. `noauth`: the client sends its own Kubernetes credentials. */
  readonly mode: 'auth' | 'noauth';
  readonly identities: IdentitySource;
  /** `Host` of requests to the API server, with the port unless it is 443. */
  readonly upstreamHost: string;
  /**
   * Returns the value of the `Authorization` header with the gateway's own credential, such as `Bearer …`.
   * Called for each request in `auth` mode.
   */
  authorization(): Promise<string | undefined>;
  /** Policy of the gateway. Default: `DEFAULT_POLICY`. */
  readonly policy?: Policy;
  /** True to send extras for the audit log, see `AUDIT_EXTRA`. */
  readonly auditExtras?: boolean;
  /** Groups that grants may assign to a caller. A name may end with `*`. An empty list allows any group. */
  readonly claimableGroups?: readonly string[];
  /**
   * Called once for each built-in group of Kubernetes, such as `system:masters`, that a grant assigns and
   * `claimableGroups` does not name. Called at most `MAX_WARNINGS` times.
   */
  readonly onReservedGroup?: (group: string, identity: Identity) => void;
  /**
   * Access reviews of sessions and of requests to programs (`/proxy` subresources); only in `auth` mode.
   * Default: none.
   */
  readonly reviews?: AccessReviews | undefined;
  /**
   * Source of access on request; only in `auth` mode. By default, requests that need granted access are
   * refused.
   */
  readonly elevations?: Elevations | undefined;
  /**
   * Bearer token that every request must contain. Needed for listeners that other users of the machine can
   * reach. Default: none.
   */
  readonly callerToken?: string | undefined;
  /** Hostnames that `Host` may contain, in lower case and without ports; empty allows any hostname. */
  readonly hostNames?: ReadonlySet<string>;
  /** Origins, in lower case, of dashboards whose server forwards requests to the gateway. */
  readonly dashboardOrigins?: ReadonlySet<string>;
  /**
   * True if the gateway names callers to the API server in request headers, and not in impersonation headers. RBAC then
   * cannot limit which groups the gateway assigns.
   */
  readonly requestHeader?: boolean;
  /** First segments of paths that the gateway refuses. Default: none. */
  readonly refusedSegments?: ReadonlySet<string>;
  /**
   * The cluster of all requests of this gate. If set, callers need a rule for this cluster. By default, all rules of
   * the caller apply.
   */
  readonly cluster?: GatewayCluster;
  readonly nowMs: () => number;
  readonly createId: () => string;
}

export type Gate = ReturnType<typeof createGate>;

/** The parts of an admission that rechecks use. */
export interface Confirmable extends GrantedAdmission, Pick<Admission, 'review' | 'cluster'> {}

/** Methods of the Kubernetes API. All others, including CONNECT and TRACE, are rejected. */
export const GATE_METHODS: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
]);

/**
 * Maximum size of the request target and all header lines in total, in bytes. Each line counts
 * {@link HEADER_LINE_BYTES} in addition to its text. The limit allows about 4,000 groups. The API server
 * accepts 1 MiB (`MaxHeaderBytes` in `k8s.io/apiserver/pkg/server/secure_serving.go`), but the gateway keeps
 * heads in memory before it knows their sender.
 */
export const MAX_HEAD_BYTES = 256 * 1024;
/**
 * Maximum size of a head that the HTTP parsers accept, in bytes. The gate sends a Status for a head between
 * {@link MAX_HEAD_BYTES} and this limit.
 */
export const MAX_PARSED_HEAD_BYTES = MAX_HEAD_BYTES + 64 * 1024;
/**
 * Bytes that the gate counts for each header line in addition to name and value (RFC 9113 §6.5.2). This limits the
 * number of lines.
 */
export const HEADER_LINE_BYTES = 32;
/** Maximum length of a header name, in bytes; far longer than the names that Kubernetes clients send. */
export const MAX_HEADER_NAME_BYTES = 256;

/** Creates the gate. The gate evaluates the grants once per `Identity` object, not per request. */
export function createGate(deps: GateDeps) {
  const standingOf = createStandings(deps);
  const policy = deps.policy ?? DEFAULT_POLICY;
  const pages: PageRules = {
    hostNames: deps.hostNames ?? NO_NAMES,
    dashboardOrigins: deps.dashboardOrigins ?? NO_NAMES,
  };
  return {
    /**
     * Admits a request or throws.
     * @param identified called with the caller before access reviews and access requests; may throw
     * @throws TailcastError with the code for the client: `METHOD_REFUSED`, `HEADER_REFUSED`, `HEADERS_TOO_LARGE`,
     * `REQUEST_NOT_CANONICAL`, `TOKEN_REQUIRED`, `IDENTITY_*`, `GRANT_MALFORMED`, `POLICY_REFUSED`, …
     */
    async admit(request: InboundRequest, signal: AbortSignal, identified?: OnIdentified): Promise<Admission> {
      const startedAtMs = deps.nowMs();
      const fields = checkEnvelope(request);
      refuseForeignPages(fields, pages);
      requireToken(deps.callerToken, request);
      const target = parseTarget(request.target);
      const identity = await deps.identities.whois(request.peer, signal, deps.cluster?.service);
      const standing = standingOf(identity);
      // this check follows authentication, so that unknown clients cannot probe these paths
      refuseReserved(target, deps.refusedSegments);
      const id = deps.createId();
      identified?.({ id, identity });
      const { rawHeaders } = request;
      const info = parseRequestInfo(request.method, target);
      const requestClass = classifyRequest(info, request);
      const asked = { rawHeaders, info, requestClass, target, host: fields.host };
      const standee = { identity, cluster: deps.cluster?.name, ...standing };
      const { elevation, judged, ...rights } = await elevate(deps.elevations, standee, asked, signal);
      const { impersonation } = rights;
      const { access, impersonation: own } = standing;
      const caller = { id, identity, request, access, own };
      const headers = buildUpstreamHeaders({
        rawHeaders,
        host: deps.upstreamHost,
        identity: await upstreamIdentity(deps, impersonation, caller),
        auditId: id,
        judged,
      });
      const shown = isShownByBrowser(rawHeaders);
      refusePages({ rawHeaders, shown, requestClass }, policy.programPages);
      const decided = decideSession(
        policy,
        { requestClass, info, target, upgrade: request.upgrade },
        { ...standee, recording: rights.recording },
      );
      const review = deps.reviews === undefined ? undefined : questionOf(decided.policyClass, info);
      if (review !== undefined) await allow(deps, review, { identity, impersonation }, signal);
      return {
        id,
        startedAtMs,
        identity,
        user: callerName(identity),
        target,
        info,
        requestClass,
        get exec() {
          return parseExecOptions(target);
        },
        impersonation,
        ...auditNames(headers, { id, isOurs: impersonation !== undefined, record: decided.record }),
        shown,
        ...decided,
        ...(review === undefined ? {} : { review }),
        ...(elevation === undefined ? {} : { elevation }),
        ...(deps.cluster === undefined ? {} : { cluster: deps.cluster }),
      };
    },
    /**
     * Authenticates a request that the gateway serves itself, or throws. Applies the limits, browser rules, identity
     * and grants of `admit`, but not the checks for the API server. Rejects requests from pages of dashboards as
     * foreign.
     * @param page true if the response is a page to which other sites may link
     * @throws TailcastError as `admit`
     */
    recognise: (request: InboundRequest, page: boolean, signal: AbortSignal): Promise<Caller> =>
      recognise(deps, { pages, standingOf }, { request, page, signal }),
    /**
     * Checks whether an admitted caller would be admitted again, see `assertStillGranted`.
     * @throws TailcastError `ACCESS_ENDED`, or the errors of `admit` about identity, grants, policy or access reviews
     */
    async confirm(admission: Confirmable, peer: Peer, signal: AbortSignal): Promise<void> {
      const identity = await deps.identities.whois(peer, signal, deps.cluster?.service);
      const { review, impersonation } = admission;
      const standee = { identity, cluster: deps.cluster?.name, ...standingOf(identity) };
      if (identity !== admission.identity) assertStillGranted(admission, standee, policy);
      await confirmElevation(deps.elevations, admission, standee, signal);
      if (review !== undefined) await allow(deps, review, { identity, impersonation }, signal);
    },
  };
}

async function recognise(
  deps: GateDeps,
  rules: { readonly pages: PageRules; readonly standingOf: (identity: Identity) => CallerStanding },
  asked: { readonly request: InboundRequest; readonly page: boolean; readonly signal: AbortSignal },
): Promise<Caller> {
  const { request, page, signal } = asked;
  const fields = checkEnvelope(request);
  const isLink = page && request.method === 'GET' && isFollowedLink(request.rawHeaders);
  const noDashboards = { ...rules.pages, dashboardOrigins: NO_NAMES };
  refuseForeignPages(isLink ? { ...fields, fetchSites: [] } : fields, noDashboards);
  requireToken(deps.callerToken, request);
  const identity = await deps.identities.whois(request.peer, signal, deps.cluster?.service);
  const standing = rules.standingOf(identity);
  if (standing.impersonation !== undefined) refuseOtherIdentity(request.rawHeaders, standing.impersonation);
  const { cluster } = deps;
  return { id: deps.createId(), identity, ...(cluster === undefined ? {} : { cluster }), ...standing };
}

/** @throws TailcastError `NOT_FOUND`, `POLICY_REFUSED` */
function refuseReserved({ segments: [first = ''] }: Target, refused: ReadonlySet<string> = NO_NAMES): void {
  if (first === OWN_SEGMENT) throw new TailcastError('NOT_FOUND');
  if (refused.has(first)) {
    throw new TailcastError('POLICY_REFUSED', `the server uses /${first} for its own nodes`);
  }
}

/** @throws TailcastError `TOKEN_REQUIRED` */
function requireToken(token: string | undefined, { rawHeaders }: InboundRequest): void {
  if (token !== undefined && !hasBearerToken(rawHeaders, token)) throw new TailcastError('TOKEN_REQUIRED');
}

/**
 * Evaluates the grants of each identity once. Throws like `assess`. Also throws for groups and users that
 * `claimableGroups` does not allow.
 */
function createStandings(deps: GateDeps): (identity: Identity) => CallerStanding {
  const standings = new WeakMap<Identity, CallerStanding>();
  const warned = new Set<string>();
  return (identity) => {
    const known = standings.get(identity);
    if (known !== undefined) return known;
    const standing = assess(identity, deps.mode, deps.cluster);
    const requestable = standing.access?.flatMap((rule) => rule.groups) ?? [];
    const groups = [...(standing.impersonation?.groups ?? []), ...requestable];
    requireClaimable(deps.claimableGroups ?? [], groups, standing.access);
    for (const group of reservedGroups(groups)) {
      const isNamed = deps.claimableGroups?.includes(group) === true;
      if (!isNamed && deps.requestHeader === true) {
        throw new TailcastError(
          'POLICY_REFUSED',
          `a grant names the group ${group}, which claimableGroups does not name (identity: requestHeader)`,
        );
      }
      if (isNamed || warned.has(group) || warned.size >= MAX_WARNINGS) continue;
      warned.add(group);
      deps.onReservedGroup?.(group, identity);
    }
    standings.set(identity, standing);
    return standing;
  };
}

/** @throws TailcastError `ACCESS_REVIEW_REFUSED`, `ACCESS_REVIEW_FAILED` */
async function allow(
  deps: GateDeps,
  question: AccessQuestion,
  { identity, impersonation }: Pick<Admission, 'identity' | 'impersonation'>,
  signal: AbortSignal,
): Promise<void> {
  if (impersonation === undefined) throw new TailcastError('ACCESS_REVIEW_FAILED', 'nobody is impersonated');
  const caller =
    deps.auditExtras === true
      ? { ...impersonation, extra: [...impersonation.extra, [AUDIT_EXTRA.node, identity.nodeId] as const] }
      : impersonation;
  await deps.reviews?.assertAllowed(question, caller, signal);
}

/** Evaluates the grants of an identity. Depends only on the arguments. */
function assess(
  identity: Identity,
  mode: GateDeps['mode'],
  cluster: GatewayCluster | undefined,
): CallerStanding {
  const { capabilities } = identity;
  const rules =
    cluster === undefined ? parseKubernetesRules(capabilities) : parseClusterRules(capabilities, cluster);
  // at a gateway with several clusters, a caller without a rule for this cluster must not get access
  if (cluster !== undefined && rules.impersonation.length === 0) throw new TailcastError('CLUSTER_REFUSED');
  // in `noauth` mode the gateway cannot grant access; it keeps only the rules about writes, so that it refuses these
  // writes
  const access = parseAccessRules(capabilities).filter(({ writes }) => mode === 'auth' || writes);
  const moderation = parseModerationRules(capabilities);
  return {
    ...(access.length === 0 ? {} : { access }),
    ...(moderation.length === 0 ? {} : { moderation }),
    impersonation: mode === 'auth' ? resolveTarget(identity, rules.impersonation) : undefined,
    recording: decideRecording(rules.recording),
  };
}

/** Checks limits and syntax, and returns the headers for the browser rules. */
export function checkEnvelope({ method, target, rawHeaders }: InboundRequest): BrowserFields {
  if (!GATE_METHODS.has(method)) throw new TailcastError('METHOD_REFUSED', method.slice(0, 20));
  refuseLongTarget(target);
  if (headBytes({ target, rawHeaders }) > MAX_HEAD_BYTES) {
    throw new TailcastError('HEADERS_TOO_LARGE', 'together they are over 256 KiB');
  }
  const hosts: string[] = [];
  const origins: string[] = [];
  const fetchSites: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length > MAX_HEADER_NAME_BYTES) {
      throw new TailcastError('HEADERS_TOO_LARGE', `a header name is over ${MAX_HEADER_NAME_BYTES} bytes`);
    }
    const value = rawHeaders[index + 1] ?? '';
    if (name.length === 4 && name.toLowerCase() === 'host') hosts.push(value);
    else if (name.length === 6 && name.toLowerCase() === 'origin') origins.push(value);
    else if (name.length === 14 && name.toLowerCase() === 'sec-fetch-site') fetchSites.push(value);
  }
  const [host = ''] = hosts;
  if (hosts.length !== 1)
    throw new TailcastError('HEADER_REFUSED', `${hosts.length} Host headers instead of one`);
  return { host, origins, fetchSites };
}

/** Returns the size of target and header lines in bytes, as counted for {@link MAX_HEAD_BYTES}. */
export function headBytes({ target, rawHeaders }: Pick<InboundRequest, 'target' | 'rawHeaders'>): number {
  let bytes = target.length + (rawHeaders.length / 2) * HEADER_LINE_BYTES;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}

/** First segment of the gateway's own paths; no Kubernetes path starts with it. */
const OWN_SEGMENT = '-';

/**
 * Maximum number of warnings about built-in groups. The tailnet policy may contain any number of group names.
 */
const MAX_WARNINGS = 100;

const NO_NAMES: ReadonlySet<string> = new Set();

/**
 * Returns the decisions of the policy and of the moderation rules about a request.
 * @throws TailcastError `POLICY_REFUSED`
 */
function decideSession(
  policy: Policy,
  request: Parameters<typeof policyClassOf>[0] & { readonly target: Pick<Target, 'query'> },
  { moderation: rules = [], cluster, recording }: Pick<Standee, 'moderation' | 'cluster' | 'recording'>,
): ModeratedSession & ReturnType<typeof applyPolicy> {
  const policyClass = policyClassOf(request);
  const moderated: ModeratedSession =
    rules.length === 0 ? { recording } : moderate(rules, { ...request, policyClass, cluster }, recording);
  const decided = applyPolicy(policy, { ...request, policyClass }, moderated.recording);
  if (moderated.moderation !== undefined && !decided.record)
    throw new TailcastError(
      'POLICY_REFUSED',
      'a moderator must watch your sessions, but they are not recorded',
    );
  return { ...decided, ...moderated };
}

/** @throws TailcastError `POLICY_REFUSED` */
function applyPolicy(
  policy: Policy,
  {
    policyClass,
    upgrade,
    target,
  }: {
    readonly policyClass: PolicyClass | undefined;
    readonly upgrade: boolean;
    readonly target: Pick<Target, 'query'>;
  },
  recording: RecordingPolicy,
): Pick<Admission, 'policyClass' | 'record' | 'event' | 'isBodyRequired'> {
  const recorders = recording.mode !== 'off';
  if (policyClass === undefined) {
    if (upgrade) throw new TailcastError('INTERNAL', 'an upgrade without a class');
    return { policyClass, record: false, event: recorders && recording.events };
  }
  const { action, because } = decide(policy, policyClass, recording);
  if (action === 'refuse') {
    throw new TailcastError(
      'POLICY_REFUSED',
      `${REFUSED_FOR[recording.mode]}the gateway's policy says ${because}: refuse`,
    );
  }
  if (policyClass === 'portForward') refusePorts(policy, target);
  if (action === 'record' && !upgrade && recording.mode === 'failClosed') {
    // the API server rejects an exec without an upgrade, but an aggregated API server might serve it
    throw new TailcastError('POLICY_REFUSED', 'your sessions must be recorded, and only an upgrade can be');
  }
  return {
    policyClass,
    record: recorders && action === 'record',
    event: recorders && (recording.events || action === 'event'),
    ...(action === 'event' && isBodyRequired(policy, policyClass, recording) ? { isBodyRequired: true } : {}),
  };
}

const REFUSED_FOR: Readonly<Record<RecordingPolicy['mode'], string>> = {
  failClosed: 'your sessions must be recorded; ',
  failOpen: 'your grants name a recorder, and this session cannot be recorded; ',
  off: '',
};

/**
 * Checks the ports of a port-forward over the oldest WebSocket protocol, which names the ports in the query. Other
 * protocols name the ports inside the stream.
 */
function refusePorts(policy: Policy, target: Pick<Target, 'query'>): void {
  const ports = queryValues(target.query, 'ports').flatMap((list) => list.split(',').map(Number));
  const port = refusedPort(policy, ports);
  if (port !== undefined) throw new TailcastError('POLICY_REFUSED', `port ${port} may not be forwarded`);
}

/**
 * Returns the headers, with an audit id if the gateway chooses the id. In `auth` mode the headers already contain an
 * audit id.
 */
function auditNames(
  headers: readonly string[],
  { id, isOurs, record }: { readonly id: string; readonly isOurs: boolean; readonly record: boolean },
): Pick<Admission, 'headers' | 'auditId'> {
  if (isOurs) return { headers, auditId: id };
  return record ? nameForAuditLog(headers, id) : { headers, auditId: undefined };
}

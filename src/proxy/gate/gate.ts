/**
 * The one gate every request passes, whatever it came in on: an HTTP/1.1 request, an HTTP/2 stream or an upgrade.
 *
 * In this order, and each step may refuse: method and header limits → canonical target → who is calling → what their
 * grants say → whom they become in the cluster → the header list for the API server → what kind of request it is →
 * whether it is recorded → whether the cluster allows it, where that is asked. What comes out is everything the rest of the path needs; nothing later decides again.
 *
 * Not done here: sending anything, answering the client (the caller turns a thrown error into a `metav1.Status`),
 * opening recorders.
 */
import { TailcastError } from '../../errors.ts';
import {
  buildUpstreamHeaders,
  nameForAuditLog,
  refuseOtherIdentity,
  type UpstreamIdentity,
} from '../../impersonation/apply.ts';
import { refuseBeyond, reservedGroups } from '../../impersonation/group-limit.ts';
import { resolveTarget, type ImpersonationTarget } from '../../impersonation/target.ts';
import { AUDIT_EXTRA } from '../../kube/audit-extras.ts';
import { hasBearerToken } from '../../kube/bearer-token.ts';
import { parseTarget, queryValues, refuseLongTarget, type Target } from '../../kube/canonical-target.ts';
import { headerLines } from '../../kube/header-lines.ts';
import { bearerSubprotocols, type RawHeaders } from '../../kube/headers.ts';
import { classifyRequest, type RequestClass } from '../../kube/interactive.ts';
import { parseRequestInfo, type RequestInfo } from '../../kube/request-info.ts';
import { decideRecording, type RecordingPolicy } from '../../recording/policy.ts';
import { parseKubernetesRules } from '../../tailnet/capabilities.ts';
import type { Identity, IdentitySource, Peer } from '../../tailnet/identity.ts';
import { questionOf, type AccessQuestion, type AccessReviews } from './access-review.ts';
import { isShownByBrowser, refusePages } from './browser-pages.ts';
import { isFollowedLink, refuseForeignPages, type BrowserFields, type PageRules } from './browser-guard.ts';
import {
  decide,
  DEFAULT_POLICY,
  isBodyRequired,
  policyClassOf,
  refusedPort,
  type Policy,
  type PolicyClass,
} from './policy.ts';

/** What a client asked, before anything about it was believed. */
export interface InboundRequest {
  readonly method: string;
  /** The request target exactly as it was sent. */
  readonly target: string;
  /** Flat `[name, value, …]`; of HTTP/2 without pseudo headers, `:authority` mapped to `host`. */
  readonly rawHeaders: readonly string[];
  readonly peer: Peer;
  /** True when the client asks to switch protocols. */
  readonly upgrade: boolean;
}

/** An admitted request: who, what, as whom, and with which headers it goes to the API server. */
export interface Admission {
  /** Unique per request; in the access log and in every event about it. */
  readonly id: string;
  /** The id, where the audit log of the API server has the request under it. */
  readonly auditId: string | undefined;
  readonly startedAtMs: number;
  readonly identity: Identity;
  readonly target: Target;
  readonly info: RequestInfo;
  readonly requestClass: RequestClass;
  /** `undefined` in noauth mode: the client's own credentials go to the API server. */
  readonly impersonation: ImpersonationTarget | undefined;
  /** Flat upstream list with Host, Authorization and Impersonate-*; without connection, upgrade and framing headers. */
  readonly headers: readonly string[];
  readonly recording: RecordingPolicy;
  /** `undefined` for ordinary requests. */
  readonly policyClass: PolicyClass | undefined;
  /** The session is to be recorded, by a recorder that has accepted it before anything runs. */
  readonly record: boolean;
  /** A recorder is told of the request before it goes on. */
  readonly event: boolean;
  /** True if the request is refused when its event would lack the body. */
  readonly isBodyRequired?: boolean;
  /** What the cluster was asked about it, and is asked again while it lasts. */
  readonly review?: AccessQuestion;
  /** A browser shows the answer under the gateway's name: nothing in it may act; see `browser-pages.ts`. */
  readonly shown: boolean;
}

/** Who is calling, for what the gateway serves itself. */
export type Caller = Pick<Admission, 'id' | 'identity' | 'impersonation' | 'recording' | 'review'>;

/** What the gate needs from outside. */
export interface GateDeps {
  /** `auth`: the tailnet identity is impersonated. `noauth`: the client brings its own Kubernetes credentials. */
  readonly mode: 'auth' | 'noauth';
  readonly identities: IdentitySource;
  /** The `Host` of upstream requests, with port if it is not 443. */
  readonly upstreamHost: string;
  /** The gateway's own credential as a whole header value, e.g. `Bearer …`; asked per request, used in auth mode. */
  authorization(): Promise<string | undefined>;
  /** Default: `DEFAULT_POLICY`. */
  readonly policy?: Policy;
  /** Names the caller's node, and each session, to the API server, for its audit log; see `AUDIT_EXTRA`. */
  readonly auditExtras?: boolean;
  /** Groups that may be claimed for a caller, each of which may end with `*`; none: any. */
  readonly claimableGroups?: readonly string[];
  /** Told once of each group of Kubernetes' own, such as `system:masters`, that a grant has given and `claimableGroups` does not name. */
  readonly onReservedGroup?: (group: string, identity: Identity) => void;
  /** Asks the cluster before sessions and requests through proxies; only in auth mode. Default: nothing is asked. */
  readonly reviews?: AccessReviews | undefined;
  /** Token that every request must bring, where anybody on this machine could connect. Default: none. */
  readonly callerToken?: string | undefined;
  /** Names of the gateway that `Host` may give, in lower case and without ports; none: any. */
  readonly hostNames?: ReadonlySet<string>;
  /** Origins of dashboards that bring requests of their pages here through their own server, in lower case. */
  readonly dashboardOrigins?: ReadonlySet<string>;
  readonly nowMs: () => number;
  readonly createId: () => string;
}

export interface Gate {
  /**
   * Lets a request in or throws.
   * @throws TailcastError with the code the client should see: `METHOD_REFUSED`, `HEADER_REFUSED`,
   *   `HEADERS_TOO_LARGE`, `REQUEST_NOT_CANONICAL`, `TOKEN_REQUIRED`, `IDENTITY_*`, `GRANT_MALFORMED`, `POLICY_REFUSED`, …
   */
  admit(request: InboundRequest, signal: AbortSignal): Promise<Admission>;
  /**
   * Lets a request in that the gateway answers itself, or throws: the same limits, the same look at who made a browser
   * send it, the same identity and grants, but nothing about the API server. Pages of dashboards are foreign here.
   * @param page what is asked for is a page that links of other sites may lead to
   * @throws TailcastError as `admit`
   */
  recognise(request: InboundRequest, page: boolean, signal: AbortSignal): Promise<Caller>;
  /**
   * Looks whether who was admitted could be admitted again, as the same user, with no group less and no more to record.
   * @throws TailcastError `ACCESS_ENDED`, or what `admit` would throw about the identity, the grant or the review
   */
  confirm(
    admission: Pick<Admission, 'identity' | 'impersonation' | 'recording' | 'review'>,
    peer: Peer,
    signal: AbortSignal,
  ): Promise<void>;
}

/** Methods of the Kubernetes API. Anything else, CONNECT and TRACE included, is refused. */
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
 * Maximum size of the request target and all header lines together, in bytes. Each line also counts
 * {@link HEADER_LINE_BYTES}. It has space for 4,000 groups. The API server accepts 1 MiB (`MaxHeaderBytes` in
 * `k8s.io/apiserver/pkg/server/secure_serving.go`), but the gateway stores heads before it knows their sender.
 */
export const MAX_HEAD_BYTES = 256 * 1024;
/** Maximum size of a head that is parsed, in bytes. A head between the two limits gets a Status of the gate. */
export const MAX_PARSED_HEAD_BYTES = MAX_HEAD_BYTES + 64 * 1024;
/** Bytes that a header line counts besides its name and value (RFC 9113 §6.5.2): they bound the number of lines. */
export const HEADER_LINE_BYTES = 32;
/** Maximum length of one header name, in bytes; far longer than the names that Kubernetes clients send. */
export const MAX_HEADER_NAME_BYTES = 256;

/** Creates the gate. What an identity's grants mean is worked out once per `Identity` object, not per request. */
export function createGate(deps: GateDeps): Gate {
  const standingOf = createStandings(deps);
  const policy = deps.policy ?? DEFAULT_POLICY;
  const pages: PageRules = {
    hostNames: deps.hostNames ?? NO_NAMES,
    dashboardOrigins: deps.dashboardOrigins ?? NO_NAMES,
  };
  return {
    async admit(request, signal) {
      const startedAtMs = deps.nowMs();
      refuseForeignPages(checkEnvelope(request), pages);
      requireToken(deps.callerToken, request);
      const target = parseTarget(request.target);
      const identity = await deps.identities.whois(request.peer, signal);
      const { impersonation, recording } = standingOf(identity);
      // what is here and what is not is for nobody but those who may be here
      if (target.segments[0] === OWN_SEGMENT) throw new TailcastError('NOT_FOUND');
      const id = deps.createId();
      const headers = buildUpstreamHeaders({
        rawHeaders: request.rawHeaders,
        host: deps.upstreamHost,
        identity: await identityFor(withExtras(impersonation, { id, identity, request, deps }), deps),
        auditId: id,
      });
      const info = parseRequestInfo(request.method, target);
      const requestClass = classifyRequest(info, { upgrade: request.upgrade });
      const { rawHeaders } = request;
      const shown = isShownByBrowser(rawHeaders);
      refusePages({ rawHeaders, shown, requestClass }, policy.programPages);
      const decided = applyPolicy(
        policy,
        { requestClass, info, target, upgrade: request.upgrade },
        recording,
      );
      const review = deps.reviews === undefined ? undefined : questionOf(decided.policyClass, info);
      if (review !== undefined) await allow(deps, review, { identity, impersonation }, signal);
      return {
        id,
        startedAtMs,
        identity,
        target,
        info,
        requestClass,
        impersonation,
        ...auditNames(headers, { id, isOurs: impersonation !== undefined, record: decided.record }),
        recording,
        shown,
        ...decided,
        ...(review === undefined ? {} : { review }),
      };
    },
    async recognise(request, page, signal) {
      const fields = checkEnvelope(request);
      const isLink = page && request.method === 'GET' && isFollowedLink(request.rawHeaders);
      const noDashboards = { ...pages, dashboardOrigins: NO_NAMES };
      refuseForeignPages(isLink ? { ...fields, fetchSites: [] } : fields, noDashboards);
      requireToken(deps.callerToken, request);
      const identity = await deps.identities.whois(request.peer, signal);
      const standing = standingOf(identity);
      if (standing.impersonation !== undefined)
        refuseOtherIdentity(request.rawHeaders, standing.impersonation);
      return { id: deps.createId(), identity, ...standing };
    },
    async confirm(admission, peer, signal) {
      const identity = await deps.identities.whois(peer, signal);
      if (identity !== admission.identity) assertStillGranted(admission, identity, standingOf(identity));
      const { review, impersonation } = admission;
      if (review !== undefined) await allow(deps, review, { identity, impersonation }, signal);
    },
  };
}

/** @throws TailcastError `TOKEN_REQUIRED` */
function requireToken(token: string | undefined, { rawHeaders }: InboundRequest): void {
  if (token !== undefined && !hasBearerToken(rawHeaders, token)) throw new TailcastError('TOKEN_REQUIRED');
}

/** What is worked out once for each identity. What comes out throws as `assess` does, or for groups nobody may claim. */
function createStandings(deps: GateDeps): (identity: Identity) => Standing {
  const standings = new WeakMap<Identity, Standing>();
  const warned = new Set<string>();
  return (identity) => {
    const known = standings.get(identity);
    if (known !== undefined) return known;
    const standing = assess(identity, deps.mode);
    const groups = standing.impersonation?.groups ?? [];
    refuseBeyond(deps.claimableGroups ?? [], groups);
    for (const group of reservedGroups(groups)) {
      const isNamed = deps.claimableGroups?.includes(group) === true;
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

/** What an identity may be and must have recorded: a pure function of its capabilities. */
interface Standing {
  readonly impersonation: ImpersonationTarget | undefined;
  readonly recording: RecordingPolicy;
}

function assess(identity: Identity, mode: GateDeps['mode']): Standing {
  const rules = parseKubernetesRules(identity.capabilities);
  return {
    impersonation: mode === 'auth' ? resolveTarget(identity, rules.impersonation) : undefined,
    recording: decideRecording(rules.recording),
  };
}

/** Checks what needs no meaning, and returns what says who made a browser send it. */
function checkEnvelope({ method, target, rawHeaders }: InboundRequest): BrowserFields {
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

/** Returns the size of the target and the header lines as {@link MAX_HEAD_BYTES} limits it, in bytes. */
export function headBytes({ target, rawHeaders }: Pick<InboundRequest, 'target' | 'rawHeaders'>): number {
  let bytes = target.length + (rawHeaders.length / 2) * HEADER_LINE_BYTES;
  for (const text of rawHeaders) bytes += text.length;
  return bytes;
}

/** First segment of the paths that the gateway serves itself; no Kubernetes path begins with it. */
const OWN_SEGMENT = '-';

/** Names of groups come from the tailnet policy, which nobody here has bounded. */
const MAX_WARNINGS = 100;

const NO_NAMES: ReadonlySet<string> = new Set();

/** @throws TailcastError `POLICY_REFUSED` */
function applyPolicy(
  policy: Policy,
  request: Parameters<typeof policyClassOf>[0] & { readonly target: Pick<Target, 'query'> },
  recording: RecordingPolicy,
): Pick<Admission, 'policyClass' | 'record' | 'event' | 'isBodyRequired'> {
  const policyClass = policyClassOf(request);
  const recorders = recording.mode !== 'off';
  if (policyClass === undefined) {
    if (request.upgrade) throw new TailcastError('INTERNAL', 'an upgrade without a class');
    return { policyClass, record: false, event: recorders && recording.events };
  }
  const { action, because } = decide(policy, policyClass, recording);
  if (action === 'refuse') {
    throw new TailcastError(
      'POLICY_REFUSED',
      `${REFUSED_FOR[recording.mode]}the gateway's policy says ${because}: refuse`,
    );
  }
  if (policyClass === 'portForward') refusePorts(policy, request.target);
  if (action === 'record' && !request.upgrade && recording.mode === 'failClosed') {
    // the API server itself would refuse it, but whoever else serves a path of this kind may not
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

/** The oldest WebSocket port-forward names its ports in the query; all others name them inside the stream. */
function refusePorts(policy: Policy, target: Pick<Target, 'query'>): void {
  const ports = queryValues(target.query, 'ports').flatMap((list) => list.split(',').map(Number));
  const port = refusedPort(policy, ports);
  if (port !== undefined) throw new TailcastError('POLICY_REFUSED', `port ${port} may not be forwarded`);
}

/** In auth mode every request has our audit id among its headers already. */
function auditNames(
  headers: readonly string[],
  { id, isOurs, record }: { readonly id: string; readonly isOurs: boolean; readonly record: boolean },
): Pick<Admission, 'headers' | 'auditId'> {
  if (isOurs) return { headers, auditId: id };
  return record ? nameForAuditLog(headers, id) : { headers, auditId: undefined };
}

function withExtras(
  target: ImpersonationTarget | undefined,
  about: {
    readonly id: string;
    readonly identity: Identity;
    readonly request: InboundRequest;
    readonly deps: Pick<GateDeps, 'auditExtras'>;
  },
): ImpersonationTarget | undefined {
  if (target === undefined || about.deps.auditExtras !== true) return target;
  const session = about.request.upgrade ? ([[AUDIT_EXTRA.session, about.id]] as const) : [];
  const ours = [[AUDIT_EXTRA.node, about.identity.nodeId], ...session] as const;
  return { ...target, extra: [...target.extra, ...ours] };
}

function assertStillGranted(
  admission: Pick<Admission, 'identity' | 'impersonation' | 'recording'>,
  identity: Identity,
  { impersonation, recording }: Standing,
): void {
  const ended = (detail: string): TailcastError => new TailcastError('ACCESS_ENDED', detail);
  if (identity.nodeId !== admission.identity.nodeId) throw ended('the address belongs to another node now');
  const before = admission.impersonation;
  if (impersonation?.user !== before?.user) throw ended('the node belongs to somebody else now');
  const missing = before?.groups.find((group) => impersonation?.groups.includes(group) !== true);
  if (missing !== undefined) throw ended(`the grant of ${missing} is gone`);
  if (recording.mode === 'failClosed' && admission.recording.mode !== 'failClosed') {
    throw ended('sessions must be recorded now');
  }
}

async function identityFor(
  target: ImpersonationTarget | undefined,
  deps: Pick<GateDeps, 'authorization'>,
): Promise<UpstreamIdentity> {
  if (target === undefined) return { mode: 'noauth' };
  return { mode: 'auth', target, authorization: await deps.authorization() };
}

/**
 * Returns the texts of the `Warning: 299` headers for a response of the API server.
 *
 * @param status of the response
 */
export function responseWarnings(
  { impersonation, headers }: Pick<Admission, 'impersonation' | 'headers'>,
  status: number,
): readonly string[] {
  const isAnonymous = status === UNAUTHORIZED && impersonation === undefined && !hasCredential(headers);
  return isAnonymous ? NO_CREDENTIAL : NO_WARNINGS;
}

const UNAUTHORIZED = 401;
const NO_WARNINGS: readonly string[] = [];
/** A TLS connection ends at the gateway, so a client certificate never reaches the API server. */
const NO_CREDENTIAL: readonly string[] = [
  'the request has no Authorization header; client certificates do not pass through this gateway: use a token or an exec plugin in the kubeconfig',
];

function hasCredential(headers: RawHeaders): boolean {
  return (
    headerLines(headers, 'authorization').some((value) => value !== '') ||
    headerLines(headers, 'sec-websocket-protocol').some((value) => bearerSubprotocols(value).length > 0)
  );
}

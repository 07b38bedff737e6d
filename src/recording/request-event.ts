/**
 * API request events: before the gateway forwards a request, it sends an event to a recorder. The event contains the
 * caller and the request.
 *
 * The gateway tries the recorders in order until one stores the event. If none does and recording is enforced, the
 * gateway refuses the request. If recording is not enforced, it logs the failure and forwards the request.
 */
import { setImmediate } from 'node:timers/promises';
import { errorText, TailcastError } from '../errors.ts';
import { queryValues, type Target } from '../kube/canonical-target.ts';
import type { RequestInfo } from '../kube/request-info.ts';
import type { Events } from '../observe/events.ts';
import {
  createSecretWork,
  replaceSecrets,
  replaceSecretWords,
  SECRET,
  TooManySecretsError,
  type SecretWork,
} from '../secrets.ts';
import { callerName, type Identity } from '../tailnet/identity.ts';
import { encodeApiRequestEvent, type ApiRequestEvent } from '../wire/recorder-api/api-event.ts';
import { createLimiter } from '../async/limiter.ts';
import { withTimeout } from '../async/with-timeout.ts';
import type { EventPoster } from './event-poster.ts';
import { findRecorders, type NamedRecorders, type RecorderDirectory } from './find-recorders.ts';
import type { RecordingPolicy } from './policy.ts';
import { keptParameters } from './kept-fields.ts';
import { redactBody } from './redact-body.ts';

/** A request that may cause an event. */
export interface ApiRequest {
  readonly admission: {
    readonly id: string;
    readonly identity: Identity;
    readonly target: Target;
    readonly info: RequestInfo;
    readonly recording: RecordingPolicy;
    /** True if the request causes an event. Default: `recording.events`. */
    readonly event?: boolean;
    /** True if the request must be refused when its event cannot contain the body. */
    readonly isBodyRequired?: boolean;
    /** Cluster of the request, if the gateway serves several clusters. */
    readonly cluster?: { readonly name: string };
    /** Granted access request that allows this API request, if it needs one. */
    readonly elevation?: { readonly id: string; readonly approvers: readonly string[] };
  };
  readonly method: string;
  readonly userAgent: string;
  /** The body, or its first bytes. */
  readonly body: Uint8Array;
  readonly bodyTruncated: boolean;
}

export interface RequestEventsDeps extends RecorderDirectory {
  readonly poster: EventPoster;
  readonly events: Pick<Events, 'apiEventFailed'>;
  readonly unixMs: () => number;
  readonly limits?: Partial<RequestEventLimits>;
}

export interface RequestEventLimits {
  /** Maximum number of bytes of a body in an event. */
  readonly maxBodyBytes: number;
  /** Timeout for all recorders in total. */
  readonly timeoutMs: number;
}

export const REQUEST_EVENT_LIMITS: RequestEventLimits = { maxBodyBytes: 256 * 1024, timeoutMs: 15_000 };

/** Units of work after which other requests continue; about 2 ms. */
const UNITS_PER_TURN = 400_000;

export type RequestEvents = ReturnType<typeof createRequestEvents>;

export function createRequestEvents(deps: RequestEventsDeps) {
  const limits: RequestEventLimits = { ...REQUEST_EVENT_LIMITS, ...deps.limits };
  const never = new AbortController().signal;
  const post = (recording: NamedRecorders, line: string): Promise<void> =>
    withTimeout(limits.timeoutMs, 'telling a recorder', never, (signal) =>
      deliver(deps, recording, line, signal),
    );
  const describe = createDescriber(deps, limits.maxBodyBytes);
  return {
    /**
     * Sends an event that is not about an API request, such as a step of an access request. Resolves immediately if the
     * grants name no recorder.
     * @throws TailcastError `RECORDING_REQUIRED` if no recorder stored it
     */
    async send(recording: RecordingPolicy, line: string): Promise<void> {
      if (recording.mode === 'off') return;
      await post(recording, line).catch((error: unknown) => {
        throw new TailcastError('RECORDING_REQUIRED', errorText(error), { cause: error });
      });
    },
    /**
     * Sends the event of one request, if the request causes one.
     * @throws TailcastError `RECORDING_REQUIRED` if recording is enforced and no recorder stored the event;
     * `POLICY_REFUSED` if the event must contain the body and the body is unreadable
     */
    async record(request: ApiRequest): Promise<void> {
      const { recording, id, identity, event, isBodyRequired } = request.admission;
      if (recording.mode === 'off' || !(event ?? recording.events)) return;
      const user = callerName(identity);
      const described = await describe(request, user);
      if (isBodyRequired === true && described.bodyUnread !== undefined) {
        throw new TailcastError(
          'POLICY_REFUSED',
          `your sessions must be recorded, and the body of this request cannot be read: ${described.bodyUnread}; ` +
            `send it as JSON of at most ${limits.maxBodyBytes / 1024} KiB`,
        );
      }
      try {
        await post(recording, encodeApiRequestEvent(described));
      } catch (error) {
        const reason = errorText(error);
        deps.events.apiEventFailed({ id, mode: recording.mode, reason, user });
        if (recording.mode === 'failClosed') {
          throw new TailcastError('RECORDING_REQUIRED', reason, { cause: error });
        }
      }
    },
  };
}

/**
 * Returns a function that describes one request at a time. The function alternates between users, and yields to the
 * event loop between requests.
 */
function createDescriber({ unixMs }: Pick<RequestEventsDeps, 'unixMs'>, maxBodyBytes: number) {
  const limiter = createLimiter({ maxActive: 1 });
  let units = 0;
  return (request: ApiRequest, user: string): Promise<ApiRequestEvent> =>
    limiter.run(
      async () => {
        const work = createSecretWork();
        const { left } = work;
        try {
          return eventOf(request, unixMs(), maxBodyBytes, work);
        } finally {
          units += left - Math.max(0, work.left);
          if (units > UNITS_PER_TURN) {
            units = 0;
            await setImmediate();
          }
        }
      },
      undefined,
      user,
    );
}

/** Query parameters that contain the words of a command: for the API server, and for a kubelet. */
const COMMAND_PARAMETERS = ['command', 'cmd'];

/** Returns the query without possible secrets. A query without secrets is not changed. */
function withoutSecrets(
  query: Target['query'],
  kept: ReadonlySet<string> | 'all',
  work: SecretWork,
): Target['query'] {
  const commands = new Map(
    COMMAND_PARAMETERS.map((name) => [name, replaceSecretWords(queryValues(query, name), work).values()]),
  );
  const shown = query.map(([name, value]): [string, string] => {
    const word = commands.get(name)?.next().value;
    if (word !== undefined) return [name, word];
    const isSecret = kept !== 'all' && !kept.has(name);
    return [
      name,
      isSecret || replaceSecrets(`${name}=${value}`, work) !== `${name}=${value}` ? SECRET : value,
    ];
  });
  return shown.every(([, value], at) => value === query[at]?.[1]) ? query : shown;
}

/** @throws TailcastError `POLICY_REFUSED` */
function queryOfEvent(...[query, kept, work]: Parameters<typeof withoutSecrets>): Target['query'] {
  try {
    return withoutSecrets(query, kept, work);
  } catch (error) {
    if (!(error instanceof TooManySecretsError)) throw error;
    throw new TailcastError('POLICY_REFUSED', `the query of this request has ${error.message}`);
  }
}

function encodeQuery(query: Target['query']): string {
  return query.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('&');
}

function valuesByName(query: Target['query']): ReadonlyMap<string, readonly string[]> {
  const pairs = Map.groupBy(query, ([name]) => name);
  return new Map([...pairs].map(([name, of]) => [name, of.map(([, value]) => value)]));
}

async function deliver(
  deps: RequestEventsDeps,
  recording: NamedRecorders,
  line: string,
  signal: AbortSignal,
): Promise<void> {
  const recorders = await findRecorders(recording, deps, signal);
  if (recorders.length === 0) throw new Error('no recorder is named');
  const failures: string[] = [];
  for (const address of deps.poster.order(recorders)) {
    try {
      return await deps.poster.post(address, line, signal);
    } catch (error) {
      signal.throwIfAborted();
      failures.push(`${address}: ${errorText(error)}`);
    }
  }
  throw new Error(failures.join('; '));
}

/** @throws TailcastError `POLICY_REFUSED` if the query needs too much work */
function eventOf(
  request: ApiRequest,
  unixMs: number,
  maxBodyBytes: number,
  work: SecretWork,
): ApiRequestEvent {
  const { target, info, identity, elevation, cluster } = request.admission;
  const begin = request.body.subarray(0, maxBodyBytes);
  const truncated = request.bodyTruncated || begin.length < request.body.length;
  const kept = keptParameters(info);
  const query = kept === undefined ? undefined : queryOfEvent(target.query, kept, work);
  // The query comes first: a request whose query exceeds the work limit is refused, but a body that exceeds the limit
  // is only omitted.
  const { body, unread } = redactBody(info, begin, truncated, work);
  return {
    timestamp: Math.floor(unixMs / 1000),
    userAgent: request.userAgent,
    request: {
      method: request.method,
      path:
        query === undefined
          ? target.rawPath
          : query === target.query
            ? target.raw
            : `${target.rawPath}?${encodeQuery(query)}`,
      body,
      queryParameters: valuesByName(query ?? []),
    },
    kubernetes: {
      IsResourceRequest: info.isResourceRequest,
      Path: info.path,
      Verb: info.verb,
      APIPrefix: info.apiPrefix,
      APIGroup: info.apiGroup,
      APIVersion: info.apiVersion,
      Namespace: info.namespace,
      Resource: info.resource,
      Subresource: info.subresource,
      Name: info.name,
      Parts: info.isResourceRequest ? info.parts : null,
      FieldSelector: info.fieldSelector,
      LabelSelector: info.labelSelector,
    },
    source: {
      node: identity.nodeName,
      nodeID: identity.nodeId,
      ...(identity.kind === 'tagged'
        ? { nodeTags: identity.tags }
        : { nodeUserID: identity.userId, nodeUser: identity.login }),
    },
    // The complete body may be longer, because bytes that were not read are not counted.
    ...(truncated || body.length < Math.min(1, begin.length)
      ? { bodyTruncatedFromBytes: request.body.length }
      : {}),
    ...(unread === undefined ? {} : { bodyUnread: unread }),
    ...(cluster === undefined ? {} : { cluster: cluster.name }),
    ...(elevation === undefined ? {} : { access: { request: elevation.id, approvers: elevation.approvers } }),
  };
}

/**
 * Opens uploads: for a new session, for a session that has lost its recorder, and for a late delivery.
 *
 * `recorder-candidates.ts` determines the order of the recorders. `recorder-open.ts` opens an upload at one
 * recorder. The default limits follow section 1.3 of the reference recorder protocol.
 */
import { pause } from '../async/pause.ts';
import { errorText, TailcastError } from '../errors.ts';
import { withFound, type NamedRecorders } from './find-recorders.ts';
import type { Logger } from '../observe/logger.ts';
import { withTimeout } from '../async/with-timeout.ts';
import type { Journals } from './journal/journals.ts';
import { LateDeliveries, type LateLimits } from './late-deliveries.ts';
import type { LateEvents } from './late-end.ts';
import { createCandidates, type RecorderCandidates, type RecorderNode } from './recorder-candidates.ts';
import type { DialRecorder, RecorderConnection, SessionIntent, UploadIntent } from './recorder-connection.ts';
import { MAX_NEIGHBOURS } from '../wire/recorder-api/upload-headers.ts';
import { openUploadAt, type OpenContext } from './recorder-open.ts';
import { BoundedMap } from '../bounded-map.ts';
import { DEFAULT_PENDING_BYTES, type MoveIntent, RecorderUpload } from './recorder-upload.ts';
import { createUploadMemory } from './delivery-window.ts';

/** Limits of the recorder client; all times are in milliseconds. */
export const RECORDER_CLIENT_LIMITS = {
  /** Timeout of one connection attempt. */
  dialTimeoutMs: 5_000,
  /**
   * Timeout of each response before the upload starts: for `HEAD /v2/record`, for the POST or GET, and for
   * `100 Continue` of v1.
   */
  probeTimeoutMs: 10_000,
  /** Timeout of all attempts for one session in total. */
  openTimeoutMs: 30_000,
  /** Maximum time between two acknowledgements. */
  ackWindowMs: 30_000,
  /** Time after a failure during which a recorder is tried last and with shorter timeouts, in milliseconds. */
  suspectMs: 15_000,
  /** Timeout of each step at a recorder that failed recently. */
  suspectTimeoutMs: 1_000,
  /** Maximum time of the search for another recorder, after a session has lost its recorder. */
  moveTimeoutMs: 10_000,
  moveRetryMs: 250,
  maxPendingBytes: DEFAULT_PENDING_BYTES,
  stallWindowMs: 30_000,
  finishTimeoutMs: 60_000,
  maxFruitlessMoves: 5,
};
export type RecorderClientLimits = Readonly<typeof RECORDER_CLIENT_LIMITS>;

/** Maximum number of recorders that are known to accept upgrades. The oldest entry is removed first. */
const MAX_KNOWN_UPGRADES = 256;

export interface RecorderClientDeps {
  readonly dial: DialRecorder;
  readonly nowMs: () => number;
  readonly log: Logger;
  /** Returns the id of the node with the given address. By default, each address is a separate recorder. */
  readonly nodeOf?: (address: string) => string;
  readonly limits?: Partial<RecorderClientLimits>;
  readonly lateLimits?: Partial<LateLimits>;
  /**
   * Journals that keep unacknowledged output on disk. Without journals, unacknowledged output is lost when
   * the process exits.
   */
  readonly journals?: Journals | undefined;
}

/** A session that needs a recorder. */
export interface OpenRequest {
  /** Addresses (`ip:port`) in order of preference. */
  readonly recorders: readonly string[];
  /**
   * Addresses and tags of recorders in the grants. The journal stores them, so that another process can deliver the
   * tail. Default: the addresses in {@link recorders}, and no tags.
   */
  readonly named?: NamedRecorders;
  /**
   * Returns the current addresses of the named recorders, because an address may belong to another node later. Called
   * before each attempt to continue the session, and before each late delivery. Default: `recorders`.
   */
  readonly find?: ((named: NamedRecorders, signal: AbortSignal) => Promise<readonly string[]>) | undefined;
  readonly sessionId: string;
  /** Log fields of the session. Sessions with the same `user` share the limits of one user. */
  readonly about?: Readonly<Record<string, string>>;
  /** Called when the upload continues after a lost connection, at the same recorder or at another recorder. */
  readonly moved?: (address: string, reason: Error) => void;
  /**
   * Callbacks for the unacknowledged tail of the recording if no recorder continues the session. If absent, the tail
   * does not become a late delivery and is lost.
   */
  readonly late?: LateEvents;
}

/** Client of all recorders of a gateway process. */
export type RecorderClient = ReturnType<typeof createRecorderClient>;

export function createRecorderClient(deps: RecorderClientDeps) {
  const limits: RecorderClientLimits = { ...RECORDER_CLIENT_LIMITS, ...deps.limits };
  const candidates = createCandidates({
    nodeOf: deps.nodeOf ?? ((address) => address),
    nowMs: deps.nowMs,
    suspectMs: limits.suspectMs,
  });
  const closing = new AbortController();
  const context: Context = {
    ...deps,
    upgrades: new BoundedMap(MAX_KNOWN_UPGRADES),
    limits,
    candidates,
    closing: closing.signal,
  };
  const late = new LateDeliveries({
    open: (intent, recorders, signal) =>
      withTimeout(limits.openTimeoutMs, 'finding a recorder', signal, (given) =>
        tryInOrder(context, candidates.order(recorders), intent, given, []),
      ),
    nowMs: deps.nowMs,
    random: Math.random,
    log: deps.log,
    limits: { stallMs: limits.finishTimeoutMs, ...deps.lateLimits },
  });
  const { journals } = deps;
  const memory = createUploadMemory();
  journals?.start(late);
  return {
    /** Late deliveries of this process. */
    late,
    /**
     * Stops all searches. Closes the client. Unacknowledged output remains on disk if there is a journal, and
     * is dropped otherwise.
     */
    close(): void {
      closing.abort(new Error('the gateway has ended'));
      late.close();
    },
    /**
     * Opens an upload at the first recorder that accepts it. No data of the session is sent yet, so a refused
     * session leaves no recording.
     * @param signal if it aborts, the search for a recorder stops. An open upload continues
     * @throws TailcastError `RECORDER_UNAVAILABLE` with the reason of each recorder
     */
    async open(request: OpenRequest, signal: AbortSignal): Promise<RecorderUpload> {
      if (request.recorders.length === 0) {
        throw new TailcastError('RECORDER_UNAVAILABLE', 'no recorder is named');
      }
      const failures: string[] = [];
      const { recorders, sessionId } = request;
      const begin = { offset: 0, part: 1, preamble: new Uint8Array(), frames: 0 };
      const intent = { sessionId, ...begin, recorders, orders: true };
      const connection = await withTimeout(limits.openTimeoutMs, 'finding a recorder', signal, (given) =>
        tryInOrder(context, candidates.order(request.recorders), intent, given, failures),
      ).catch((error: unknown) => {
        signal.throwIfAborted();
        const tried = failures.length === 0 ? errorText(error) : failures.join('; ');
        throw new TailcastError('RECORDER_UNAVAILABLE', tried, { cause: error });
      });
      const { moved, late: events, about = {} } = request;
      const { user = '' } = about;
      const named = withFound(request.named ?? { recorders, recorderTags: [] }, recorders);
      const find = async (during: AbortSignal): Promise<readonly string[]> =>
        (await request.find?.(named, during)) ?? recorders;
      const journal =
        events === undefined || !connection.resumable
          ? undefined
          : journals?.begin({ sessionId, ...named, about });
      return new RecorderUpload(connection, limits, {
        move: (intended, from) => moveSession(context, { sessionId, recorders, find }, intended, from),
        ...(moved === undefined ? {} : { moved }),
        ...(events === undefined
          ? {}
          : {
              left: (rest) => {
                const end = journal === undefined ? undefined : journals?.leave(journal, events, rest);
                return late.take({ sessionId, user, recorders, find, rest, events, journal: end });
              },
            }),
        memory,
        user,
        ...(journal === undefined ? {} : { journal }),
      });
    },
  };
}

interface Context extends OpenContext {
  readonly limits: RecorderClientLimits;
  readonly candidates: RecorderCandidates;
  /** Signal that aborts all searches for another recorder when this recorder client is closed. */
  readonly closing: AbortSignal;
}

async function tryInOrder(
  context: Context,
  nodes: readonly RecorderNode[],
  intent: SessionIntent,
  signal: AbortSignal,
  failures: string[],
): Promise<RecorderConnection> {
  for (const node of nodes) {
    try {
      const connection = await openNode(context, node, intent, signal);
      if (signal.aborted) connection.destroy();
      signal.throwIfAborted();
      context.candidates.succeeded(node.key);
      return connection;
    } catch (error) {
      signal.throwIfAborted();
      context.candidates.failed(node.key);
      failures.push(`${node.addresses.join(', ')}: ${errorText(error)}`);
      // Logs the first failure of a recorder as a warning, and repeated failures as debug messages.
      const level = node.suspect ? 'debug' : 'warn';
      context.log[level]({ recorder: node.addresses, reason: errorText(error) }, 'recorder did not accept');
    }
  }
  throw new Error(failures.join('; '));
}

async function openNode(
  context: Context,
  node: RecorderNode,
  intent: SessionIntent,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  const { limits } = context;
  const { ackWindowMs, finishTimeoutMs, maxPendingBytes } = limits;
  const opening = {
    dialTimeoutMs: node.suspect ? limits.suspectTimeoutMs : limits.dialTimeoutMs,
    probeTimeoutMs: node.suspect ? limits.suspectTimeoutMs : limits.probeTimeoutMs,
    ackWindowMs,
    finishTimeoutMs,
    waits: maxPendingBytes === 0,
  };
  return openUploadAt(context, node, opening, withNeighbours(intent, node), signal);
}

/**
 * Adds the addresses of the session's other recorders to the upload. Each stored part then names the
 * recorders that may have the other parts.
 */
function withNeighbours({ recorders, before, ...intent }: SessionIntent, node: RecorderNode): UploadIntent {
  const after = recorders.filter((address) => !node.addresses.includes(address)).slice(0, MAX_NEIGHBOURS);
  if (before === undefined && after.length === 0) return intent;
  return { ...intent, neighbours: { ...(before === undefined ? {} : { before }), after } };
}

/**
 * Searches for a recorder that continues a session. Tries all recorders repeatedly, because a recorder is
 * unavailable for some seconds while it restarts.
 */
async function moveSession(
  context: Context,
  session: Pick<OpenRequest, 'sessionId' | 'recorders'> & {
    /** Returns the current addresses of the recorders. */
    readonly find: (signal: AbortSignal) => Promise<readonly string[]>;
  },
  moved: MoveIntent,
  from: RecorderConnection,
): Promise<RecorderConnection> {
  const { limits, candidates } = context;
  const { sessionId } = session;
  const intent = { sessionId, ...moved, before: from.address, orders: true };
  context.log.warn(
    { sessionId, recorder: from.address },
    'recorder lost; looking for another one that continues the session',
  );
  for (const node of candidates.order(session.recorders)) {
    if (node.addresses.includes(from.address)) candidates.failed(node.key);
  }
  return withTimeout(limits.moveTimeoutMs, 'finding another recorder', context.closing, async (signal) => {
    for (;;) {
      try {
        const recorders = await session.find(signal);
        return await tryInOrder(context, candidates.order(recorders), { ...intent, recorders }, signal, []);
      } catch (error) {
        signal.throwIfAborted();
        context.log.debug({ reason: errorText(error) }, 'no recorder took the session over yet');
      }
      await pause(limits.moveRetryMs, signal);
      signal.throwIfAborted();
    }
  });
}

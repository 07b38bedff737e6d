/**
 * Sends a request of a viewer to recorders, one after another, until a recorder confirms that it applies the rights of
 * this viewer. Opens connections to recorders in the same way as for uploads. Each request has its own connection.
 */
import type { Duplex } from 'node:stream';
import { errorText, TailcastError } from '../errors.ts';
import { dialUpgrade, type UpgradeAnswer } from '../proxy/session/dial.ts';
import type { Target } from '../kube/canonical-target.ts';
import { onlyLine } from '../kube/headers.ts';
import { withTimeout } from '../async/with-timeout.ts';
import { createCandidates, type RecorderNode } from '../recording/recorder-candidates.ts';
import type { DialRecorder } from '../recording/recorder-connection.ts';
import { dialNode } from '../recording/recorder-dial.ts';
import {
  encodeNamedViewer,
  VIEWER_ACCEPTED_HEADER,
  type NamedViewer,
} from '../wire/recorder-api/named-viewer.ts';

const CALL_LIMITS = {
  /** Timeout of one connection attempt. */
  dialTimeoutMs: 5_000,
  /** Timeout from the request to the head of the response. */
  answerTimeoutMs: 10_000,
  /** Shorter timeout for recorders that failed recently. It applies for `suspectMs` after a failure. */
  suspectTimeoutMs: 1_000,
  suspectMs: 15_000,
  /** Timeout of all attempts for one request. */
  totalTimeoutMs: 20_000,
};
export type CallLimits = Readonly<typeof CALL_LIMITS>;

export interface RecorderCallDeps {
  readonly dial: DialRecorder;
  readonly nodeOf: (address: string) => string;
  readonly nowMs: () => number;
  readonly limits?: Partial<CallLimits>;
}

/**
 * Sends one request to one recorder.
 * @param socket connection to the recorder; closed if the attempt fails or takes too long
 * @throws any error; the next recorder is then tried. After `PORTAL_UNTRUSTED`, the recorder is not marked as
 * failed
 */
export type Attempt<T> = (socket: Duplex, signal: AbortSignal) => Promise<T>;

export interface LiveQuestion {
  /** Addresses (`ip:port`) of the permitted recorders, in order of preference. */
  readonly recorders: readonly string[];
  readonly viewer: NamedViewer;
  readonly target: string;
  /** The client's `Sec-WebSocket-Key`. */
  readonly key: string;
  readonly subprotocols: readonly string[];
}

export type RecorderCalls = ReturnType<typeof createRecorderCalls>;

/**
 * Value of `Host` in requests to recorders; every recorder accepts this value. A recorder checks the host only to
 * refuse foreign web pages, and the gateway refuses these itself.
 */
const HOST = 'localhost';

export function createRecorderCalls(deps: RecorderCallDeps) {
  const limits: CallLimits = { ...CALL_LIMITS, ...deps.limits };
  const { nodeOf, nowMs } = deps;
  const candidates = createCandidates({ nodeOf, nowMs, suspectMs: limits.suspectMs });

  async function first<T>(
    recorders: readonly string[],
    signal: AbortSignal,
    attempt: Attempt<T>,
  ): Promise<T> {
    const failures: string[] = [];
    let untrusted = false;
    const tryNode = async (node: RecorderNode, given: AbortSignal): Promise<T> => {
      const dialMs = node.suspect ? limits.suspectTimeoutMs : limits.dialTimeoutMs;
      const answerMs = node.suspect ? limits.suspectTimeoutMs : limits.answerTimeoutMs;
      const { socket } = await dialNode(node.addresses, deps.dial, dialMs, given);
      const result = await withTimeout(answerMs, 'the response of the recorder', given, (bounded) =>
        attempt(socket, bounded),
      ).catch((error: unknown) => {
        socket.destroy();
        throw error;
      });
      candidates.succeeded(node.key);
      return result;
    };
    const tryAll = async (given: AbortSignal): Promise<T> => {
      for (const node of candidates.order(recorders)) {
        try {
          return await tryNode(node, given);
        } catch (error) {
          given.throwIfAborted();
          const refused = error instanceof TailcastError && error.code === 'PORTAL_UNTRUSTED';
          untrusted ||= refused;
          if (!refused) candidates.failed(node.key);
          failures.push(`${node.addresses.join(', ')}: ${reasonOf(error)}`);
        }
      }
      throw new Error(failures.join('; '));
    };
    try {
      return await withTimeout(limits.totalTimeoutMs, 'asking the recorders', signal, tryAll);
    } catch (error) {
      if (untrusted) throw new TailcastError('PORTAL_UNTRUSTED', undefined, { cause: error });
      throw new TailcastError('RECORDER_UNAVAILABLE', errorText(error), { cause: error });
    }
  }

  return {
    /**
     * Returns the result of the first successful attempt. `signal` aborts only the attempts; it does not affect a
     * returned result.
     * @param recorders as in {@link LiveQuestion}
     * @throws TailcastError `RECORDER_UNAVAILABLE`, `PORTAL_UNTRUSTED`
     */
    first,
    /** Requests a WebSocket. Throws the same errors as {@link first}. */
    follow: (question: LiveQuestion, signal: AbortSignal): Promise<UpgradeAnswer> =>
      first(question.recorders, signal, async (socket, given) => {
        const answer = await dialUpgrade(
          {
            connect: () => Promise.resolve(socket),
            method: 'GET',
            target: question.target,
            headers: [
              ...Object.entries(fieldsFor(question.viewer)).flat(),
              'Sec-WebSocket-Version',
              '13',
              'Sec-WebSocket-Key',
              question.key,
              ...question.subprotocols.flatMap((name) => ['Sec-WebSocket-Protocol', name]),
            ],
            protocol: 'websocket',
            subprotocol: { header: 'sec-websocket-protocol', offered: question.subprotocols },
            responseTimeoutMs: limits.answerTimeoutMs,
          },
          given,
        );
        // a refusal contains no recording data, so the recorder need not confirm that it applied the viewer's rights
        if (answer.kind === 'switched' && !isAccepted(answer.rawHeaders, question.viewer))
          throw new TailcastError('PORTAL_UNTRUSTED');
        return answer;
      }),
  };
}

/** Returns the detail without the message: messages of `dialUpgrade` say "the API server", but this is a recorder. */
function reasonOf(error: unknown): string {
  return error instanceof TailcastError ? (error.detail ?? error.message) : errorText(error);
}

/**
 * Returns the headers of every request to a recorder. None of these headers comes from the client's request.
 * @throws TailcastError `IDENTITY_MALFORMED`
 */
export function fieldsFor(viewer: NamedViewer): Readonly<Record<string, string>> {
  const named = encodeNamedViewer(viewer);
  if (named === undefined) throw new TailcastError('IDENTITY_MALFORMED', 'it cannot be sent to a recorder');
  const headers: Record<string, string> = { Host: HOST };
  for (let index = 0; index < named.length; index += 2) headers[named[index] ?? ''] = named[index + 1] ?? '';
  return headers;
}

/**
 * Returns the path at the recorder for a target below `/-/recordings`. The path is built from parsed values,
 * never from the text that the client sent.
 */
export function recorderPath({ segments }: Pick<Target, 'segments'>): string {
  return `/${segments.slice(2).map(encodeURIComponent).join('/')}`;
}

/**
 * True if a response header confirms that the recorder applied the rights of this viewer. Without the header, the
 * recorder may have applied the gateway's own rights.
 */
export function isAccepted(rawHeaders: readonly string[], viewer: NamedViewer): boolean {
  return onlyLine(rawHeaders, VIEWER_ACCEPTED_HEADER) === viewer.nodeId;
}

/**
 * Asks recorders on behalf of somebody, one after another: over the same roads as uploads take, until one answers that takes
 * the gateway's word for who is looking. One connection for each question.
 */
import type { Duplex } from 'node:stream';
import { errorText, TailcastError } from '../errors.ts';
import { dialUpgrade, type UpgradeAnswer } from '../proxy/session/dial.ts';
import type { Target } from '../kube/canonical-target.ts';
import { onlyLine } from '../kube/header-lines.ts';
import { within } from '../async/within.ts';
import { createCandidates, type RecorderNode } from '../recording/recorder-candidates.ts';
import type { DialRecorder } from '../recording/recorder-connection.ts';
import { dialNode } from '../recording/recorder-dial.ts';
import {
  encodeNamedViewer,
  VIEWER_ACCEPTED_HEADER,
  type NamedViewer,
} from '../wire/recorder-api/named-viewer.ts';

export interface CallLimits {
  /** One connection attempt. */
  readonly dialTimeoutMs: number;
  /** From the question to the head of the answer. */
  readonly answerTimeoutMs: number;
  /** Attempts at a recorder that failed a moment ago, and how long that moment is. */
  readonly suspectTimeoutMs: number;
  readonly suspectMs: number;
  /** All attempts for one question together. */
  readonly totalTimeoutMs: number;
}

const CALL_LIMITS: CallLimits = {
  dialTimeoutMs: 5_000,
  answerTimeoutMs: 10_000,
  suspectTimeoutMs: 1_000,
  suspectMs: 15_000,
  totalTimeoutMs: 20_000,
};

export interface RecorderCallDeps {
  readonly dial: DialRecorder;
  readonly nodeOf: (address: string) => string;
  readonly nowMs: () => number;
  readonly limits?: Partial<CallLimits>;
}

/**
 * Sends one request to one recorder.
 * @param socket connected to it; closed if the attempt fails or takes too long
 * @throws Error: the next recorder is asked. Code `PORTAL_UNTRUSTED`: the recorder is not treated as failed
 */
export type Attempt<T> = (socket: Duplex, signal: AbortSignal) => Promise<T>;

export interface LiveQuestion {
  /** `ip:port` of the recorders that may be asked, in order of preference. */
  readonly recorders: readonly string[];
  readonly viewer: NamedViewer;
  readonly target: string;
  /** The client's `Sec-WebSocket-Key`. */
  readonly key: string;
  readonly subprotocols: readonly string[];
}

export interface RecorderCalls {
  /**
   * The first attempt that succeeds. `signal` ends the search and not what was found.
   * @param recorders as in {@link LiveQuestion}
   * @throws TailcastError `RECORDER_UNAVAILABLE`, `PORTAL_UNTRUSTED`
   */
  first<T>(recorders: readonly string[], signal: AbortSignal, attempt: Attempt<T>): Promise<T>;
  /** Asks for a WebSocket. Throws like {@link first}. */
  follow(question: LiveQuestion, signal: AbortSignal): Promise<UpgradeAnswer>;
}

/** Always a name of a recorder: its guard is for browsers that come to it, and this one stands in front of us. */
const HOST = 'localhost';

export function createRecorderCalls(deps: RecorderCallDeps): RecorderCalls {
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
      const result = await within(answerMs, 'the answer of the recorder', given, (bounded) =>
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
      return await within(limits.totalTimeoutMs, 'asking the recorders', signal, tryAll);
    } catch (error) {
      if (untrusted) throw new TailcastError('PORTAL_UNTRUSTED', undefined, { cause: error });
      throw new TailcastError('RECORDER_UNAVAILABLE', errorText(error), { cause: error });
    }
  }

  return {
    first,
    follow: (question, signal) =>
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
        // a refusal gives nothing away, and the reason of one is the recorder's
        if (answer.kind === 'switched' && !isAccepted(answer.rawHeaders, question.viewer))
          throw new TailcastError('PORTAL_UNTRUSTED');
        return answer;
      }),
  };
}

/** `dialUpgrade` words its errors for the API server; only their detail is true here. */
function reasonOf(error: unknown): string {
  return error instanceof TailcastError ? (error.detail ?? error.message) : errorText(error);
}

/**
 * Returns the headers of every request to a recorder. None of them comes from the client's request.
 * @throws TailcastError `IDENTITY_MALFORMED`
 */
export function fieldsFor(viewer: NamedViewer): Readonly<Record<string, string>> {
  const named = encodeNamedViewer(viewer);
  if (named === undefined) throw new TailcastError('IDENTITY_MALFORMED', 'it cannot be told to a recorder');
  const headers: Record<string, string> = { Host: HOST };
  for (let index = 0; index < named.length; index += 2) headers[named[index] ?? ''] = named[index + 1] ?? '';
  return headers;
}

/** Returns the path at the recorder for a target below `/-/recordings`. It contains nothing of the client's spelling. */
export function recorderPath({ segments }: Pick<Target, 'segments'>): string {
  return `/${segments.slice(2).map(encodeURIComponent).join('/')}`;
}

/** A recorder that did not say so may have taken us for the viewer, who may see something else. */
export function isAccepted(rawHeaders: readonly string[], viewer: NamedViewer): boolean {
  return onlyLine(rawHeaders, VIEWER_ACCEPTED_HEADER) === viewer.nodeId;
}

/**
 * Asks a recorder on behalf of somebody: over the same roads as uploads take, at the first recorder that answers and that
 * takes the gateway's word for who is looking. One connection for each question; Node's HTTP client reads the answers.
 */
import { request, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { errorText, TailcastError } from '../errors.ts';
import { dialUpgrade, type UpgradeAnswer } from '../proxy/session/dial.ts';
import { onlyLine } from '../kube/header-lines.ts';
import { within } from '../recording/deadline.ts';
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

export const CALL_LIMITS: CallLimits = {
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

export interface Question {
  /** `ip:port` of the recorders that may be asked, in order of preference. */
  readonly recorders: readonly string[];
  readonly viewer: NamedViewer;
  /** Path and query. */
  readonly target: string;
  /** Flat list of further fields. */
  readonly fields: readonly string[];
}

export interface RecorderCalls {
  /**
   * The answer, its body unread; whoever gets it reads or destroys it. `signal` ends the search and not the answer.
   * @throws TailcastError `RECORDER_UNAVAILABLE`, `PORTAL_UNTRUSTED`
   */
  ask(question: Question, signal: AbortSignal): Promise<IncomingMessage>;
  /** The same for a WebSocket; `key` is the client's `Sec-WebSocket-Key`. */
  follow(
    question: Question & { readonly key: string; readonly subprotocols: readonly string[] },
    signal: AbortSignal,
  ): Promise<UpgradeAnswer>;
}

/** What bounds the head of a recorder's answer. */
const MAX_HEAD_BYTES = 16 * 1024;
/** Always a name of a recorder: its guard is for browsers that come to it, and this one stands in front of us. */
const HOST = 'localhost';

export function createRecorderCalls(deps: RecorderCallDeps): RecorderCalls {
  const limits: CallLimits = { ...CALL_LIMITS, ...deps.limits };
  const { nodeOf, nowMs } = deps;
  const candidates = createCandidates({ nodeOf, nowMs, suspectMs: limits.suspectMs });

  /** Tries one recorder after another. */
  async function atFirst<T>(
    recorders: readonly string[],
    signal: AbortSignal,
    attempt: (connect: () => Promise<Duplex>, timeoutMs: number, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const failures: string[] = [];
    let untrusted = false;
    const tryNode = async (node: RecorderNode, given: AbortSignal): Promise<T> => {
      const dialMs = node.suspect ? limits.suspectTimeoutMs : limits.dialTimeoutMs;
      const answerMs = node.suspect ? limits.suspectTimeoutMs : limits.answerTimeoutMs;
      const connect = async (): Promise<Duplex> =>
        (await dialNode(node.addresses, deps.dial, dialMs, given)).socket;
      const result = await attempt(connect, answerMs, given);
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
      signal.throwIfAborted();
      if (untrusted) throw new TailcastError('PORTAL_UNTRUSTED', undefined, { cause: error });
      throw new TailcastError('RECORDER_UNAVAILABLE', errorText(error), { cause: error });
    }
  }

  return {
    ask: (question, signal) =>
      atFirst(question.recorders, signal, async (connect, timeoutMs, given) => {
        const socket = await connect();
        return within(timeoutMs, 'the answer of the recorder', given, (bounded) =>
          exchange(socket, question, bounded),
        );
      }),
    follow: (question, signal) =>
      atFirst(question.recorders, signal, async (connect, timeoutMs, given) => {
        const answer = await dialUpgrade(
          {
            connect,
            method: 'GET',
            target: question.target,
            headers: [
              ...fieldsOf(question),
              'Sec-WebSocket-Version',
              '13',
              'Sec-WebSocket-Key',
              question.key,
              ...question.subprotocols.flatMap((name) => ['Sec-WebSocket-Protocol', name]),
            ],
            protocol: 'websocket',
            subprotocol: { header: 'sec-websocket-protocol', offered: question.subprotocols },
            responseTimeoutMs: timeoutMs,
          },
          given,
        );
        // a refusal gives nothing away, and the reason of one is the recorder's
        if (answer.kind === 'switched' && !isAccepted(answer.rawHeaders, question.viewer)) {
          answer.socket.destroy();
          throw new TailcastError('PORTAL_UNTRUSTED');
        }
        return answer;
      }),
  };
}

/** One question on a connection of its own. */
async function exchange(socket: Duplex, question: Question, signal: AbortSignal): Promise<IncomingMessage> {
  const answered = Promise.withResolvers<IncomingMessage>();
  const call = request({
    method: 'GET',
    path: question.target,
    headers: [...fieldsOf(question), 'Connection', 'close'],
    setHost: false,
    maxHeaderSize: MAX_HEAD_BYTES,
    insecureHTTPParser: false,
    createConnection: () => socket,
  });
  const onAbort = (): void => answered.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  // stays on: the body may still break off while it is passed on
  call.on('error', answered.reject);
  call.once('close', () => answered.reject(new Error('the connection was closed before an answer')));
  call.once('response', answered.resolve);
  call.end();
  try {
    const response = await answered.promise;
    if (isAccepted(response.rawHeaders, question.viewer)) return response;
    const status = response.statusCode ?? 0;
    if (status >= 500) throw new Error(`it answered ${status}`);
    throw new TailcastError('PORTAL_UNTRUSTED');
  } catch (error) {
    call.destroy();
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** `dialUpgrade` words its errors for the API server; only their detail is true here. */
function reasonOf(error: unknown): string {
  return error instanceof TailcastError ? (error.detail ?? error.message) : errorText(error);
}

/** Everything is said anew: no field of the client's request is among these. */
function fieldsOf({ viewer, fields }: Question): readonly string[] {
  const named = encodeNamedViewer(viewer);
  if (named === undefined) throw new TailcastError('IDENTITY_MALFORMED', 'it cannot be told to a recorder');
  return ['Host', HOST, ...named, ...fields];
}

/** A recorder that did not say so may have taken us for the viewer, who may see something else. */
function isAccepted(rawHeaders: readonly string[], viewer: NamedViewer): boolean {
  return onlyLine(rawHeaders, VIEWER_ACCEPTED_HEADER) === viewer.nodeId;
}

/**
 * Posts events to recorders over HTTP/1.1 (reference recorder protocol, section 1.7). A probe (`HEAD /v2/event`)
 * determines whether the recorder at an address accepts events. A positive result is cached for `probeMemoryMs`.
 * Connections are kept alive for the next event.
 */
import { BoundedMap } from '../bounded-map.ts';
import { Agent, request, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { asError } from '../errors.ts';
import { withTimeout } from '../async/with-timeout.ts';
import { watchForStale } from '../stale-connections.ts';
import { createCandidates } from './recorder-candidates.ts';
import type { DialRecorder } from './recorder-connection.ts';

/** Sends events to recorders. */
export type EventPoster = ReturnType<typeof createEventPoster>;

const EVENT_POSTER_LIMITS = {
  dialTimeoutMs: 5_000,
  probeTimeoutMs: 10_000,
  postTimeoutMs: 10_000,
  /** Maximum number of idle connections to all recorders in total. */
  maxIdle: 8,
  idleMs: 30_000,
  /** Time for which a positive result of a probe is cached. */
  probeMemoryMs: 300_000,
  suspectMs: 15_000,
};
export type EventPosterLimits = Readonly<typeof EVENT_POSTER_LIMITS>;

/** Maximum number of cached positive probe results. */
const MAX_REMEMBERED = 256;
const MAX_ERROR_BODY_BYTES = 1024;

export function createEventPoster(deps: {
  readonly dial: DialRecorder;
  readonly nowMs: () => number;
  readonly limits?: Partial<EventPosterLimits>;
}) {
  const limits: EventPosterLimits = { ...EVENT_POSTER_LIMITS, ...deps.limits };
  const agent = new DialAgent(deps.dial, limits);
  const candidates = createCandidates({
    nodeOf: (address) => address,
    nowMs: deps.nowMs,
    suspectMs: limits.suspectMs,
  });
  const supportedAt = new BoundedMap<number>(MAX_REMEMBERED);

  const probe = async (address: string, signal: AbortSignal): Promise<void> => {
    const at = supportedAt.get(address);
    if (at !== undefined && deps.nowMs() - at < limits.probeMemoryMs) return;
    const { status } = await withTimeout(limits.probeTimeoutMs, 'HEAD /v2/event', signal, (given) =>
      exchange(agent, address, 'HEAD', '', given),
    );
    if (status === 404)
      throw new Error(`recorder at address "${address}" does not support "/v2/event" endpoint`);
    if (status !== 200) throw new Error(`server returned non-OK status: ${status}`);
    supportedAt.set(address, deps.nowMs());
  };
  return {
    /** Returns the addresses in the order in which to try them: recorders that failed recently come last. */
    order: (addresses: readonly string[]): readonly string[] =>
      candidates.order(addresses).map(({ key }) => key),
    /**
     * Resolves when the recorder has stored the event.
     * @throws Error with the response of the recorder, or with the reason why it did not respond
     */
    async post(address: string, line: string, signal: AbortSignal): Promise<void> {
      try {
        await probe(address, signal);
        const { status, text } = await withTimeout(limits.postTimeoutMs, 'POST /v2/event', signal, (given) =>
          exchange(agent, address, 'POST', line, given),
        );
        if (status !== 200) throw new Error(`server returned non-OK status: ${status}: ${text}`);
        candidates.succeeded(address);
      } catch (error) {
        supportedAt.delete(address);
        if (!signal.aborted) candidates.failed(address);
        throw error;
      }
    },
    close(): void {
      agent.destroy();
    },
  };
}

/** Connection pool of Node.js whose connections are opened by `DialRecorder`. */
class DialAgent extends Agent {
  readonly #dial: DialRecorder;
  readonly #dialTimeoutMs: number;

  constructor(dial: DialRecorder, limits: EventPosterLimits) {
    super({
      keepAlive: true,
      keepAliveMsecs: limits.idleMs,
      maxFreeSockets: limits.maxIdle,
      timeout: limits.idleMs,
    });
    this.#dial = dial;
    this.#dialTimeoutMs = limits.dialTimeoutMs;
  }

  override createConnection(
    options: { readonly host?: string | null | undefined },
    opened?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null | undefined {
    const address = options.host ?? '';
    const never = new AbortController().signal;
    withTimeout(this.#dialTimeoutMs, `connecting to ${address}`, never, (signal) =>
      this.#dial(address, signal),
    ).then(
      (socket) => opened?.(null, socket),
      (error: unknown) => {
        // @ts-expect-error -- Node.js takes no stream together with an error; its types ask for one
        opened?.(asError(error), undefined);
      },
    );
    return undefined;
  }
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/**
 * Sends one request and reads its complete response. The client sends the request again on a new connection if a
 * keep-alive connection is closed before the first byte of the response. All other failures are thrown, because the
 * recorder may already have stored the event.
 */
async function exchange(
  agent: DialAgent,
  address: string,
  method: 'HEAD' | 'POST',
  body: string,
  signal: AbortSignal,
): Promise<Answer> {
  for (let attempt = 1; ; attempt += 1) {
    const sent = request({
      agent,
      method,
      path: '/v2/event',
      // Node.js never resolves this host name. The agent uses the name to find pooled connections, and
      // `createConnection` connects to the address in the name.
      host: address,
      headers: {
        host: address,
        ...(method === 'POST'
          ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
          : {}),
      },
      signal,
    });
    const isStale = watchForStale(sent);
    sent.end(body);
    try {
      return await readAnswer(sent);
    } catch (error) {
      if (!isStale(error) || attempt > 1 || signal.aborted) throw error;
    }
  }
}

async function readAnswer(sent: ReturnType<typeof request>): Promise<Answer> {
  const answered = Promise.withResolvers<IncomingMessage>();
  sent.once('response', answered.resolve);
  sent.once('error', answered.reject);
  const response = await answered.promise;
  let text = '';
  for await (const chunk of response) {
    if (text.length < MAX_ERROR_BODY_BYTES) text += String(chunk).slice(0, MAX_ERROR_BODY_BYTES);
  }
  return { status: response.statusCode ?? 0, text };
}

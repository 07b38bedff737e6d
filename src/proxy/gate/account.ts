/** What is counted and written down about one request, however it goes: its answer, a refusal, its line in the access log. */
import { errorText, TailcastError, type ErrorCode } from '../../errors.ts';
import { CLIENT_LEFT, loggedPath, type AccessLog } from '../../observe/access-log.ts';
import type { Events } from '../../observe/events.ts';
import type { Metrics, Protocol } from '../../observe/metrics.ts';
import { callerName } from '../../tailnet/identity.ts';
import type { Caller, InboundRequest } from './gate.ts';

export interface AccountDeps {
  readonly metrics: Pick<Metrics, 'requestStarted' | 'requestFinished'>;
  readonly accessLog: Pick<AccessLog, 'write'>;
  readonly events: Pick<Events, 'requestRefused'>;
  /** A clock with fractions of milliseconds, for durations only. */
  readonly monotonicMs: () => number;
}

/** Opened when the request is there; `close` must be called in the end. */
export class Account {
  /** Bytes of bodies, or of what follows a 101. */
  requestBytes = 0;
  responseBytes = 0;
  /** How long it takes says nothing about how quick the gateway is. */
  longRunning = false;
  readonly #protocol: Protocol;
  readonly #inbound: Pick<InboundRequest, 'method' | 'target' | 'peer'>;
  readonly #deps: AccountDeps;
  readonly #startedAtMs: number;
  #caller: Pick<Caller, 'id' | 'identity'> | undefined;
  #status: number | undefined;
  #error: string | undefined;
  #isCounted = false;
  #isClosed = false;

  constructor(
    protocol: Protocol,
    inbound: Pick<InboundRequest, 'method' | 'target' | 'peer'>,
    deps: AccountDeps,
  ) {
    this.#protocol = protocol;
    this.#inbound = inbound;
    this.#deps = deps;
    this.#startedAtMs = deps.monotonicMs();
    deps.metrics.requestStarted();
  }

  /** A status has been sent. */
  get begun(): boolean {
    return this.#status !== undefined;
  }

  recognised(caller: Pick<Caller, 'id' | 'identity'>): void {
    this.#caller = caller;
  }

  /** The status that is sent. Once the answer is counted it stays. */
  answered(status: number): void {
    if (!this.#isCounted) this.#status = status;
  }

  /** Counts the answer as it is now: what follows a 101 is counted as a session. */
  count(): void {
    if (this.#isCounted) return;
    this.#isCounted = true;
    this.#deps.metrics.requestFinished({
      protocol: this.#protocol,
      status: this.#status ?? CLIENT_LEFT,
      seconds: (this.#deps.monotonicMs() - this.#startedAtMs) / 1000,
      longRunning: this.longRunning,
      requestBytes: this.requestBytes,
      responseBytes: this.responseBytes,
    });
  }

  /** The gateway itself says no; without a status, in the middle of an answer. */
  refused(error: unknown, status?: number): void {
    const code: ErrorCode = error instanceof TailcastError ? error.code : 'INTERNAL';
    const caller = this.#caller;
    this.#deps.events.requestRefused({
      ...(caller === undefined ? {} : { id: caller.id, user: callerName(caller.identity) }),
      code,
      reason: errorText(error),
      protocol: this.#protocol,
      ...this.#asked(),
    });
    if (status !== undefined) this.answered(status);
    this.failed(code);
  }

  /** What went wrong, for the access log. */
  failed(error: string): void {
    this.#error = error;
  }

  /** Nothing more happens: counts it, once, and writes its line. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.count();
    const caller = this.#caller;
    this.#deps.accessLog.write({
      id: caller?.id ?? '',
      protocol: this.#protocol,
      user: caller === undefined ? '' : callerName(caller.identity),
      ...this.#asked(),
      status: this.#status ?? CLIENT_LEFT,
      durationMs: this.#deps.monotonicMs() - this.#startedAtMs,
      requestBytes: this.requestBytes,
      responseBytes: this.responseBytes,
      ...(this.#error === undefined ? {} : { error: this.#error }),
    });
  }

  /** For logs: what was asked for, without its query. */
  #asked(): { readonly peer: string; readonly method: string; readonly path: string } {
    const { peer, method, target } = this.#inbound;
    return { peer: peer.address, method: method.slice(0, 20), path: loggedPath(target) };
  }
}

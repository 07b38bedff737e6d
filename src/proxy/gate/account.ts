/** Metrics and access-log entry of one request. */
import { errorText, TailcastError, type ErrorCode } from '../../errors.ts';
import { CLIENT_LEFT, loggedPath, type AccessLog } from '../../observe/access-log.ts';
import type { Events } from '../../observe/events.ts';
import type { Metrics, Protocol } from '../../observe/metrics.ts';
import { callerName } from '../../tailnet/identity.ts';
import type { Caller, InboundRequest } from './gate.ts';

export interface AccountDeps {
  readonly metrics: Pick<Metrics, 'requestStarted' | 'requestFinished'>;
  /** Undefined if the access log is disabled. */
  readonly accessLog: Pick<AccessLog, 'write'> | undefined;
  readonly events: Pick<Events, 'requestRefused'>;
  /** Monotonic clock in milliseconds, with fractions; used for durations. */
  readonly monotonicMs: () => number;
}

/** Created with the request; call `close` at the end. */
export class Account {
  /** Number of bytes of the request body, or number of bytes that the client sent after a 101 response. */
  requestBytes = 0;
  responseBytes = 0;
  /** True if the duration of the request says nothing about the speed of the gateway, as for a watch. */
  longRunning = false;
  readonly #protocol: Protocol;
  readonly #inbound: Pick<InboundRequest, 'method' | 'target' | 'peer'>;
  readonly #deps: AccountDeps;
  readonly #startedAtMs: number;
  #caller: Pick<Caller, 'id' | 'identity' | 'cluster'> | undefined;
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

  /** True after a status was sent. */
  get begun(): boolean {
    return this.#status !== undefined;
  }

  recognised(caller: Pick<Caller, 'id' | 'identity' | 'cluster'>): void {
    this.#caller = caller;
  }

  /** Sets the status that was sent to the client. Has no effect after `count`. */
  answered(status: number): void {
    if (!this.#isCounted) this.#status = status;
  }

  /**
   * Counts the request in the metrics, once. An upgrade is counted at its 101 response, because the
   * connection then counts as a session.
   */
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

  /**
   * Logs an error of the gateway. `status` is the status that the client gets; without `status`, the response
   * status does not change.
   */
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

  /** Sets the numbers of relayed bytes, and the error if the session failed. */
  sessionEnded(result: {
    readonly fromClient: number;
    readonly fromUpstream: number;
    readonly error?: string;
  }): void {
    this.requestBytes = result.fromClient;
    this.responseBytes = result.fromUpstream;
    if (result.error !== undefined) this.failed(result.error);
  }

  /** Sets the error of the access-log entry. */
  failed(error: string): void {
    this.#error = error;
  }

  /** Counts the request, if `count` was not called, and writes its access-log entry. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.count();
    const caller = this.#caller;
    this.#deps.accessLog?.write({
      id: caller?.id ?? '',
      protocol: this.#protocol,
      user: caller === undefined ? '' : callerName(caller.identity),
      ...(caller?.cluster === undefined ? {} : { cluster: caller.cluster.name }),
      ...this.#asked(),
      status: this.#status ?? CLIENT_LEFT,
      durationMs: this.#deps.monotonicMs() - this.#startedAtMs,
      requestBytes: this.requestBytes,
      responseBytes: this.responseBytes,
      ...(this.#error === undefined ? {} : { error: this.#error }),
    });
  }

  /** Returns the fields of the request for log entries, without its query. */
  #asked(): { readonly peer: string; readonly method: string; readonly path: string } {
    const { peer, method, target } = this.#inbound;
    return { peer: peer.address, method: method.slice(0, 20), path: loggedPath(target) };
  }
}

/**
 * Serves one proxied request, from admission to its access-log entry, for HTTP/1.1 and HTTP/2. A `ClientSide`
 * represents the client, an `Exchange` the API server. The pump relays bodies with back-pressure, ends one side when
 * the other side ends, and determines the logged result of the request.
 *
 *   client body ─► pump ─► exchange        response ─► pump ─► client side
 *   exchange full ─► body paused           client full ─► exchange paused
 *   client gone ─► exchange aborted        upstream dead ─► error Status, or the client cut if a head was sent
 */
import type { Readable } from 'node:stream';
import { createDeadline } from '../../async/deadline.ts';
import { asTailcastError, TailcastError, errorText } from '../../errors.ts';
import { withoutHeader } from '../../kube/headers.ts';
import { isPureRead } from '../../kube/interactive.ts';
import { statusOf, type StatusResponse } from '../../kube/status.ts';
import { responseWarnings } from '../../kube/warning.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import type { Events } from '../../observe/events.ts';
import { keptOfBody } from '../../recording/kept-fields.ts';
import { collectBody } from './event-body.ts';
import { Account, type AccountDeps } from '../gate/account.ts';
import type { AccountRefusals } from '../gate/account-refusals.ts';
import type { Admission, Gate, InboundRequest } from '../gate/gate.ts';
import type { Rechecks } from '../gate/recheck.ts';
import { headerList, type BodyFraming, type ResponseHead } from '../upstream/response-head.ts';
import { admitCounted, type RequestPlace, type UserLimits } from '../gate/user-limits.ts';
import type { UpstreamPool } from '../upstream/upstream-pool.ts';
import {
  startExchange,
  type Exchange,
  type ExchangeOwner,
  type RequestFraming,
} from '../upstream/upstream.ts';
import type { ApiRequest } from '../../recording/request-event.ts';

/** Dependencies of the pump; one per gateway. */
export interface PumpDeps extends AccountDeps {
  readonly gate: Gate;
  readonly pool: UpstreamPool;
  /**
   * Path of the API server's URL, which precedes every request target. Has no trailing slash; empty for most
   * API servers.
   */
  readonly basePath: string;
  readonly events: Pick<Events, 'requestRefused' | 'upstreamFailed'>;
  /**
   * Sends an API request event to a recorder. Throws `RECORDING_REQUIRED` if no recorder stores the event and
   * the policy requires it.
   */
  recordApiRequest(record: ApiRequest): Promise<void>;
  /** Maximum number of bytes of a request body in an event. */
  readonly eventBodyBytes: number;
  /**
   * Maximum time without new bytes of a request body while the response has not begun, in milliseconds. Bytes of
   * trailers do not count. Default: {@link BODY_STALL_MS}.
   */
  readonly bodyStallMs?: number;
  /** Maximum number of concurrent requests, including long-running ones; further requests get `OVERLOADED`. */
  readonly maxInFlight: number;
  /** Limits per user. Default: none. */
  readonly users?: Pick<UserLimits, 'enter' | 'head'> | undefined;
  /** Shared count of in-flight requests. */
  readonly load: { inFlight: number };
  /** True if the client may get cookies of the API server; false in `auth` mode. */
  readonly keepCookies: boolean;
  /**
   * Called when the API server responds with 401 to the gateway's own credential, so that the next request
   * uses a new credential.
   */
  readonly credentialRefused?: () => void;
  /**
   * Distinguishes a 403 for the gateway's own account from a 403 for the caller. Without this check, every 403 counts
   * as a refusal of the caller.
   */
  readonly accountRefusals?: AccountRefusals;
  readonly draining: () => boolean;
  /**
   * Rechecks the access of each caller while its request runs. For example, a watch ends when its caller loses the
   * grant.
   */
  readonly rechecks?: Pick<Rechecks, 'watch'>;
}

const BODY_STALL_MS = 60_000;
const BODY_STALLED = new TailcastError('REQUEST_TIMEOUT', 'no byte of the body arrived for a minute');

/** The incoming body of a request. */
export interface RequestBody {
  readonly framing: RequestFraming;
  /**
   * Body stream, paused until the pump reads from the stream. The stream ends normally only if the body is complete.
   */
  readonly stream: Readable;
  /** True if the client waits for a 100 response before it sends the body. */
  readonly expectsContinue: boolean;
}

/** Client's side of a request: an HTTP/1.1 request and its response, or an HTTP/2 stream. */
export interface ClientSide {
  readonly protocol: 'h1' | 'h2';
  /** True if the client needs the body without the chunk framing of the API server. */
  readonly needsPayload: boolean;
  /**
   * True after a part of the response was sent. The only way to report a later error is then `cut`, which aborts the
   * response.
   */
  readonly begun: boolean;
  /** Pending bytes of the response. */
  readonly unsentBytes: number;
  informational(head: ResponseHead): void;
  sendContinue(): void;
  head(head: ResponseHead, framing: BodyFraming, extra: HeadExtra): void;
  /** Sends bytes of a body. Returns false if the caller must pause until `clientDrained`. */
  write(chunk: Buffer, start: number, end: number): boolean;
  /** Sends all bytes that were held back. Called when no more bytes are available now. */
  flush(): boolean;
  end(trailers: readonly string[]): void;
  /** Sends an error of the gateway as a complete response. */
  refuse(status: StatusResponse): void;
  /** Aborts the response, so that the client sees that it is incomplete. */
  cut(): void;
}

export interface HeadExtra {
  readonly warnings: readonly string[];
  /** True if a browser will render the response; headers then come from `fieldsForBrowser`. */
  readonly shown: boolean;
  /** False while the request body is incomplete. The connection then cannot be reused. */
  readonly requestComplete: boolean;
}

const UNAUTHORIZED = 401;
const FORBIDDEN = 403;

interface WithheldResponse {
  readonly head: ResponseHead;
  readonly framing: BodyFraming;
  readonly body: Buffer[];
  /** Trailers of the response; present after the response is complete. */
  trailers?: readonly string[];
}

export class Pump implements ExchangeOwner {
  readonly #deps: PumpDeps;
  readonly #client: ClientSide;
  readonly #inbound: InboundRequest;
  readonly #body: RequestBody;
  readonly #account: Account;
  #admission: Admission | undefined;
  #exchange: Exchange | undefined;
  #stopRechecks: (() => void) | undefined;
  #place: RequestPlace | undefined;
  #leaveCluster: (() => void) | undefined;
  /** Number of bytes of the request body in memory for the API request event. */
  #collectedBytes = 0;
  /** A response that the gateway holds back until it knows whether the API server refused the gateway's own account. */
  #withheld: WithheldResponse | undefined;
  /**
   * Settles when the event of the request is stored or cannot be stored. Set while the gateway sends the event to a
   * recorder, even after the client disconnects.
   */
  #storing: Promise<void> | undefined;
  #over = false;

  constructor(deps: PumpDeps, client: ClientSide, inbound: InboundRequest, body: RequestBody) {
    this.#deps = deps;
    this.#client = client;
    this.#inbound = inbound;
    this.#body = body;
    this.#account = new Account(client.protocol, inbound, deps);
    deps.load.inFlight += 1;
  }

  get needsPayload(): boolean {
    return this.#client.needsPayload;
  }

  /** Serves the request. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      const { load, maxInFlight } = this.#deps;
      if (load.inFlight > maxInFlight) throw new TailcastError('OVERLOADED');
      const asked = { inbound: this.#inbound, account: this.#account, isOver: () => this.#over };
      const { admission, place } = await admitCounted(this.#deps, asked, signal);
      if (this.#over) return place?.leave();
      this.#place = place;
      this.#admission = admission;
      this.#account.longRunning = admission.requestClass === 'longRunning' || admission.info.verb === 'watch';
      this.#leaveCluster = admission.cluster?.upstream.enter();
      // rechecks every request, because the class of a request does not determine how long its body and its response
      // take
      this.#stopRechecks = this.#deps.rechecks?.watch(admission, this.#inbound.peer, (error) =>
        this.#revoke(error),
      );
      const early = admission.event ? await this.#recordEvent(admission) : NO_BODY;
      if (!this.#over) this.#start(admission, early);
    } catch (error) {
      this.refuse(error);
    }
  }

  /** Cancels all work for a client that has disconnected. */
  clientGone(): void {
    this.#guard(() => {
      if (this.#over) return;
      this.#exchange?.abort();
      this.#finish('client left');
    });
  }

  clientDrained(): void {
    this.#guard(() => {
      this.#place?.hold(this.#collectedBytes);
      if (this.#withheld === undefined) this.#exchange?.resume();
    });
  }

  informational(head: ResponseHead): void {
    // a browser gets no interim responses, because early hints could load resources that the page rules
    // forbid
    if (!this.#over && this.#admission?.shown !== true) this.#client.informational(head);
  }

  head(head: ResponseHead, framing: BodyFraming): void {
    if (this.#over) return;
    this.#account.answered(head.status);
    if (head.status === UNAUTHORIZED && this.#admission?.impersonation !== undefined) {
      (this.#admission.cluster?.upstream ?? this.#deps).credentialRefused?.();
    }
    const refusal = this.#refusalIn(head);
    if (refusal === undefined) return this.#sendHead(head, framing);
    // the next read of the connection overwrites the read buffer that contains the head
    const bytes = Buffer.from(head.bytes.subarray(head.start, head.end));
    this.#withheld = { head: { ...head, bytes, start: 0, end: bytes.length }, framing, body: [] };
    this.#exchange?.pause();
    void refusal.then((error) => this.#guard(() => this.#release(error)));
  }

  #refusalIn(head: ResponseHead): Promise<TailcastError | undefined> | undefined {
    const admission = this.#admission;
    // the headers are parsed only for a 403
    if (head.status !== FORBIDDEN || admission === undefined) return undefined;
    const { accountRefusals } = admission.cluster?.upstream ?? this.#deps;
    return accountRefusals?.find(admission, head.status, headerList(head));
  }

  /** @param error set if the response refuses the gateway's own account */
  #release(error: TailcastError | undefined): void {
    const withheld = this.#withheld;
    if (this.#over || withheld === undefined) return;
    this.#withheld = undefined;
    if (error !== undefined) {
      this.#exchange?.abort();
      return this.refuse(error);
    }
    this.#exchange?.resume();
    this.#sendHead(withheld.head, withheld.framing);
    for (const chunk of withheld.body) this.body(chunk, 0, chunk.length);
    if (withheld.trailers === undefined) this.flush();
    else this.end(withheld.trailers);
  }

  #sendHead(head: ResponseHead, framing: BodyFraming): void {
    this.#client.head(head, framing, {
      warnings: responseWarnings(this.#admission, head.status),
      shown: this.#admission?.shown === true,
      requestComplete: this.#exchange?.requestComplete === true,
    });
  }

  body(chunk: Buffer, start: number, end: number): void {
    if (this.#over) return;
    if (this.#withheld !== undefined) {
      this.#withheld.body.push(Buffer.from(chunk.subarray(start, end)));
      return;
    }
    this.#account.responseBytes += end - start;
    if (this.#client.write(chunk, start, end)) return;
    this.#place?.hold(this.#collectedBytes + this.#client.unsentBytes);
    this.#exchange?.pause();
  }

  flush(): void {
    if (!this.#over && this.#withheld === undefined && !this.#client.flush()) this.#exchange?.pause();
  }

  end(trailers: readonly string[]): void {
    if (this.#over) return;
    const withheld = this.#withheld;
    if (withheld !== undefined) {
      withheld.trailers = trailers;
      return;
    }
    this.#client.end(trailers);
    this.#finish();
  }

  writable(): void {
    this.#body.stream.resume();
  }

  /** Called when the exchange or the client side fails. */
  failed(error: TailcastError): void {
    if (this.#over) return;
    this.#exchange?.abort();
    if (!this.#client.begun) return this.refuse(error);
    this.#upstreamFailed(error);
    this.#finish(error.code);
    this.#client.cut();
  }

  async #recordEvent(admission: Admission): Promise<CollectedBody> {
    const { framing, stream, expectsContinue } = this.#body;
    const hasBody = framing.kind !== 'none';
    // the body is read only if the event of this request contains a part of the body
    const wanted = hasBody && keptOfBody(admission.info) !== undefined;
    let collected: CollectedBody = hasBody ? NO_BODY : EMPTY_BODY;
    if (wanted) {
      // The event needs the body before the gateway sends the request, so the client cannot wait for a 100 response of
      // the API server.
      if (expectsContinue) this.#client.sendContinue();
      const stop = this.#limitStalls();
      collected = await collectBody(stream, this.#deps.eventBodyBytes, (bytes) => {
        this.#collectedBytes = bytes;
        if (!this.#over) this.#place?.reserve(bytes);
      }).finally(stop);
    }
    if (this.#over) return NO_BODY;
    const stored = this.#deps.recordApiRequest({
      admission,
      method: this.#inbound.method,
      userAgent: headerValue(this.#inbound.rawHeaders, 'user-agent'),
      body: Buffer.concat(collected.chunks).subarray(0, this.#deps.eventBodyBytes),
      bodyTruncated: !collected.complete,
    });
    const settled = (): void => (this.#storing = undefined);
    this.#storing = stored.then(settled, settled);
    await stored;
    return collected;
  }

  #start(admission: Admission, early: CollectedBody): void {
    const { method } = this.#inbound;
    const { framing, expectsContinue } = this.#body;
    const headers =
      expectsContinue && early === NO_BODY ? admission.headers : withoutHeader(admission.headers, 'expect');
    const { basePath, pool } = admission.cluster?.upstream ?? this.#deps;
    const target = basePath + admission.target.raw;
    const repeatable = isPureRead(admission.info, admission.requestClass);
    const exchange = startExchange({ method, target, headers, framing, repeatable }, this, pool);
    this.#exchange = exchange;
    if (framing.kind === 'none' || exchange.requestComplete) return;
    for (const chunk of early.chunks) this.#sendBody(exchange, chunk);
    this.#collectedBytes = 0;
    this.#place?.hold(0);
    if (early.complete) return exchange.end();
    this.#readBody(exchange);
  }

  #readBody(exchange: Exchange): void {
    const { stream } = this.#body;
    stream.on('data', (chunk: Buffer) => {
      this.#guard(() => {
        if (!this.#sendBody(exchange, chunk)) stream.pause();
      });
    });
    this.#limitStalls();
    stream.on('end', () => this.#guard(() => exchange.end()));
  }

  /**
   * Rejects the request if its body stalls before the response begins. The check's listener starts the body stream, so
   * the caller must add a reader in the same turn of the event loop.
   * @returns a function that stops this check
   */
  #limitStalls(): () => void {
    const { stream } = this.#body;
    const stall = createDeadline(this.#deps.bodyStallMs ?? BODY_STALL_MS, () => {
      // the stream is paused because the API server is slow, so the client has not stalled
      if (stream.isPaused()) stall.extend();
      else if (!this.#client.begun) this.#guard(() => this.failed(BODY_STALLED));
    });
    const stop = (): void => {
      stall.clear();
      stream.off('data', stall.extend);
      for (const event of ['end', 'close']) stream.off(event, stop);
    };
    stream.on('data', stall.extend);
    for (const event of ['end', 'close']) stream.once(event, stop);
    return stop;
  }

  /** Runs an event handler. An error in the handler ends only this request. */
  #guard(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.failed(asTailcastError(error));
    }
  }

  #sendBody(exchange: Exchange, chunk: Buffer): boolean {
    // after the end of the request, bytes that the client still sends are discarded
    if (this.#over) return true;
    this.#account.requestBytes += chunk.length;
    passedThrough(chunk.length);
    return exchange.write(chunk);
  }

  /** Sends an error of the gateway. Must not be called after a part of the response was sent. */
  refuse(error: unknown): void {
    if (this.#over) return;
    const status = statusOf(error);
    const code = error instanceof TailcastError ? error.code : 'INTERNAL';
    if (code.startsWith('UPSTREAM_')) this.#upstreamFailed(error);
    else this.#account.refused(error);
    this.#account.answered(status.httpStatus);
    this.#finish(code);
    try {
      this.#client.refuse(status);
    } catch (cause) {
      this.#upstreamFailed(cause);
      this.#client.cut();
    }
  }

  /** Ends the response of a caller that has lost access. */
  #revoke(error: TailcastError): void {
    if (this.#over) return;
    this.#exchange?.abort();
    if (!this.#client.begun) return this.refuse(error);
    this.#account.refused(error);
    this.#finish();
    this.#client.cut();
  }

  #upstreamFailed(error: unknown): void {
    this.#deps.events.upstreamFailed({
      id: this.#admission?.id ?? '',
      code: error instanceof TailcastError ? error.code : 'INTERNAL',
      reason: errorText(error),
    });
  }

  #finish(error?: string): void {
    this.#over = true;
    this.#stopRechecks?.();
    if (this.#storing === undefined) this.#leave();
    else void this.#storing.then(() => this.#leave());
    if (error !== undefined) this.#account.failed(error);
    this.#account.close();
    // discards the rest of the body, which would otherwise block the connection
    if (this.#body.framing.kind !== 'none') this.#body.stream.resume();
  }

  /** Stops counting the request for its user, its cluster and the gateway. */
  #leave(): void {
    this.#place?.leave();
    this.#leaveCluster?.();
    this.#deps.load.inFlight -= 1;
  }
}

type CollectedBody = Awaited<ReturnType<typeof collectBody>>;
/** Result if the body was not read for the event. */
const NO_BODY: CollectedBody = { chunks: [], complete: false };
const EMPTY_BODY: CollectedBody = { chunks: [], complete: true };

function headerValue(rawHeaders: readonly string[], name: string): string {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.toLowerCase() === name) return rawHeaders[index + 1] ?? '';
  }
  return '';
}

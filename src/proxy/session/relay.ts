/**
 * Relays bytes between a client and the API server until one of them closes. Only the tap knows the protocol.
 *
 * ```
 *   client ──► tap.input ──► delayed input ───────────────────────────────► API server
 *   client ◄── delivery queue ◄── tap.output ◄── elastic buffer ◄────────── API server
 * ```
 *
 * The relay pauses reading from the client while the tap waits or the API server does not accept bytes. If there is a
 * buffer, the relay reads the output of the API server until the buffer is full.
 *
 * The relay does not use `stream.pipeline`, because `stream.pipeline` destroys the sink when the source fails. In this
 * case, the gateway must still send the reason to the client. The relay forwards a half-close. When one end closes, the
 * relay writes all remaining bytes to the other end and then closes it. Writing may take hours, for example if a client
 * pipes the output into a pager, so `lingerMs` starts only after the last byte. The relay treats a broken connection
 * like a closed connection, because the bytes before the break must still be delivered.
 */
import type { Duplex } from 'node:stream';
import type { BufferEvents, SessionBuffer } from './elastic-buffers.ts';
import type { Tap } from '../../recording/tap.ts';
import { DelayedInput, SILENT_MS } from './delayed-input.ts';
import type { InsertOutput } from './notice.ts';
import { Direction, type DirectionOptions } from './relay-direction.ts';

/** Both ends of a relay and its limits. */
export interface RelayOptions {
  readonly client: Duplex;
  readonly upstream: Duplex;
  /** Bytes that arrived together with the head of the request, and with the head of the response. */
  readonly clientHead: Uint8Array;
  readonly upstreamHead: Uint8Array;
  readonly tap?: Pick<Tap, 'output' | 'mark' | 'input' | 'nextProbe'>;
  /** Returns true if more output may be parsed while the last output waits for the recorder. */
  readonly mayReadAhead?: (() => boolean) | undefined;
  /** True to limit the output in flight to the client, see `ClientPace`. */
  readonly isPaced?: boolean;
  /** Maximum time for which one end stays open after the other closed and all bytes were written. */
  readonly lingerMs: number;
  /** Destroys both ends when it aborts. */
  readonly signal: AbortSignal;
  /**
   * Silence of the API server after which a heartbeat of the client is forwarded. Default: {@link SILENT_MS}.
   */
  readonly silentMs?: number;
  /** Opens a buffer for undelivered output. Without a buffer, the API server must wait for the client. */
  readonly openBuffer?: (events: BufferEvents) => SessionBuffer;
  /** Inserts bytes into the output of the API server, see {@link InsertOutput}. */
  readonly insert?: InsertOutput | undefined;
  /** Called when the buffer has reached a limit, so that the API server must wait. */
  readonly bufferFull?: BufferEvents['limitReached'];
  /**
   * Called after the API server has closed its connection and all its output was delivered. Returns the last
   * bytes for the client, such as an error status; undefined if the output is complete. `backpressured`: see
   * `Relay`.
   */
  readonly lastWords?: (backpressured: boolean) => Uint8Array | undefined;
}

/** Reason for the end of a relay. */
export type RelayEnd =
  /** Both ends closed; `first` closed first. */
  | { readonly kind: 'closed'; readonly first: 'client' | 'upstream' }
  /** The connection of one end broke. The other end got all remaining bytes and was closed. */
  | { readonly kind: 'broken'; readonly side: 'client' | 'upstream'; readonly error: Error }
  /** A tap refused a chunk. The relay delivers no more bytes, and leaves both ends open for the caller. */
  | { readonly kind: 'refused'; readonly error: unknown }
  /** `stop` was called, or the signal aborted. */
  | { readonly kind: 'stopped' };

/** A running relay. */
export type Relay = ReturnType<typeof startRelay>;

function inputOf(delayed: DelayedInput | undefined): Pick<DirectionOptions, 'parse' | 'route'> {
  if (delayed === undefined) return {};
  return { parse: (chunk) => delayed.parse(chunk), route: () => delayed.route() };
}

/** Starts a relay. It owns both ends until `done` resolves. */
export function startRelay(options: RelayOptions) {
  const { client, upstream, tap, signal, silentMs = SILENT_MS } = options;
  const done = Promise.withResolvers<RelayEnd>();
  let over = false;
  let first: 'client' | 'upstream' | undefined;
  let broken: Extract<RelayEnd, { readonly kind: 'broken' }> | undefined;
  let linger: NodeJS.Timeout | undefined;

  const finish = (end: RelayEnd): void => {
    if (over) return;
    over = true;
    delayed?.stop();
    inbound.stop();
    outbound.stop();
    clearTimeout(linger);
    signal.removeEventListener('abort', onAbort);
    done.resolve(end);
  };
  const destroyBoth = (end: RelayEnd): void => {
    finish(end);
    client.destroy();
    upstream.destroy();
  };
  const onAbort = (): void => destroyBoth({ kind: 'stopped' });
  const refuse = (error: unknown): void => finish({ kind: 'refused', error });

  const delayed =
    tap && new DelayedInput({ tap, inbound: () => inbound, outbound: () => outbound, silentMs });
  const inbound: Direction = new Direction({
    source: client,
    sink: upstream,
    refuse,
    ...inputOf(delayed),
  });
  const outbound: Direction = new Direction({
    ...options,
    source: upstream,
    sink: client,
    refuse,
    ...(tap === undefined ? {} : { parse: (chunk, more) => tap.output(chunk, more), mark: () => tap.mark() }),
    nextProbe: options.isPaced === true ? tap?.nextProbe : undefined,
  });

  const watch = (side: 'client' | 'upstream', end: Duplex, other: Duplex): void => {
    const [fromEnd, toEnd] = side === 'client' ? [inbound, outbound] : [outbound, inbound];
    const closed = (): RelayEnd => broken ?? { kind: 'closed', first: first ?? side };
    const startLinger = (): void => {
      linger ??= setTimeout(() => destroyBoth(closed()), options.lingerMs);
    };
    end.once('end', () => (first ??= side));
    end.on('error', (error: Error) => (broken ??= { kind: 'broken', side, error }));
    end.once('close', () => {
      if (over) return;
      first ??= side;
      if (other.destroyed) return finish(closed());
      // The closed end can receive no more bytes.
      toEnd.discard();
      fromEnd.endSource();
      if (other.writableFinished) startLinger();
      else other.once('finish', startLinger);
    });
  };
  watch('client', client, upstream);
  watch('upstream', upstream, client);

  if (signal.aborted) onAbort();
  else {
    signal.addEventListener('abort', onAbort, { once: true });
    outbound.start(options.upstreamHead);
    inbound.start(options.clientHead);
    // An end that closed before the relay started emits no further events.
    if (client.destroyed || upstream.destroyed)
      destroyBoth({ kind: 'closed', first: client.destroyed ? 'client' : 'upstream' });
  }
  return {
    /** Resolves at the end. Never rejects. */
    done: done.promise,
    /** Number of bytes read from each end. */
    get totals(): { readonly fromClient: number; readonly fromUpstream: number } {
      return { fromClient: inbound.bytes, fromUpstream: outbound.bytes };
    },
    /**
     * True if the API server had to wait for the client and then sent bytes without a break until it closed its
     * connection. Its last output may then be lost.
     */
    get backpressured(): boolean {
      return outbound.backpressured;
    },
    /** Delivers no output and forwards no input during a pause. Output is still read and parsed, up to a limit. */
    setPaused: (isPaused: boolean): void => void [outbound, delayed].map((part) => part?.setPaused(isPaused)),
    /** Stops the relay and leaves both ends open for the caller. */
    stop: (): void => finish({ kind: 'stopped' }),
  };
}

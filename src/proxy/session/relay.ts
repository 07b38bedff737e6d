/**
 * Carries bytes between a client and the API server until one of them is done. Knows no protocol.
 *
 * ```
 *   client ──data──► tap.push ──────────────► upstream.write      one chunk under way per direction; a tap that wants to
 *   client ◄──write── tap.push ◄── buffer ◄──data── upstream      wait, or a full sink, pauses the client; what the
 * ```                                                             upstream says is read all the same
 *
 *
 * Not `stream.pipeline`: it destroys the sink when the source or a stage fails, and a session that is ended by the
 * gateway still has to tell its client why. What pipeline does is done here: errors of both ends, back-pressure,
 * half-close, one signal. A half-close is passed on as one. An end that closes altogether ends the other after what
 * was already read has been written: a client behind a pager may take its time for that. Only then does `lingerMs` run.
 * An end that breaks is treated the same way, because what it said before still counts.
 */
import type { Duplex } from 'node:stream';
import type { BufferEvents, SessionBuffer } from './elastic-buffers.ts';
import type { ClientProbes, Tap } from '../../recording/tap.ts';
import { HeldBack, SILENT_MS } from './held-back.ts';
import { Direction } from './relay-direction.ts';

export interface RelayOptions {
  readonly client: Duplex;
  readonly upstream: Duplex;
  /** Bytes that came with the heads of request and response. */
  readonly clientHead: Uint8Array;
  readonly upstreamHead: Uint8Array;
  readonly taps?: { readonly clientToServer: Tap; readonly serverToClient: Tap };
  /** Set: no more is on its way to the client than it takes in a moment, as far as it answers these. */
  readonly probes?: ClientProbes | undefined;
  /** How long one end may stay open after the other has closed and everything was written. */
  readonly lingerMs: number;
  /** Destroys both ends. */
  readonly signal: AbortSignal;
  /** For how long the API server must have said nothing before it gets a heartbeat of the client. */
  readonly silentMs?: number;
  /** For what the API server says and the client has not got yet; without one the API server waits for the client. */
  readonly openBuffer?: (events: BufferEvents) => SessionBuffer;
  /** The buffer holds all it may, and the API server waits. */
  readonly beyond?: () => void;
  /**
   * Asked when the API server has ended or broken and all it said is delivered: bytes for the client before its end.
   * `pressed`: see `Relay`.
   */
  readonly lastWords?: (pressed: boolean) => Uint8Array | undefined;
}

export type RelayEnd =
  /** Both ends closed in order; `first` is the one that ended first. */
  | { readonly kind: 'closed'; readonly first: 'client' | 'upstream' }
  /** An end broke; the other one got what it had said, and was closed. */
  | { readonly kind: 'broken'; readonly side: 'client' | 'upstream'; readonly error: Error }
  /** A tap refused a chunk. Nothing more is delivered; both ends are left open for the caller. */
  | { readonly kind: 'refused'; readonly error: unknown }
  /** `stop` or the signal. */
  | { readonly kind: 'stopped' };

export interface Relay {
  /** Resolves once, never rejects. */
  readonly done: Promise<RelayEnd>;
  /** Bytes taken from each end. */
  readonly totals: { readonly fromClient: number; readonly fromUpstream: number };
  /** The API server had to wait for the client, and from then to its end it has always had something to say. */
  readonly pressed: boolean;
  /** Delivers nothing more and leaves both ends open for the caller. */
  stop(): void;
}

/** Starts to relay. From now on until `done` the relay owns both ends. */
export function startRelay(options: RelayOptions): Relay {
  const { client, upstream, taps, signal, silentMs = SILENT_MS } = options;
  const done = Promise.withResolvers<RelayEnd>();
  let over = false;
  let first: 'client' | 'upstream' | undefined;
  let broken: Extract<RelayEnd, { readonly kind: 'broken' }> | undefined;
  let linger: NodeJS.Timeout | undefined;

  const finish = (end: RelayEnd): void => {
    if (over) return;
    over = true;
    heldBack.stop();
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

  const heldBack = new HeldBack({ inbound: () => inbound, outbound: () => outbound, silentMs });
  const inbound: Direction = new Direction({
    source: client,
    sink: upstream,
    tap: taps?.clientToServer,
    refuse,
    consider: (chunk, tap) => heldBack.consider(chunk, tap),
  });
  const outbound: Direction = new Direction({
    ...options,
    source: upstream,
    sink: client,
    tap: taps?.serverToClient,
    refuse,
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
      // Nobody reads what still comes from the other end.
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
    // An end that was gone before the relay began has no more events to tell it.
    if (client.destroyed || upstream.destroyed)
      destroyBoth({ kind: 'closed', first: client.destroyed ? 'client' : 'upstream' });
  }
  return {
    done: done.promise,
    get totals() {
      return { fromClient: inbound.bytes, fromUpstream: outbound.bytes };
    },
    get pressed() {
      return outbound.pressed;
    },
    stop: () => finish({ kind: 'stopped' }),
  };
}

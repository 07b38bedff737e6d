/**
 * Carries bytes between a client and the API server until one of them is done. Knows no protocol.
 *
 * ```
 *   client ──data──► tap.push ──► upstream.write       one chunk under way per direction; a tap that wants to wait,
 *   client ◄──write── tap.push ◄──data── upstream      or a full sink, pauses the source
 * ```
 *
 * Not `stream.pipeline`: it destroys the sink when the source or a stage fails, and a session that is ended by the
 * gateway still has to tell its client why. What pipeline does is done here: errors of both ends, back-pressure,
 * half-close, one signal. A half-close is passed on as one. An end that closes altogether ends the other after what
 * was already read has been written: a client behind a pager may take its time for that. Only then does `lingerMs` run.
 * An end that breaks is treated the same way, because what it said before still counts.
 *
 * A server that has said everything closes its connection while much of it is still in the buffers of the way here, when
 * a slow recorder or a slow client holds it back. One more byte to such a server makes its system throw the rest away.
 * So what may wait, the heartbeats of a client, waits until everything is here.
 */
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';

/** A stage that sees every chunk before it is delivered. */
export interface RelayTap {
  /** A promise holds the chunk back until it resolves; a throw or a rejection stops the relay with the chunk unsent. */
  push(chunk: Uint8Array): void | Promise<void>;
  /** The chunk has been handed to the other end. */
  delivered(): void;
  /**
   * For how long the chunk that was pushed last may be kept back while the other direction is behind, in milliseconds.
   * 0 or nothing: it must not wait for that.
   */
  readonly patienceMs?: number;
}

/** A direction has caught up when nothing held it back, and nothing came, for this long. */
const CAUGHT_UP_MS = 100;

export interface RelayOptions {
  readonly client: Duplex;
  readonly upstream: Duplex;
  /** Bytes that came with the heads of request and response. */
  readonly clientHead: Uint8Array;
  readonly upstreamHead: Uint8Array;
  readonly taps?: { readonly clientToServer: RelayTap; readonly serverToClient: RelayTap };
  /** How long one end may stay open after the other has closed and everything was written. */
  readonly lingerMs: number;
  /** Destroys both ends. */
  readonly signal: AbortSignal;
  /** Asked when the API server has ended or broken and all it said is delivered: bytes for the client before its end. */
  readonly lastWords?: () => Uint8Array | undefined;
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
  /** Delivers nothing more and leaves both ends open for the caller. */
  stop(): void;
}

/** Starts to relay. From now on until `done` the relay owns both ends. */
export function startRelay(options: RelayOptions): Relay {
  const { client, upstream, taps, signal } = options;
  const done = Promise.withResolvers<RelayEnd>();
  let over = false;
  let first: 'client' | 'upstream' | undefined;
  let broken: Extract<RelayEnd, { readonly kind: 'broken' }> | undefined;
  let linger: NodeJS.Timeout | undefined;

  const finish = (end: RelayEnd): void => {
    if (over) return;
    over = true;
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

  const inbound: Direction = createDirection({
    source: client,
    sink: upstream,
    tap: taps?.clientToServer,
    refuse,
    otherIsBehind: () => outbound.behind,
  });
  const outbound: Direction = createDirection({
    source: upstream,
    sink: client,
    tap: taps?.serverToClient,
    refuse,
    otherIsBehind: () => false,
    lastWords: options.lastWords,
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
    stop: () => finish({ kind: 'stopped' }),
  };
}

interface Direction {
  readonly bytes: number;
  /** Something holds it back, or did until a moment ago. */
  readonly behind: boolean;
  start(head: Uint8Array): void;
  stop(): void;
  /** Nothing more comes from the source: the sink is ended when it has what was taken. */
  endSource(): void;
  /** The sink is gone: what still comes is read and dropped, so that the source can end. */
  discard(): void;
}

interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly tap: RelayTap | undefined;
  readonly refuse: (error: unknown) => void;
  readonly otherIsBehind: () => boolean;
  readonly lastWords?: (() => Uint8Array | undefined) | undefined;
}

function createDirection(options: DirectionOptions): Direction {
  const { source, sink, tap, refuse, otherIsBehind, lastWords } = options;
  let bytes = 0;
  /** Reasons to wait: the tap, the sink. The source flows when there is none. */
  let holds = 0;
  let state: 'running' | 'stopped' | 'discarding' = 'running';
  let ended = false;
  /** When it was last held back, or something came after that; undefined when it has caught up. */
  let behindAtMs: number | undefined;

  const hold = (): void => {
    holds += 1;
    source.pause();
  };
  const release = (): void => {
    holds -= 1;
    behindAtMs = performance.now();
    if (holds > 0 || state === 'stopped') return;
    if (ended) endSink();
    else source.resume();
  };
  const endSink = (): void => {
    if (state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.();
    if (words === undefined) sink.end();
    else sink.end(words);
  };
  const deliver = (chunk: Uint8Array): void => {
    if (state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const room = sink.write(chunk);
    tap?.delivered();
    if (room) return;
    hold();
    sink.once('drain', release);
  };
  const take = (chunk: Uint8Array): void => {
    if (state !== 'running') return;
    bytes += chunk.length;
    if (behindAtMs !== undefined) behindAtMs = performance.now();
    if (tap === undefined) return deliver(chunk);
    let wait: void | Promise<void>;
    try {
      wait = tap.push(chunk);
    } catch (error) {
      return refuse(error);
    }
    const { patienceMs = 0 } = tap;
    const mayWait = patienceMs > 0 && otherIsBehind();
    if (wait === undefined && !mayWait) return deliver(chunk);
    hold();
    Promise.resolve(wait)
      .then(() => (mayWait ? waitForOther(patienceMs) : undefined))
      .then(() => {
        deliver(chunk);
        release();
      }, refuse);
  };
  const waitForOther = async (patienceMs: number): Promise<void> => {
    const untilMs = performance.now() + patienceMs;
    while (state === 'running' && otherIsBehind() && performance.now() < untilMs) {
      await delay(CAUGHT_UP_MS / 4);
    }
  };
  // A socket says that it has ended even while it is paused, with a chunk still in the hands of the tap.
  const onEnd = (): void => {
    ended = true;
    if (holds === 0) endSink();
  };
  return {
    get bytes() {
      return bytes;
    },
    get behind() {
      if (state !== 'running') return false;
      if (holds > 0) return true;
      if (behindAtMs !== undefined && performance.now() - behindAtMs > CAUGHT_UP_MS) behindAtMs = undefined;
      return behindAtMs !== undefined;
    },
    start(head) {
      source.pause();
      source.on('data', take);
      source.once('end', onEnd);
      if (head.length > 0) take(head);
      if (holds === 0 && state === 'running') source.resume();
    },
    stop() {
      state = 'stopped';
      source.off('data', take);
      source.off('end', onEnd);
      sink.off('drain', release);
      source.pause();
    },
    endSource: onEnd,
    discard() {
      if (state === 'stopped') return;
      state = 'discarding';
      source.resume();
    },
  };
}

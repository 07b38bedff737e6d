/** A worker's connection to its primary. */
import type { Registry } from 'prom-client';
import { TailcastError } from '../errors.ts';
import type { SessionFields } from '../observe/events.ts';
import { asToWorker, type FromWorker, type PlaceLimits, type ToWorker } from './messages.ts';

/** The channel to the primary; Node's `process` in a process that was forked. */
export interface PrimaryChannel {
  send(message: FromWorker, done: () => void): void;
  onMessage(listener: (message: unknown) => void): void;
  /** The primary is gone. */
  onGone(listener: () => void): void;
  /** From now on the channel keeps the process from ending no more. */
  release(): void;
}

/** What a worker shows of itself while it serves. */
export interface WorkerParts {
  readonly registry: Pick<Registry, 'getMetricsAsJSON'>;
  /** @returns what is wrong; empty when nothing is */
  readonly health: () => Promise<readonly string[]>;
}

export interface WorkerLink {
  readonly slot: number;
  readonly count: number;
  /** The port that all workers share. */
  readonly port: number;
  readonly ticketKeys: Buffer;
  /** Aborts when this worker is to drain and end. */
  readonly signal: AbortSignal;
  /** It serves from now on. */
  ready(parts: WorkerParts): void;
  /** It drains and ends by itself: another one is to take its place. */
  failing(): void;
  /**
   * Asks for the place of a session.
   *
   * @returns gives it back; to be called once
   * @throws TailcastError `OVERLOADED`
   */
  enter(user: string, limits: PlaceLimits): Promise<() => void>;
  sessionBegan(session: SessionFields): void;
  sessionOver(sessionId: string): void;
  /** Leaves the last counts with the primary; the process can end then. */
  close(): Promise<void>;
}

/** Resolves when the primary has said which worker this is. */
export async function joinPrimary(channel: PrimaryChannel): Promise<WorkerLink> {
  const started = Promise.withResolvers<Extract<ToWorker, { readonly kind: 'start' }>>();
  const stop = new AbortController();
  const waiting = new Map<number, (refusal: string | undefined) => void>();
  let parts: WorkerParts | undefined;
  let lastId = 0;
  let gone = false;

  const send = (message: FromWorker): Promise<void> =>
    new Promise((resolve) => {
      if (gone) resolve();
      else channel.send(message, resolve);
    });
  channel.onMessage((raw) => {
    const message = asToWorker(raw);
    switch (message?.kind) {
      case 'start':
        return started.resolve(message);
      case 'stop':
        return stop.abort(new Error('the primary wants this worker to end'));
      case 'ask':
        return void answer(message.id, message.what);
      case 'place':
        waiting.get(message.id)?.(message.refusal);
        waiting.delete(message.id);
        return;
      case undefined:
    }
  });
  channel.onGone(() => {
    gone = true;
    stop.abort(new Error('the primary is gone'));
    for (const settle of waiting.values()) settle('the gateway is shutting down');
    waiting.clear();
  });
  async function answer(id: number, what: 'metrics' | 'health'): Promise<void> {
    if (what === 'metrics') {
      await send({ kind: 'metrics', id, metrics: (await parts?.registry.getMetricsAsJSON()) ?? [] });
    } else {
      await send({ kind: 'health', id, failures: (await parts?.health()) ?? ['it is starting'] });
    }
  }

  const { slot, count, port, ticketKeys } = await started.promise;
  return {
    slot,
    count,
    port,
    ticketKeys: Buffer.from(ticketKeys, 'base64'),
    signal: stop.signal,
    ready(given) {
      parts = given;
      void send({ kind: 'ready' });
    },
    failing: () => void send({ kind: 'failing' }),
    async enter(user, limits) {
      lastId += 1;
      const id = lastId;
      const answered = Promise.withResolvers<string | undefined>();
      waiting.set(id, answered.resolve);
      void send({ kind: 'enter', id, user, limits });
      if (gone) answered.resolve('the gateway is shutting down');
      const refusal = await answered.promise;
      if (refusal !== undefined) throw new TailcastError('OVERLOADED', refusal);
      return () => void send({ kind: 'leave', id });
    },
    sessionBegan: (session) => void send({ kind: 'began', session }),
    sessionOver: (sessionId) => void send({ kind: 'over', sessionId }),
    async close() {
      if (parts !== undefined) {
        await send({ kind: 'last', metrics: await parts.registry.getMetricsAsJSON() });
      }
      channel.release();
    },
  };
}

/**
 * What the primary process and its workers say to each other over Node's IPC channel. Both ends are of one build, so a
 * message that cannot be read is a defect; it is ignored rather than believed.
 */
import type { SessionFields } from '../observe/events.ts';

/** One metric as prom-client gives it: `registry.getMetricsAsJSON()`. */
export interface MetricSnapshot {
  readonly name: string;
  /** A word, e.g. `counter`. */
  readonly type: unknown;
}

export type ToWorker =
  /** The first message: which worker this is. */
  | {
      readonly kind: 'start';
      /** From 0. A worker that replaces another one has the same. */
      readonly slot: number;
      readonly count: number;
      /** The port that all workers share. */
      readonly port: number;
      /** 48 bytes, base64: a session ticket of one worker is good at all of them. */
      readonly ticketKeys: string;
    }
  /** Drain and end. */
  | { readonly kind: 'stop' }
  | { readonly kind: 'ask'; readonly id: number; readonly what: 'metrics' | 'health' }
  /** Answers `enter`; a refusal is a sentence for the user. */
  | { readonly kind: 'place'; readonly id: number; readonly refusal?: string };

export type FromWorker =
  /** It serves. */
  | { readonly kind: 'ready' }
  /** Something happened that must not: it drains and ends, and somebody else should serve. */
  | { readonly kind: 'failing' }
  | { readonly kind: 'metrics'; readonly id: number; readonly metrics: readonly MetricSnapshot[] }
  | { readonly kind: 'health'; readonly id: number; readonly failures: readonly string[] }
  /** Asks for the place of a session. */
  | {
      readonly kind: 'enter';
      readonly id: number;
      readonly user: string;
      readonly limits: PlaceLimits;
    }
  | { readonly kind: 'leave'; readonly id: number }
  | { readonly kind: 'began'; readonly session: SessionFields }
  | { readonly kind: 'over'; readonly sessionId: string }
  /** The counts of a worker that ends by itself. */
  | { readonly kind: 'last'; readonly metrics: readonly MetricSnapshot[] };

/** How many sessions there may be, in all workers together. */
export interface PlaceLimits {
  readonly perUser: number;
  readonly total: number;
}

/** @returns undefined for what is no message of a worker, e.g. one of another library on the same channel. */
export function asFromWorker(message: unknown): FromWorker | undefined {
  return isMessage<FromWorker>(message, FROM_WORKER) ? message : undefined;
}

export function asToWorker(message: unknown): ToWorker | undefined {
  return isMessage<ToWorker>(message, TO_WORKER) ? message : undefined;
}

const FROM_WORKER: ReadonlySet<unknown> = new Set<FromWorker['kind']>([
  'ready',
  'failing',
  'metrics',
  'health',
  'enter',
  'leave',
  'began',
  'over',
  'last',
]);
const TO_WORKER: ReadonlySet<unknown> = new Set<ToWorker['kind']>(['start', 'stop', 'ask', 'place']);

function isMessage<T extends { readonly kind: string }>(
  message: unknown,
  kinds: ReadonlySet<unknown>,
): message is T {
  return typeof message === 'object' && message !== null && 'kind' in message && kinds.has(message.kind);
}

/**
 * How many sessions there may be when several processes have them: the primary gives out the places, and takes back
 * those of a worker that has ended, with a list of what it had open.
 */
import type { SessionFields } from '../observe/events.ts';
import { createPlaceCount } from '../place-count.ts';
import type { PlaceLimits } from './messages.ts';

/** A session that ended with its worker. */
export interface LostSession {
  readonly session: SessionFields;
  /** As long as it is known of. */
  readonly durationMs: number;
}

interface WorkerSessions {
  /** What gives a place back, by the number that the worker gave it. */
  readonly places: Map<number, () => void>;
  readonly open: Map<string, { readonly session: SessionFields; readonly sinceMs: number }>;
}

/** One per primary. Workers are told apart by identity, so that one and its replacement are never confused. */
export class SessionPlaces {
  readonly #taken = createPlaceCount();
  readonly #workers = new Map<object, WorkerSessions>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Places now taken. */
  get total(): number {
    return this.#taken.total;
  }

  /** @returns undefined when there was a place, else why there is none. */
  enter(worker: object, id: number, user: string, limits: PlaceLimits): string | undefined {
    const own = this.#taken.takenBy(user);
    if (own >= limits.perUser) return `you have ${own} sessions open, and no more are allowed`;
    if (this.total >= limits.total) return `${this.total} sessions are open, and no more are allowed`;
    this.#of(worker).places.set(id, this.#taken.take(user));
    return undefined;
  }

  leave(worker: object, id: number): void {
    const places = this.#workers.get(worker)?.places;
    places?.get(id)?.();
    places?.delete(id);
  }

  began(worker: object, session: SessionFields): void {
    this.#of(worker).open.set(session.sessionId, { session, sinceMs: this.#nowMs() });
  }

  over(worker: object, sessionId: string): void {
    this.#workers.get(worker)?.open.delete(sessionId);
  }

  /** The worker has ended: its places are free. @returns what it still had open. */
  lost(worker: object): readonly LostSession[] {
    const had = this.#workers.get(worker);
    if (had === undefined) return [];
    this.#workers.delete(worker);
    for (const giveBack of had.places.values()) giveBack();
    const now = this.#nowMs();
    return [...had.open.values()].map(({ session, sinceMs }) => ({ session, durationMs: now - sinceMs }));
  }

  #of(worker: object): WorkerSessions {
    let sessions = this.#workers.get(worker);
    if (sessions === undefined) {
      sessions = { places: new Map(), open: new Map() };
      this.#workers.set(worker, sessions);
    }
    return sessions;
  }
}

import { describe, expect, it } from 'vitest';
import { SessionPlaces } from '../../src/workers/session-places.ts';

const LIMITS = { perUser: 2, total: 3 };
const session = (sessionId: string) => ({ sessionId, user: 'a', node: 'n', kind: 'exec' });

describe('places of sessions in several processes', () => {
  it('are counted over all workers, by user and in total', () => {
    const places = new SessionPlaces(() => 0);
    const [one, two] = [{}, {}];
    expect(places.enter(one, 1, 'a', LIMITS)).toBeUndefined();
    expect(places.enter(two, 1, 'a', LIMITS)).toBeUndefined();
    expect(places.enter(two, 2, 'a', LIMITS)).toMatch(/you have 2 sessions/);
    expect(places.enter(one, 2, 'b', LIMITS)).toBeUndefined();
    expect(places.enter(two, 3, 'c', LIMITS)).toMatch(/^3 sessions are open/);
    places.leave(two, 1);
    // a refused one and one that has left have no place to give back
    places.leave(two, 1);
    places.leave(two, 2);
    expect(places.total).toBe(2);
    expect(places.enter(two, 4, 'a', LIMITS)).toBeUndefined();
  });

  it('come back when a worker ends, with what it had open', () => {
    let now = 100;
    const places = new SessionPlaces(() => now);
    const [one, two] = [{}, {}];
    places.enter(one, 1, 'a', LIMITS);
    places.enter(one, 2, 'a', LIMITS);
    places.enter(two, 1, 'b', LIMITS);
    places.began(one, session('s1'));
    places.began(one, session('s2'));
    places.over(one, 's1');
    now = 350;
    expect(places.lost(one)).toEqual([{ session: session('s2'), durationMs: 250 }]);
    expect(places.lost(one)).toEqual([]);
    expect(places.total).toBe(1);
    expect(places.enter(two, 2, 'a', LIMITS)).toBeUndefined();
  });
});

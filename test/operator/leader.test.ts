import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { KubeRefusal, type KubeClient } from '../../src/operator/kube-client.ts';
import type { KubeObject } from '../../src/operator/kube-object.ts';
import { runWhileLeading } from '../../src/operator/leader.ts';
import { createFakeClock, settle, type FakeClock } from './fake-clock.ts';

type LeaseClient = Pick<KubeClient, 'get' | 'create' | 'patch'>;

/** A Lease in memory. As at the API server, a write must contain the newest resource version. */
interface LeaseStore extends LeaseClient {
  spec: Record<string, unknown> | undefined;
  /** Called before the next write. */
  beforeWrite: (() => void) | undefined;
  /** True if the API server is unreachable. */
  away: boolean;
}

function createLeaseStore(): LeaseStore {
  let version = 1;
  const object = (): KubeObject => ({
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'operator', namespace: 'tailcast', resourceVersion: String(version) },
    spec: leases.spec,
  });
  const reach = async (): Promise<void> => {
    await Promise.resolve();
    if (leases.away) throw new Error('the API server is away');
  };
  const leases: LeaseStore = {
    spec: undefined,
    beforeWrite: undefined,
    away: false,
    async get() {
      await reach();
      return leases.spec === undefined ? undefined : object();
    },
    async create(_kind, created) {
      await reach();
      if (leases.spec !== undefined) throw new KubeRefusal('POST', 409, 'AlreadyExists', 'exists');
      ({ spec: leases.spec } = created as { spec: Record<string, unknown> });
      return object();
    },
    async patch(_kind, _reference, { body }) {
      await reach();
      const { metadata, spec } = body as {
        metadata: { resourceVersion: string };
        spec: Record<string, unknown>;
      };
      const intrusion = leases.beforeWrite;
      leases.beforeWrite = undefined;
      if (intrusion !== undefined) {
        intrusion();
        version += 1;
      }
      if (metadata.resourceVersion !== String(version)) {
        throw new KubeRefusal('PATCH', 409, 'Conflict', 'stale');
      }
      leases.spec = { ...leases.spec, ...spec };
      version += 1;
      return object();
    },
  };
  return leases;
}

interface Candidate {
  readonly abort: AbortController;
  leading: boolean;
  terms: number;
  /** Ends the work that the process does as leader. */
  finish(): void;
  done: Promise<void>;
}

let store: LeaseStore;
let clock: FakeClock;
const open: Candidate[] = [];

beforeEach(() => {
  store = createLeaseStore();
  clock = createFakeClock();
});

afterEach(async () => {
  for (const { abort, done } of open.splice(0)) {
    abort.abort();
    await done;
  }
});

function join(identity: string, client: LeaseClient = store): Candidate {
  const abort = new AbortController();
  let end: () => void = () => undefined;
  const candidate: Candidate = {
    abort,
    leading: false,
    terms: 0,
    finish: () => end(),
    done: Promise.resolve(),
  };
  const lead = (signal: AbortSignal): Promise<void> => {
    candidate.leading = true;
    candidate.terms += 1;
    return new Promise<void>((resolve) => {
      end = resolve;
      signal.addEventListener('abort', () => resolve(), { once: true });
    }).finally(() => (candidate.leading = false));
  };
  const names = { namespace: 'tailcast', name: 'operator', identity };
  const options = { client, ...names, clock, log: createSilentLogger() };
  candidate.done = runWhileLeading(options, lead, abort.signal);
  open.push(candidate);
  return candidate;
}

describe('leader election', () => {
  it('lets one lead, and the next when that one lets go', async () => {
    const first = join('first');
    await settle();
    const second = join('second');
    await clock.advance(60_000);
    expect([first.leading, second.leading]).toEqual([true, false]);
    expect(store.spec).toMatchObject({
      holderIdentity: 'first',
      leaseDurationSeconds: 15,
      leaseTransitions: 0,
    });
    first.abort.abort();
    await first.done;
    expect(store.spec).toMatchObject({ holderIdentity: '' });
    await clock.advance(2_000);
    expect(second.leading).toBe(true);
    expect(store.spec).toMatchObject({ holderIdentity: 'second', leaseTransitions: 1 });
  });

  it('waits for the whole duration when a leader dies without a word', async () => {
    let dead = false;
    const alive = async (): Promise<void> => {
      if (dead) throw new Error('dead');
    };
    const first = join('first', {
      get: (...rest) => alive().then(() => store.get(...rest)),
      create: (...rest) => alive().then(() => store.create(...rest)),
      patch: (...rest) => alive().then(() => store.patch(...rest)),
    });
    await settle();
    const second = join('second');
    await clock.advance(4_000);
    dead = true;
    await clock.advance(9_000);
    expect([first.leading, second.leading]).toEqual([true, false]);
    await clock.advance(2_000);
    // The first leader must stop before another one may start.
    expect([first.leading, second.leading]).toEqual([false, false]);
    await clock.advance(7_000);
    expect([first.leading, second.leading]).toEqual([false, true]);
  });

  it('is never led by two at the same time, whoever is cut off when', async () => {
    const cut = new Set<string>();
    const reachable = (name: string): LeaseClient => {
      const check = async (): Promise<void> => {
        if (cut.has(name)) throw new Error('cut off');
      };
      return {
        get: (...rest) => check().then(() => store.get(...rest)),
        create: (...rest) => check().then(() => store.create(...rest)),
        patch: (...rest) => check().then(() => store.patch(...rest)),
      };
    };
    const candidates = ['a', 'b', 'c'].map((name) => join(name, reachable(name)));
    let terms = 0;
    for (let second = 0; second < 600; second += 1) {
      if (second % 7 === 0) {
        const name = ['a', 'b', 'c'][(second * 31) % 3] ?? 'a';
        if (!cut.delete(name)) cut.add(name);
      }
      await clock.advance(1000);
      expect(candidates.filter(({ leading }) => leading).length).toBeLessThanOrEqual(1);
      terms = candidates.reduce((sum, candidate) => sum + candidate.terms, 0);
    }
    expect(terms).toBeGreaterThan(3);
  });

  it('does not lead when somebody else wrote first', async () => {
    store.spec = { holderIdentity: '' };
    store.beforeWrite = () => {
      store.spec = { holderIdentity: 'third', leaseDurationSeconds: 15, renewTime: 'x' };
    };
    const first = join('first');
    await clock.advance(2_000);
    expect(first.leading).toBe(false);
    expect(store.spec).toMatchObject({ holderIdentity: 'third' });
    await clock.advance(16_000);
    expect(first.leading).toBe(true);
  });

  it('goes on leading over a short outage, and comes back after a long one', async () => {
    const first = join('first');
    await settle();
    store.away = true;
    await clock.advance(6_000);
    expect(first.leading).toBe(true);
    store.away = false;
    await clock.advance(4_000);
    expect([first.leading, first.terms]).toEqual([true, 1]);
    store.away = true;
    await clock.advance(13_000);
    expect(first.leading).toBe(false);
    store.away = false;
    await clock.advance(5_000);
    expect([first.leading, first.terms]).toEqual([true, 2]);
  });

  it('stops leading as soon as it reads that another process leads', async () => {
    const first = join('first');
    await settle();
    // as after a suspension of the machine, during which the monotonic clock stops
    store.spec = { holderIdentity: 'third', leaseDurationSeconds: 15, renewTime: 'x' };
    await clock.advance(2_000);
    expect(first.leading).toBe(false);
  });

  it('leads alone when the clock of a machine is set', async () => {
    const first = join('first');
    await settle();
    const second = join('second');
    await clock.advance(4_000);
    clock.set(clock.now() + 3_600_000);
    await clock.advance(4_000);
    expect([first.leading, second.leading]).toEqual([true, false]);
    store.away = true;
    await clock.advance(4_000);
    clock.set(clock.now() - 3_600_000);
    await clock.advance(9_000);
    expect([first.leading, second.leading]).toEqual([false, false]);
  });

  it('ends when the work ends, and lets go', async () => {
    const first = join('first');
    await settle();
    first.finish();
    await first.done;
    expect(store.spec).toMatchObject({ holderIdentity: '' });
  });
});

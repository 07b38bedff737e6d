/**
 * Leader election with a Lease (coordination.k8s.io/v1), with the rules of client-go's `leaderelection`. The process
 * whose name is in the Lease leads while it renews the Lease. A process takes over when its local clock shows that the
 * Lease has not changed for the lease duration. Clocks of different machines are therefore never compared.
 */
import { z } from 'zod';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { Clock } from './clock.ts';
import { KINDS, type KubeObject } from './kube-object.ts';
import type { KubeClient } from './kube-client.ts';

/** Duration of the Lease. If the leader has not renewed the Lease for this time, another process takes over. */
const LEASE_SECONDS = 15;
/**
 * If the leader cannot renew the Lease for this time, it stops leading. This time is shorter than `LEASE_SECONDS`, so
 * the leader stops before another process takes over.
 */
const RENEW_DEADLINE_MS = 10_000;
const RETRY_MS = 2_000;

export interface LeaderOptions {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'patch'>;
  readonly namespace: string;
  readonly name: string;
  /** Name of this process in the Lease; no other process has the same name. */
  readonly identity: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export const leaseSchema = z.object({
  spec: z
    .object({
      holderIdentity: z.string().default(''),
      leaseDurationSeconds: z.number().default(0),
      renewTime: z.string().default(''),
      acquireTime: z.string().default(''),
      leaseTransitions: z.number().default(0),
    })
    .prefault({}),
});

/** Content of the Lease, and the local time at which this process first read this content. */
interface Sighting {
  readonly record: string;
  readonly seenAtMs: number;
}

/**
 * Runs `lead` whenever this process is the leader, until `signal` aborts. The signal of `lead` aborts when the process
 * stops leading. If `lead` returns or throws while the process leads, this function also returns or throws the error.
 */
export async function runWhileLeading(
  options: LeaderOptions,
  lead: (signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { clock, log, identity } = options;
  const candidate = createCandidate(options);
  while (!signal.aborted) {
    if (!(await candidate.attempt(signal))) {
      await pause(RETRY_MS, signal, clock);
      continue;
    }
    log.info({ identity, lease: options.name }, 'leading');
    const lost = new AbortController();
    const work = lead(AbortSignal.any([signal, lost.signal])).finally(() => lost.abort());
    await renew(candidate, clock, AbortSignal.any([signal, lost.signal]));
    const ended = lost.signal.aborted;
    lost.abort(new Error('the lease is lost'));
    await work;
    if (signal.aborted || ended) {
      await candidate.release();
      return;
    }
    log.warn({ identity, lease: options.name }, 'leading no more');
  }
}

/**
 * Renews the Lease periodically. Returns if a renewal does not succeed in time, if another process has the Lease, or
 * when `signal` aborts.
 */
async function renew(candidate: Candidate, clock: Clock, signal: AbortSignal): Promise<void> {
  let renewedAtMs = clock.monotonic();
  while (!signal.aborted) {
    await pause(RETRY_MS, signal, clock);
    if (signal.aborted) return;
    const left = RENEW_DEADLINE_MS - (clock.monotonic() - renewedAtMs);
    if (left <= 0) return;
    const attempt = new AbortController();
    const cancel = clock.schedule(left, () =>
      attempt.abort(new Error('the lease could not be renewed in time')),
    );
    const startedAtMs = clock.monotonic();
    const renewed = await candidate.attempt(AbortSignal.any([signal, attempt.signal]));
    cancel();
    if (renewed === false) return;
    if (renewed) renewedAtMs = startedAtMs;
  }
}

type Candidate = ReturnType<typeof createCandidate>;

function createCandidate(options: LeaderOptions) {
  const { client, namespace, name, identity, clock, log } = options;
  const reference = { namespace, name };
  let sighting: Sighting | undefined;

  async function attempt(signal: AbortSignal): Promise<boolean> {
    const lease = await client.get(KINDS.lease, reference, signal);
    const now = new Date(clock.now()).toISOString().replace('Z', '000Z');
    const own = { holderIdentity: identity, leaseDurationSeconds: LEASE_SECONDS, renewTime: now };
    if (lease === undefined) {
      const { apiVersion, kind } = KINDS.lease;
      const spec = { ...own, acquireTime: now, leaseTransitions: 0 };
      await client.create(KINDS.lease, { apiVersion, kind, metadata: { name, namespace }, spec }, signal);
      return true;
    }
    const { spec } = leaseSchema.parse(lease);
    const record = JSON.stringify(spec);
    if (sighting?.record !== record) sighting = { record, seenAtMs: clock.monotonic() };
    const ours = spec.holderIdentity === identity;
    const expired = clock.monotonic() - sighting.seenAtMs >= spec.leaseDurationSeconds * 1000;
    if (!ours && spec.holderIdentity !== '' && !expired) return false;
    const next = {
      ...own,
      acquireTime: ours ? spec.acquireTime : now,
      leaseTransitions: spec.leaseTransitions + (ours ? 0 : 1),
    };
    await write(lease, next, signal);
    return true;
  }

  /** Because of the resource version, the write fails if another process has changed the Lease in the meantime. */
  async function write(lease: KubeObject, spec: object, signal: AbortSignal): Promise<void> {
    const { resourceVersion } = lease.metadata;
    await client.patch(
      KINDS.lease,
      reference,
      { kind: 'merge', body: { metadata: { resourceVersion }, spec } },
      signal,
    );
  }

  return {
    /** Acquires or renews the Lease. @returns false if another process has it; undefined if the request failed */
    async attempt(signal: AbortSignal): Promise<boolean | undefined> {
      try {
        return await attempt(signal);
      } catch (error) {
        if (!signal.aborted) log.debug({ lease: name, error: errorText(error) }, 'lease not taken');
        return undefined;
      }
    },
    /** Releases the Lease, so that another process can lead immediately. */
    async release(): Promise<void> {
      try {
        const signal = AbortSignal.timeout(3000);
        const lease = await client.get(KINDS.lease, reference, signal);
        if (lease === undefined || leaseSchema.parse(lease).spec.holderIdentity !== identity) return;
        await write(lease, { holderIdentity: '', leaseDurationSeconds: 1 }, signal);
      } catch (error) {
        log.debug({ lease: name, error: errorText(error) }, 'lease not released; it expires');
      }
    },
  };
}

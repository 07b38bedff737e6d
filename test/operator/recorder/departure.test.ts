/** Removal of nodes whose pods registered them and exited before they reported their device. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ReconcilerDeps } from '../../../src/operator/workload/reconciler.ts';
import { createRecorderReconciler } from '../../../src/operator/recorder/reconcile.ts';
import { createBench, survives, MACHINE, OWN, settle, TAILSCALE, type Bench } from '../bench.ts';
import { recorderObject, S3 } from './recorders.ts';

const PATH = `${TAILSCALE}/recorders/keep`;
const EVIDENCE = `${OWN}/secrets/keep-evidence`;
const STATE = `${OWN}/secrets/keep-0`;

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

/** Creates the Recorder reconciler of one operator process. */
function operator(deps: ReconcilerDeps): () => Promise<number | undefined> {
  const reconciler = createRecorderReconciler(deps);
  return () => reconciler.reconcile('keep');
}
function put(replicas: number, deleted = false): void {
  const { metadata } = bench.object(PATH) ?? { metadata: { name: 'keep' } };
  const end = deleted ? { deletionTimestamp: new Date().toISOString() } : {};
  bench.api.put(PATH, recorderObject({ replicas, storage: S3 }, { ...metadata, ...end }));
}
function say(data: Readonly<Record<string, string>>): void {
  const encoded = Object.entries(data).map(([key, value]) => [key, btoa(value)]);
  bench.api.put(STATE, { ...bench.object(STATE)!, data: Object.fromEntries(encoded) as object });
}
const nodes = (): readonly string[] => [...bench.control.devices.keys()];

describe('a Recorder that is deleted', () => {
  let run: () => Promise<number | undefined>;
  const remove = (): void => put(1, true);
  const joinAndDie = (): void => bench.joinAndDie('keep-0');

  beforeEach(async () => {
    put(1);
    run = operator(bench.deps());
    await run();
    bench.control.devices.set('other', { hostname: 'keep-0', addresses: [] });
    bench.control.machineKeys.set('other', `mkey:${'0'.repeat(64)}`);
  });

  it('takes the node with the key of its machine along, and nobody else’s of the same name', async () => {
    joinAndDie();
    remove();
    await settle(run);
    expect([bench.control.deleted, nodes()]).toEqual([['died-keep-0'], ['other']]);
    expect([bench.object(PATH), bench.left(), bench.names()]).toEqual([undefined, [EVIDENCE], []]);
  });

  it('reads what its pod wrote after everything else was looked at', async () => {
    const revoke = bench.control.revokeKey.bind(bench.control);
    bench.control.revokeKey = async (...call) => {
      joinAndDie();
      return revoke(...call);
    };
    remove();
    await settle(run);
    expect(nodes()).toEqual(['other']);
  });

  it('lets nobody join between the look at all nodes and its end', async () => {
    joinAndDie();
    const all = bench.control.allDevices.bind(bench.control);
    let usable: boolean | undefined;
    bench.control.allDevices = async (...call) => {
      usable = bench.control.keys.get('key-1')?.usable;
      return all(...call);
    };
    remove();
    await settle(run);
    expect(usable).toBe(false);
  });

  it('finds the node that came after one an administrator removed', async () => {
    bench.join('keep-0');
    bench.control.devices.delete('node-keep-0');
    joinAndDie();
    remove();
    await settle(run);
    expect(nodes()).toEqual(['other']);
  });

  it.each<[string, Readonly<Record<string, string>>]>([
    ['nothing', {}],
    ['no key', { _machinekey: 'privkey:' }],
    ['a key of zeros', { _machinekey: `privkey:${'0'.repeat(64)}` }],
    ['a key of another kind', { _machinekey: MACHINE.publicKey }],
  ])('removes none where its state has %s', async (_what, data) => {
    bench.control.devices.set('nameless', { hostname: 'shared', addresses: [] });
    say(data);
    remove();
    await settle(run);
    expect([bench.control.deleted, bench.object(PATH)]).toEqual([[], undefined]);
  });

  it('does not ask for all nodes where it knows its own', async () => {
    bench.join('keep-0');
    remove();
    await settle(run);
    expect([bench.control.deleted, bench.control.listed]).toEqual([['node-keep-0'], 0]);
  });

  it('waits while nobody says which nodes there are', async () => {
    joinAndDie();
    remove();
    bench.control.allDevices = () => Promise.reject(new Error('no list today'));
    await expect(settle(run)).rejects.toThrow('no list today');
    expect([bench.object(PATH), bench.object(STATE)]).not.toContain(undefined);
  });

  it('leaves no node when what it owns went before it, as a deletion in the foreground has it', async () => {
    bench.join('keep-0');
    remove();
    const owned = bench.left().filter((path) => bench.object(path)?.metadata.ownerReferences?.length === 1);
    expect(owned.length).toBeGreaterThan(3);
    for (const path of owned) bench.api.remove(path);
    await settle(run);
    expect([nodes(), bench.left(), bench.object(PATH)]).toEqual([['other'], [EVIDENCE], undefined]);
    expect(bench.control.keys.get('key-1')?.usable).toBe(false);
  });
});

describe('a Recorder that stays', () => {
  it('loses the node of a replica that goes', async () => {
    put(2);
    const run = operator(bench.deps());
    await run();
    for (const pod of ['keep-0', 'keep-1']) bench.startPod(pod);
    bench.join('keep-0');
    bench.joinAndDie('keep-1');
    put(1);
    bench.api.remove(`${OWN}/pods/keep-1`);
    await run();
    expect(nodes()).toEqual(['node-keep-0']);
    expect(bench.left()).not.toContain(`${OWN}/secrets/keep-1`);
  });

  it('loses the node of a pod that cannot log in, before that forgets the key of its machine', async () => {
    put(1);
    const run = operator(bench.deps());
    await run();
    bench.joinAndDie('keep-0');
    say({ _machinekey: MACHINE.privateKey, reissue_authkey: 'tskey-1' });
    await run();
    expect([nodes(), bench.data(STATE, 'authkey')]).toEqual([[], 'tskey-2']);
  });
});

describe('an operator that is killed between any two writes', () => {
  /**
   * The first replica joins; the second one registers its node and exits. Then both replicas are removed. The first
   * operator process is killed after `limit` writes.
   */
  async function life(limit: number): Promise<{ readonly survived: boolean }> {
    await bench.close();
    bench = await createBench();
    const mortal = operator(bench.deps(limit));
    const healthy = operator(bench.deps());
    let survived = true;
    async function first(): Promise<void> {
      if (survived) survived = await survives(mortal);
    }
    put(2);
    await first();
    await healthy();
    for (const pod of ['keep-0', 'keep-1']) bench.startPod(pod);
    bench.join('keep-0');
    bench.joinAndDie('keep-1');
    await first();
    await healthy();
    put(2, true);
    for (const pod of ['keep-0', 'keep-1']) bench.api.remove(`${OWN}/pods/${pod}`);
    await first();
    await settle(healthy);
    expect([bench.left(), bench.object(PATH), nodes()], `life of ${limit} writes`).toEqual([
      [EVIDENCE],
      undefined,
      [],
    ]);
    return { survived };
  }

  it('leaves no node', { timeout: 120_000 }, async () => {
    let limit = 0;
    while (!(await life(limit)).survived) limit += 1;
    expect(limit).toBeGreaterThan(15);
    expect(limit).toBeLessThan(120);
  });
});

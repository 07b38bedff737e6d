/** The AccessRequest objects of revoked requests. */
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { connectCluster } from '../../src/operator/cluster-connection.ts';
import { createKubeClient, type KubeClient } from '../../src/operator/kube-client.ts';
import { as, COLLECTION, decider, signal, startRig, user, type Rig } from './rig.ts';

const PODS = '/api/v1/namespaces/default/pods';
const alice = user('alice');
const bob = user('bob');

let rig: Rig;
beforeEach(async () => {
  rig = await startRig();
});
afterEach(() => rig[Symbol.asyncDispose]());
afterEach(() => vi.useRealTimers());

describe('a revoked request', () => {
  it('moves once to a new object, although a finalizer delays the removal of the old one', async () => {
    let rounds = 0;
    const unixMs = (): number => {
      rounds += 1;
      return rig.now;
    };
    const caller = user('alice', [{ request: { groups: ['sre'] } }]);
    const gateway = rig.gateway(caller, { expiryMs: 5, unixMs });
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    const path = `${COLLECTION}/${id}`;
    rig.api.put(path, {
      ...rig.api.objects.get(path),
      metadata: { name: id, finalizers: ['x.example/stay'] },
    });
    let patches = 0;
    rig.api.interfere = ({ method, path: target, body }) => {
      const object = rig.api.objects.get(`${path}-refused`);
      if (method !== 'PATCH' || object === undefined || !target.startsWith(`${path}-refused`))
        return undefined;
      patches += 1;
      // the API server sends no watch event for a patch that changes nothing
      const isSame = JSON.stringify(object['status']) === JSON.stringify(Reflect.get(Object(body), 'status'));
      return isSame ? { status: 200, body: object } : undefined;
    };
    await gateway.access.decide(id, 'revoked', decider(alice), signal);
    await vi.waitFor(() => expect(patches).toBeGreaterThan(2));
    rig.api.remove(path);
    await vi.waitFor(
      async () => {
        const before = [patches, rounds] as const;
        await vi.waitFor(() => expect(rounds).toBeGreaterThan(before[1] + 50), { timeout: 5000 });
        expect(patches).toBe(before[0]);
      },
      { timeout: 5000 },
    );
  });

  it('is stored again if its new object is deleted before the response to its write arrives', async () => {
    const connection = connectCluster({ kubeconfig: rig.api.kubeconfig, context: undefined }, new Map());
    onTestFinished(() => connection.close());
    const base = createKubeClient(connection, signal);
    const deleted = Promise.withResolvers<void>();
    let isFirst = true;
    const client: KubeClient = {
      ...base,
      async *watch(...asked) {
        for await (const event of base.watch(...asked)) {
          yield event;
          if (event.kind === 'deleted' && event.object.metadata.name.endsWith('-refused')) deleted.resolve();
        }
      },
      async patch(...asked) {
        const answer = await base.patch(...asked);
        const [, { name = '' }] = asked;
        if (!isFirst || !name.endsWith('-refused')) return answer;
        isFirst = false;
        rig.api.remove(`${COLLECTION}/${name}`);
        await deleted.promise;
        return answer;
      },
    };
    const caller = user('alice', [{ request: { groups: ['sre'] } }]);
    const gateway = rig.gateway(caller, { expiryMs: 5, client });
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    await gateway.access.decide(id, 'revoked', decider(alice), signal);
    await vi.waitFor(() => expect(rig.api.objects.get(`${COLLECTION}/${id}-refused`)).toBeDefined());
  });

  it('whose object was deleted causes no DELETE request without a name a week after its end', async () => {
    const caller = user('alice', [{ request: { groups: ['sre'] } }]);
    vi.useFakeTimers({ toFake: ['setInterval'] });
    const gateway = rig.gateway(caller);
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    await gateway.access.decide(id, 'revoked', decider(alice), signal);
    rig.api.remove(`${COLLECTION}/${id}-refused`);
    const marker = (
      await rig
        .gateway(user('bob', [{ request: { groups: ['sre'] } }], 'nbob'))
        .ask('GET', PODS, ...as('sre'))
    ).elevation?.id;
    // the watch reports events in order
    await vi.waitFor(async () =>
      expect((await gateway.access.list(decider(bob), signal)).map((one) => one.id)).toContain(marker),
    );
    const deleted = new Set<string>();
    rig.api.interfere = ({ method, path }) => {
      if (method === 'DELETE') deleted.add(path);
      return undefined;
    };
    rig.now += 9 * 86_400_000;
    // the regular maintenance removes old objects
    vi.advanceTimersByTime(15_000);
    await vi.waitFor(() => expect([...deleted]).toContain(`${COLLECTION}/${marker}`));
    expect([...deleted]).toEqual([`${COLLECTION}/${marker}`]);
  });
});

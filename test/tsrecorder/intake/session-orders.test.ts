import { describe, expect, it } from 'vitest';
import { SessionOrders } from '../../../src/tsrecorder/intake/session-orders.ts';
import { encodeAnnotation } from '../../../src/wire/recorder-api/annotation.ts';
import {
  WATCH_INTERVAL_MS,
  type SessionOrder,
  type SessionWatcher,
} from '../../../src/wire/recorder-api/session-order.ts';

const BOB: SessionWatcher = { nodeId: 'nBOB', user: 'bob@example.com' };

/** Opens the session orders of a session whose gateway confirms or refuses each new order immediately. */
function openOrders(refusal?: string) {
  let now = 1_000_000;
  const sent: SessionOrder[] = [];
  const orders = new SessionOrders(1_000, () => now);
  const note = ({ id, by }: SessionOrder, action: 'watch' | 'leave', reason = ''): void =>
    orders.note(encodeAnnotation({ kind: 'order', id, action, by, reason }));
  const attach = (): void =>
    orders.attach((order) => {
      if (sent.every(({ id }) => id !== order.id))
        queueMicrotask(() => note(order, refusal === undefined ? 'watch' : 'leave', refusal));
      sent.push(order);
    });
  attach();
  return {
    orders,
    sent,
    attach,
    note,
    later: (ms: number) => void (now += ms),
    watch: (watcher = BOB) => orders.watch(watcher.user ?? watcher.nodeId, watcher),
  };
}

describe('a viewer who watches', () => {
  it('repeats one order, at most twice in an interval', async () => {
    const { sent, later, watch } = openOrders();
    await watch();
    expect(sent).toEqual([
      { id: sent[0]!.id, action: 'watch', by: 'bob@example.com', reason: '', watcher: BOB },
    ]);
    later(WATCH_INTERVAL_MS / 2);
    await watch();
    expect(sent).toHaveLength(1);
    later(1);
    await watch();
    await watch();
    later(WATCH_INTERVAL_MS);
    await watch();
    expect(sent).toEqual([sent[0], sent[0], sent[0]]);
  });

  it('gives a new order after the gateway was lost', async () => {
    const { orders, sent, attach, watch } = openOrders();
    await watch();
    orders.detach();
    await expect(watch()).rejects.toMatchObject({ code: 'ORDER_IMPOSSIBLE' });
    attach();
    await watch();
    expect(new Set(sent.map(({ id }) => id)).size).toBe(2);
  });

  it('is refused with the reason of the gateway, each time', async () => {
    const { sent, watch } = openOrders('you are no moderator');
    for (let count = 1; count <= 2; count += 1) {
      await expect(watch()).rejects.toMatchObject({ code: 'ORDER_REFUSED', detail: 'you are no moderator' });
      expect(new Set(sent.map(({ id }) => id)).size).toBe(count);
    }
  });

  it('gives a new order after the gateway has noted that the viewer left', async () => {
    const { sent, watch, note } = openOrders();
    await watch();
    note(sent[0]!, 'leave');
    await watch();
    expect(sent[1]!.id).not.toBe(sent[0]!.id);
  });

  it('is another viewer at another node, and without a user', async () => {
    const { sent, watch } = openOrders();
    const watchers = [BOB, { ...BOB, nodeId: 'nPHONE' }, { nodeId: 'nBOB', tags: ['tag:pager'] }];
    for (const watcher of watchers) await watch(watcher);
    expect(sent.map(({ watcher }) => watcher)).toEqual(watchers);
  });

  it('is forgotten after 64 others', async () => {
    const { sent, watch } = openOrders();
    for (let count = 0; count < 65; count += 1) await watch({ nodeId: `n${count}` });
    await watch({ nodeId: 'n64' });
    expect(sent).toHaveLength(65);
    await watch({ nodeId: 'n0' });
    expect(sent[65]!.id).not.toBe(sent[0]!.id);
  });
});

describe('a gateway that confirms nothing', () => {
  it('gets at most 16 orders at a time', async () => {
    const orders = new SessionOrders(1);
    const sent: SessionOrder[] = [];
    orders.attach((order) => void sent.push(order));
    const all = Array.from({ length: 100 }, (_, count) =>
      orders.watch(`eve${count}`, { nodeId: `n${count}` }),
    );
    for (const result of await Promise.allSettled(all))
      expect(result).toMatchObject({ reason: { code: 'ORDER_UNCONFIRMED' } });
    expect(sent).toHaveLength(16);
  });

  it('gets the hold of a rule although 16 orders to watch wait', async () => {
    const orders = new SessionOrders(20);
    const sent: SessionOrder[] = [];
    orders.attach((order) => void sent.push(order));
    const watch = (index: number) => orders.watch(`viewer ${index}`, { nodeId: `n${index}` });
    const waiting = Array.from({ length: 17 }, (_, index) => watch(index));
    const held = orders.give({ action: 'hold', by: 'rule aws-key', reason: '' });
    expect(sent.map(({ action }) => action)).toEqual([...Array<string>(16).fill('watch'), 'hold']);
    await Promise.allSettled([...waiting, held]);
  });

  it('gets at most 4 orders of a viewer, so that another viewer can end the session', async () => {
    const orders = new SessionOrders(1_000);
    const sent: SessionOrder[] = [];
    orders.attach((order) => void sent.push(order));
    const watched = Array.from({ length: 100 }, (_, count) => orders.watch('eve', { nodeId: `n${count}` }));
    const others = Array.from({ length: 20 }, (_, count) =>
      orders.watch(`n${count}`, { nodeId: `n${count}` }),
    );
    const settled = Promise.allSettled([...watched, ...others]);
    const ended = orders.give({ action: 'end', by: 'bob', reason: '' });
    expect(sent.filter(({ by }) => by === 'eve')).toHaveLength(4);
    const { id } = sent.at(-1)!;
    orders.note(encodeAnnotation({ kind: 'order', id, action: 'end', by: 'bob', reason: '' }));
    await ended;
    orders.detach();
    for (const { status } of await settled) expect(status).toBe('rejected');
  });
});

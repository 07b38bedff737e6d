/** Two recorders of one store, with the same rules: a receiver knows by the id that it is told the same. */
import { rm } from 'node:fs/promises';
import { expect, it, onTestFinished } from 'vitest';
import { createRig, HEADER, until, uploadWhole, type Rig } from '../../recorder-rig.ts';
import { alertsFor, openReceiver } from './webhook-receiver.ts';

async function indexed(rig: Rig, sessions: number): Promise<void> {
  await until(async () => {
    const { body } = await rig.get('/api/v1/index');
    const { state, sessions: count } = JSON.parse(body) as { state?: string; sessions?: number };
    return state === 'ready' && count === sessions ? true : undefined;
  });
}

it('an alert of two recorders has one id, also after both were started again, and each session its own', async () => {
  await using receiver = await openReceiver();
  const options = {
    searchText: 'all',
    timing: { listRefreshMs: 0 },
    alerts: alertsFor(receiver.url),
  } as const;
  await using one = await createRig(options);
  const second = `${one.directory}.two`;
  onTestFinished(() => rm(second, { recursive: true, force: true }));
  await using two = await createRig({ ...options, spoolDirectory: second }, one.directory);
  await uploadWhole(one.recorder, `${HEADER}[1.5,"o","needle"]\n`);
  await uploadWhole(two.recorder, `${HEADER}[1.5,"o","another needle"]\n`);
  await Promise.all([indexed(one, 2), indexed(two, 2)]);
  const ids = (): ReadonlySet<string> => new Set(receiver.received.map(({ id }) => id));
  const sessions = (): ReadonlySet<unknown> =>
    new Set(receiver.received.map(({ data }) => data.recording['id']));
  // each of the two tells both
  await until(async () => (receiver.received.length >= 4 ? true : undefined));
  expect([ids().size, sessions().size, receiver.received.length]).toEqual([2, 2, 4]);
  const again = await one.restart();
  await two.recorder.close();
  const other = await createRig({ ...options, spoolDirectory: second }, one.directory);
  await uploadWhole(again.recorder, `${HEADER}[1.5,"o","a third needle"]\n`);
  await Promise.all([indexed(again, 3), indexed(other, 3)]);
  await until(async () => (receiver.received.length >= 6 ? true : undefined));
  expect([ids().size, sessions().size, receiver.received.length]).toEqual([3, 3, 6]);
  await again.recorder.close();
  await other.recorder.close();
});

/**
 * After its recorder was killed, a gateway continues a session at another recorder with a separate store. The tests
 * list each store, and both stores together. All roles run in separate processes.
 */
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { eventually, type RoleProcess } from '../support/role-process.ts';
import { recordings, startSite, type Site } from './site.ts';

let site: Site;
const running = new Set<RoleProcess>();

beforeAll(async () => {
  site = await startSite();
});
afterAll(async () => {
  await Promise.all(Array.from(running, (role) => role.stop()));
  await site.close();
});

const storeOf = (name: string): string => join(site.directory, `store-${name}`);
async function startRecorder(name: string, listen = '127.0.0.1:0'): Promise<RoleProcess> {
  const recorder = await site.startRecorder(name, { store: storeOf(name), listen });
  running.add(recorder);
  return recorder;
}
async function stop(role: RoleProcess): Promise<void> {
  running.delete(role);
  await role.stop();
}

async function run(...args: readonly string[]): Promise<{ readonly code: number; readonly out: string }> {
  const stdout = new PassThrough();
  const { signal } = new AbortController();
  const environment = new Map([['HOME', site.directory]]);
  const code = await runProgram(args, { environment, signal, stdout, stderr: stdout });
  stdout.end();
  return { code, out: Buffer.concat(await Array.fromAsync(stdout)).toString() };
}

it('a session that moved to a recorder with another store is one, and each list says where the rest is', async () => {
  const [first, second] = [await startRecorder('one'), await startRecorder('two')];
  const gateway = await site.startGateway([first, second]);
  running.add(gateway);
  const count = 'i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo "line-$i-"; sleep 0.02; done; exit 3';
  const shell = await site.exec(gateway, ['sh', '-c', count]);
  await shell.until('line-20-');
  first.signal('SIGKILL');
  await stop(first);
  await shell.until('line-150-');
  await shell.over;
  // the first recorder restarts on the same address, and ends its sessions
  const back = await startRecorder('one', `127.0.0.1:${first.port}`);
  const ofFirst = await eventually(
    'the first recorder has given the session up',
    async () =>
      (await recordings(back)).find(({ state, part }) => state === 'interrupted' && part !== undefined),
    60_000,
  );
  const ofSecond = await eventually(
    'the second recorder has the end',
    async () => (await recordings(second)).find(({ result, part }) => result === '3' && part !== undefined),
    60_000,
  );
  const [here, there] = [`127.0.0.1:${first.port}`, `127.0.0.1:${second.port}`];
  expect(ofFirst.part).toMatchObject({ number: 1, from: 0, after: [there] });
  expect(ofFirst.problem).toContain(`the session may continue at ${there}`);
  expect(ofSecond.part).toMatchObject({ number: 2, before: here });
  expect(ofSecond.part).not.toHaveProperty('after');
  expect(ofSecond.problem).toMatch(
    new RegExp(String.raw`^\d+ bytes of the upload are with the recorder at ${here}, or lost$`),
  );
  expect(ofSecond.part?.session).toBe(ofFirst.part?.session);
  for (const role of [gateway, back, second]) await stop(role);

  const stores = ['one', 'two'].map(storeOf);
  const listed = await run('ls', '--json', ...stores.flatMap((store) => ['--store', store]));
  expect(
    listed.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown),
  ).toMatchObject([{ state: 'completed', result: '3' }]);
  expect(listed.out).not.toContain('"problem"');
  const played = await run(
    'play',
    'latest',
    '--raw',
    '--speed',
    '1000',
    ...stores.flatMap((store) => ['--store', store]),
  );
  expect(played.out).toBe(shell.output);

  const keys = await Promise.all(
    ['one', 'two'].map(async (name) => {
      const path = join(site.directory, `spool-${name}`, 'evidence', 'key.pem');
      return (await loadSigningKey(path, false)).public.raw;
    }),
  );
  const both = await run('verify', ...stores, ...keys.flatMap((key) => ['--key', key]));
  expect(both).toMatchObject({ code: 0, out: expect.stringContaining('all stores: verified') as string });
  expect(both.out).not.toContain('part-');
  // with only the first store, `verify` finds no fault, and names the recorder that may have the rest of the session
  const alone = await run('verify', stores[0] ?? '', '--key', keys[0] ?? '');
  expect(alone.code).toBe(0);
  expect(alone.out).toMatch(
    new RegExp(
      String.raw`notice part-after: its session was interrupted at byte \d+; it may continue at ${there}: name its store as well`,
    ),
  );
}, 120_000);

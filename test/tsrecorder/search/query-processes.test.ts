import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { parseQuery } from '../../../src/search/query.ts';
import { createQueryProcesses, QUERY_LIMITS } from '../../../src/tsrecorder/search/query-processes.ts';
import { createRig, HEADER, until, uploadWhole } from '../recorder-rig.ts';
import { startIndexClient } from '../../../src/tsrecorder/search/index-client.ts';

it('query processes are not started after close', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'query-processes-'));
  const writer = await startIndexClient({ directory, mayWrite: true });
  await writer.close();
  const queries = createQueryProcesses({
    place: { directory },
    ...QUERY_LIMITS,
    maxRunning: 1,
    maxWaiting: 1,
  });
  onTestFinished(() => queries.close());
  await queries.close();
  await expect(queries.ask('find', { query: 'hello', limit: 1 } as never)).rejects.toMatchObject({
    code: 'SEARCH_UNAVAILABLE',
    detail: 'the recorder is stopping',
  });
});

it('a query that waits for the CPU succeeds, and a query that runs or waits for too long is stopped', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'query-processes-'));
  const writer = await startIndexClient({ directory, mayWrite: true });
  await writer.close();
  const asked = { query: parseQuery('needle', 0), may: 'everything', page: { limit: 1 } } as const;
  /** Starts a query process, suspends it, and sends a query to the suspended process. */
  const askStopped = async (limits: { maxCpuMs: number; timeoutMs: number }) => {
    const options = { ...QUERY_LIMITS, place: { directory } };
    const queries = createQueryProcesses(options);
    onTestFinished(() => queries.close());
    const before = await childPids();
    await queries.ask('find', asked);
    const [pid] = (await childPids()).filter((each) => !before.includes(each));
    process.kill(pid!, 'SIGSTOP');
    Object.assign(options, limits);
    return { pid: pid!, answer: queries.ask('find', asked) };
  };
  await expect((await askStopped({ maxCpuMs: 0, timeoutMs: 60_000 })).answer).rejects.toMatchObject({
    detail: 'the query took longer than 0 ms of CPU time',
  });
  await expect((await askStopped({ maxCpuMs: 50, timeoutMs: 100 })).answer).rejects.toMatchObject({
    detail: 'the query took longer than 100 ms',
  });
  const patient = await askStopped({ maxCpuMs: 300, timeoutMs: 60_000 });
  await new Promise((resolve) => setTimeout(resolve, 700));
  process.kill(patient.pid, 'SIGCONT');
  expect(await patient.answer).toMatchObject({ sessions: [] });
});

async function childPids(): Promise<number[]> {
  const threads = await readdir('/proc/self/task');
  const lists = await Promise.all(threads.map((id) => readFile(`/proc/self/task/${id}/children`, 'utf8')));
  return lists.flatMap((list) => list.split(' ').filter(Boolean).map(Number));
}

it('queries of one owner leave a process and a slot in the queue to others', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'query-processes-'));
  const writer = await startIndexClient({ directory, mayWrite: true });
  await writer.close();
  const queries = createQueryProcesses({ ...QUERY_LIMITS, place: { directory } });
  onTestFinished(() => queries.close());
  const ask = async (owner: string): Promise<string> => {
    const asked = { query: parseQuery('needle', 0), may: 'everything', page: { limit: 1 } } as const;
    const answer = queries.ask('find', asked, owner);
    return answer.then(
      () => owner,
      (error: { readonly code?: string }) => `${owner} ${error.code}`,
    );
  };
  const flood = Array.from({ length: 30 }, () => ask('mallory'));
  const others = ['alice', 'bob', 'carol'].map(ask);
  expect(await Promise.all(others)).toEqual(['alice', 'bob', 'carol']);
  const answers = await Promise.all(flood);
  // one query of a viewer runs and eight wait; the other 21 are refused
  expect(answers.filter((answer) => answer === 'mallory')).toHaveLength(9);
  expect(answers.filter((answer) => answer === 'mallory SEARCH_BUSY')).toHaveLength(21);
});

it('a viewer with too many searches gets an error with a retry time, and another viewer gets results', async () => {
  let user = 'mallory@example.com';
  let identified = 0;
  await using rig = await createRig({
    searchText: 'all',
    identifyViewer: async () => {
      identified += 1;
      return { node: 'laptop', nodeId: `n${user}`, user };
    },
    timing: { listRefreshMs: 0 },
  });
  await uploadWhole(rig.recorder, `${HEADER}[1,"o","needle"]\n`);
  const search = (): ReturnType<typeof rig.get> => rig.get('/api/v1/search?q=needle');
  await until(async () => ((await search()).status === 200 ? true : undefined));
  const refused = await until(async () => {
    identified = 0;
    const flood = Array.from({ length: 40 }, search);
    await until(async () => (identified === 40 ? true : undefined));
    user = 'alice@example.com';
    const other = await search();
    user = 'mallory@example.com';
    expect(other.status).toBe(200);
    const late = (await Promise.all(flood)).filter(({ status }) => status === 429);
    return late.length > 0 ? late : undefined;
  });
  for (const { headers } of refused) expect(headers['retry-after']).toBe('1');
});

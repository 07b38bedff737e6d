/**
 * Checks that response times reveal nothing to a restricted viewer about hidden recordings. The benchmark sends pairs
 * of requests. The two requests of a pair alternate on one connection. For each pair, the benchmark prints the medians,
 * and the percentage of rounds in which the first response is slower. The times reveal nothing if the percentage is
 * about 50, or if Welch's t is within ±2.6. Exits with 1 if a value of t is outside ±{@link TELLS}. With 5000 rounds
 * each comparison has 10,000 requests. The search requests take half an hour, because the recorder delays each search
 * response to a multiple of 100 ms.
 *
 *   node bench/viewer-timing.ts [hidden recordings] [rounds]
 */
import { Agent, request } from 'node:http';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSilentLogger } from '../src/observe/logger.ts';
import { createRecorder, type RunningRecorder } from '../src/compose/recorder-parts.ts';
import { parseViewRule } from '../src/tsrecorder/serving/viewing.ts';

const [hidden = 5000, rounds = 2000] = process.argv.slice(2).map(Number);
const VISIBLE = 20;
/** Limit of Welch's t above which the benchmark fails. Random noise practically never exceeds this limit. */
const TELLS = 4.5;

function cast(user: string, command: string): string {
  const kubernetes = { PodName: 'web-0', Namespace: 'vault', Container: 'app', SessionType: 'exec' };
  const header = { version: 2, width: 80, height: 24, timestamp: 1, command, srcNodeUser: user, kubernetes };
  return `${JSON.stringify({ ...header, srcNode: 'n', srcNodeID: 'n' })}\n[1,"o",${JSON.stringify(user === 'eve' ? 'z' : 'x')}]\n`;
}

async function startWith(count: number, isIndexed = false): Promise<RunningRecorder & AsyncDisposable> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-timing-'));
  const folder = join(directory, 'nNODE');
  await mkdir(folder);
  for (let index = 0; index < count + VISIBLE; index += 1) {
    const time = new Date(1_700_000_000_000 + index * 1000).toISOString();
    const text = index < VISIBLE ? cast('eve', 'ls') : cast('root', 'psql --password=hunter2');
    await writeFile(join(folder, `${time}.cast`), text);
  }
  const recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory,
    identify: async () => ({ kind: 'refused', reason: 'nobody uploads' }),
    identifyViewer: async () => ({ node: 'eve', nodeId: 'nEVE', user: 'eve' }),
    viewers: [parseViewRule('*=user:eve')],
    ...(isIndexed ? { searchText: 'all' as const } : {}),
    log: createSilentLogger(),
  });
  return {
    ...recorder,
    async [Symbol.asyncDispose]() {
      await recorder.close();
      await rm(directory, { recursive: true });
    },
  };
}

type Question = { readonly of: RunningRecorder; readonly path: string };

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

/**
 * Welch's t of two samples: the difference of their means in standard errors.
 *
 * @returns a value that random noise moves outside ±2.6 in one of a hundred cases
 */
function welch(left: readonly number[], right: readonly number[]): number {
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const error = (values: readonly number[]): number => {
    const middle = mean(values);
    const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0);
    return squares / (values.length - 1) / values.length;
  };
  return (mean(left) - mean(right)) / Math.sqrt(error(left) + error(right));
}

/** Returns the microseconds from the request to the end of the response. */
function ask({ of: { address }, path }: Question): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const began = performance.now();
  request({ host: address.host, port: address.port, path, agent }, (response) => {
    response.resume().once('end', () => resolve((performance.now() - began) * 1000));
  })
    .once('error', reject)
    .end();
  return promise;
}

async function indexIsReady({ address }: RunningRecorder): Promise<boolean> {
  const answer = await fetch(`http://${address.host}:${address.port}/api/v1/search`);
  const { index } = (await answer.json()) as { readonly index?: { readonly state: string } };
  return index?.state === 'ready';
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;

async function compare(name: string, first: Question, second: Question): Promise<void> {
  const times: [number[], number[]] = [[], []];
  for (let round = -100; round < rounds; round += 1) {
    // the order alternates, so that the first request has no advantage
    const inTurn = round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
    for (const which of inTurn) {
      const took = await ask(which === 0 ? first : second);
      if (round >= 0) times[which].push(took);
    }
  }
  const slower = times[0].filter((took, index) => took > (times[1][index] ?? 0)).length;
  const [left, right] = times.map(median);
  const t = welch(...times);
  if (!(Math.abs(t) <= TELLS)) process.exitCode = 1;
  console.log(
    `${name}: ${left?.toFixed(0)} µs and ${right?.toFixed(0)} µs, the first is slower in ` +
      `${((slower / rounds) * 100).toFixed(1)} %, Welch’s t ${t.toFixed(2)}`,
  );
}

await using full = await startWith(hidden);
await using bare = await startWith(0);
const list = '/api/v1/recordings?limit=50';
const id = (seconds: number): string =>
  encodeURIComponent(`nNODE_${new Date(1_700_000_000_000 + seconds * 1000).toISOString()}`);
// not measured, because the first request of a list also loads the permissions of the viewer
await ask({ of: full, path: list });
console.log(
  `${hidden} hidden recordings, ${VISIBLE} to be seen, ${rounds} rounds; a chance deviation is ` +
    `±${(196 / 2 / Math.sqrt(rounds)).toFixed(1)} %`,
);
await compare('the same question twice', { of: full, path: list }, { of: full, path: list });
await compare(
  'a filter that what is hidden matches, and one that nothing matches',
  { of: full, path: `${list}&text=hunter2` },
  { of: full, path: `${list}&text=hunter3` },
);
await compare(
  'the id of a hidden recording, and one of none',
  { of: full, path: `/api/v1/recordings/${id(VISIBLE + 7)}` },
  { of: full, path: `/api/v1/recordings/${id(-7)}` },
);
await compare(
  'the list with hidden recordings, and without any',
  { of: full, path: list },
  { of: bare, path: list },
);
await using indexed = await startWith(hidden, true);
const searched = (word: string): Question => ({ of: indexed, path: `/api/v1/search?q=${word}` });
// wait until the index is complete, because response times before that are not comparable
while (!(await indexIsReady(indexed))) await new Promise((resolve) => setTimeout(resolve, 200));
await compare('a search for a word on hidden screens, and for one on none', searched('x'), searched('y'));
await compare('a search for a hidden user, and for none', searched('user:root'), searched('user:nobody'));
agent.destroy();

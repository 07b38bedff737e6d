/**
 * Faults of the disk and the files of an index. Recording must continue, the search must report the reason, and missed
 * recordings must be read after the repair.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished } from 'vitest';
import { indexDirectory } from '../../../src/tsrecorder/search/recorder-search.ts';
import { createRig, HEADER, openUpload, until, uploadWhole } from '../recorder-rig.ts';
import { listenOn } from '../../support/listen.ts';

function cast(...events: readonly (readonly [number, string])[]): string {
  return `${HEADER}${events.map(([at, text]) => `${JSON.stringify([at, 'o', text])}\n`).join('')}`;
}

interface Told {
  readonly status: number;
  readonly body: string;
}

interface RecorderProcess {
  readonly url: string;
  readonly child: ChildProcess;
  get(path: string): Promise<Told>;
}

/** @param before shell commands that run in a new mount namespace before the recorder starts */
async function start(directory: string, before?: string, preload?: string): Promise<RecorderProcess> {
  const program = [join(import.meta.dirname, 'search-recorder-process.ts'), directory];
  const env = { ...process.env, ...(preload === undefined ? {} : { NODE_OPTIONS: `--import=${preload}` }) };
  const stdio = ['ignore', 'pipe', 'inherit'] as const;
  const child =
    before === undefined
      ? spawn(process.execPath, program, { env, stdio: [...stdio] })
      : spawn('unshare', ['-rm', 'sh', '-ec', `${before}\nexec "$@"`, 'sh', process.execPath, ...program], {
          env,
          stdio: [...stdio],
        });
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  });
  const listening = Promise.withResolvers<string>();
  child.once('exit', (code) => listening.reject(new Error(`the recorder ended with ${code}`)));
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line.startsWith('url ')) listening.resolve(line.slice(4));
  });
  const url = await listening.promise;
  return {
    url,
    child,
    async get(path) {
      const answer = await fetch(`${url}/api/v1/${path}`);
      return { status: answer.status, body: await answer.text() };
    },
  };
}

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-troubles-'));
  onTestFinished(async () => {
    // repeats the removal, because the index process of a killed recorder creates files until it notices the kill
    for (const path of [directory, `${directory}.spool`])
      await rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  });
  return directory;
}

const listed = async ({ get }: RecorderProcess): Promise<number> =>
  (JSON.parse((await get('recordings?limit=100')).body) as { recordings: unknown[] }).recordings.length;

const found = async ({ get }: RecorderProcess, query: string): Promise<number> => {
  const { status, body } = await get(`search?q=${query}&limit=100`);
  return status === 200 ? (JSON.parse(body) as { sessions: unknown[] }).sessions.length : -1;
};

/** Waits until the recorder reports why the index is unavailable, and returns the reason. */
const problemOf = (recorder: RecorderProcess): Promise<string> =>
  until(async () => {
    const { body } = await recorder.get('index');
    const { state, problem } = JSON.parse(body) as { state?: string; problem?: string };
    return state === 'unavailable' ? problem : undefined;
  });

const FULL = /disk is full|no space left/i;
/** More sessions than fit on the test's disk. */
const MOST = 60;

const { status } = spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()]);
if (status !== 0) console.warn('no file system can be mounted here: full and read-only disks are not tried');

/** Returns words that occur only once, so that the index grows. */
const wordsOf = (number: number): string =>
  Array.from({ length: 2000 }, (_, at) => `w${number}x${at}`).join(' ');

describe('a recorder whose index has a problem', () => {
  it.skipIf(status !== 0)(
    'records on a full disk, reports it, and reads the missed recordings when there is space',
    async () => {
      const directory = await newDirectory();
      const index = indexDirectory(`${directory}.spool`);
      const search = dirname(index);
      await mkdir(search, { recursive: true });
      const ballast = join(index, 'ballast.tmp');
      const recorder = await start(
        directory,
        `mount -t tmpfs -o size=3m tmpfs '${search}'; mkdir '${index}'; head -c 1500000 /dev/zero > '${ballast}'`,
      );
      await uploadWhole(recorder, cast([1, 'needle first']));
      await until(async () => ((await found(recorder, 'needle')) === 1 ? true : undefined));
      let sessions = 1;
      let problem: string | undefined;
      const full = problemOf(recorder).then((said) => (problem = said));
      while (problem === undefined && sessions < MOST) {
        const word = `w${sessions}x1`;
        await uploadWhole(recorder, cast([1, `needle ${wordsOf(sessions)}`]));
        sessions += 1;
        // waits until each session is indexed, so that later sessions fit on the disk after the ballast is removed
        await until(async () =>
          problem !== undefined || (await found(recorder, word)) === 1 ? true : undefined,
        );
      }
      expect(await full).toMatch(FULL);
      await uploadWhole(recorder, cast([1, 'needle later']));
      sessions += 1;
      expect(await listed(recorder)).toBe(sessions);
      const { status: answered, body } = await recorder.get('search?q=later');
      expect([answered, body]).toEqual([503, expect.stringMatching(FULL)]);
      // the file is visible only inside the recorder's mount namespace
      await rm(join('/proc', String(recorder.child.pid), 'root', ballast));
      const isWell = async (): Promise<true | undefined> =>
        (await found(recorder, 'later')) === 1 ? true : undefined;
      await until(isWell);
      await until(async () => ((await found(recorder, 'needle')) === sessions ? true : undefined));
    },
  );

  it.skipIf(status !== 0)('records on a disk that became read-only, and reports it', async () => {
    const directory = await newDirectory();
    const search = dirname(indexDirectory(`${directory}.spool`));
    const before = await start(directory);
    await uploadWhole(before, cast([1, 'needle first']));
    await until(async () => ((await found(before, 'needle')) === 1 ? true : undefined));
    before.child.kill('SIGKILL');
    await once(before.child, 'exit');
    const recorder = await start(
      directory,
      `mount --bind '${search}' '${search}'; mount -o remount,bind,ro '${search}'`,
    );
    await uploadWhole(recorder, cast([1, 'needle second']));
    expect(await listed(recorder)).toBe(2);
    expect(await problemOf(recorder)).toMatch(/read-?only|readonly/i);
    const { status: answered, body } = await recorder.get('search?q=second');
    // if SQLite may not open the WAL file, the reader returns SQLite's message
    const why = /read-?only|unable to open database file/i;
    expect([answered, body]).toEqual([503, expect.stringMatching(why)]);
  });

  it('records if SQLite was compiled without FTS5, and reports it', async () => {
    const directory = await newDirectory();
    const preload = join(import.meta.dirname, 'sqlite-without-fts5.ts');
    const recorder = await start(directory, undefined, preload);
    await uploadWhole(recorder, cast([1, 'needle']));
    expect(await listed(recorder)).toBe(1);
    expect(await problemOf(recorder)).toContain('the SQLite of this Node has no FTS5');
    const { status: answered, body } = await recorder.get('search?q=needle');
    expect([answered, body]).toEqual([503, expect.stringContaining('no FTS5')]);
    recorder.child.kill('SIGKILL');
    await once(recorder.child, 'exit');
    const well = await start(directory);
    await until(async () => ((await found(well, 'needle')) === 1 ? true : undefined));
  });

  it('records, acknowledges and lists while the index process accepts requests and does not respond', async () => {
    let asked = 0;
    const silent = createServer(() => void (asked += 1));
    await listenOn(silent);
    onTestFinished(() => {
      silent.closeAllConnections();
      silent.close();
    });
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const rig = await createRig({ searchText: 'all', searchServer: { url, name: 'silent', shards: 1 } });
    onTestFinished(() => rig[Symbol.asyncDispose]());
    await until(async () => (asked > 0 ? true : undefined));
    const running = openUpload(rig.recorder);
    const first = cast([1, 'needle']);
    running.write(first);
    await running.ack(({ ack }) => ack === first.length);
    await uploadWhole(rig.recorder, cast([1, 'needle']));
    expect((await rig.list()).map(({ state }) => state).toSorted()).toEqual(['completed', 'running']);
    running.write('[2,"o","more"]\n');
    await running.ack(({ ack }) => ack > first.length);
    running.end();
    await running.over;
    expect((await rig.list('?state=completed')).length).toBe(2);
    silent.closeAllConnections();
    silent.close();
  });
});

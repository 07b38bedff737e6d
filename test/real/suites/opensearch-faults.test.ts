/**
 * A recorder with a real OpenSearch behind a faulty network: uploads do not wait for it, missing results are reported,
 * and the index is complete at the end.
 */
import { rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom, runSeed } from '../../support/random.ts';
import {
  createRig as createRecorderRig,
  HEADER,
  openUpload,
  until,
  uploadWhole,
  type Rig as RecorderRig,
} from '../../tsrecorder/recorder-rig.ts';
import { ensureOpenSearch, startOpenSearch, type OpenSearchServer } from '../rig/opensearch.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { openFaultProxy, type Fault, type FaultProxy } from '../support/fault-proxy.ts';
import { hasMaven } from '../support/maven.ts';

const isThere = hasMaven('an OpenSearch that fails is not driven');
if (isThere) await ensureOpenSearch();

let rig: Rig;
let opensearch: OpenSearchServer;
let numbers = 0;

/** Sessions that are stored during the fault. */
const UPLOADS = 8;
/**
 * Maximum time until the index reports that it is incomplete. It includes one second between two polls, and half a
 * second until written documents are visible.
 */
const NOTICED_MS = 4000;
/**
 * Maximum time until an acknowledgement on a busy machine. An upload that waits for the index would never be
 * acknowledged.
 */
const PROMPT_MS = 10_000;

interface Searched {
  readonly sessions: readonly {
    readonly recording: { readonly id: string };
    readonly hits: readonly unknown[];
    readonly partial: boolean;
  }[];
  readonly index: { readonly state: string; readonly backlog: number; readonly lagSeconds: number };
}

const search = (recorder: RecorderRig, text: string) =>
  recorder.get(`/api/v1/search?q=${encodeURIComponent(text)}&limit=100`);

/** Returns the search results for each query, in order, once the index is complete. */
async function answersOf(recorder: RecorderRig): Promise<readonly unknown[]> {
  const answers: unknown[] = [];
  for (const text of ['needle', 'row', 'needle -u3', 'u1 OR u5', '"of upload"', 'live', 'ns:prod']) {
    const { status, body } = await search(recorder, text);
    expect([status, text]).toEqual([200, text]);
    const { sessions, index } = JSON.parse(body) as Searched;
    expect(index).toMatchObject({ state: 'ready', backlog: 0 });
    answers.push([text, sessions.map(({ recording, ...more }) => [recording.id, more])]);
  }
  return answers;
}

async function whole(recorder: RecorderRig, sessions: number): Promise<void> {
  await until(async () => {
    const { status, body } = await search(recorder, 'needle');
    if (status !== 200) return undefined;
    const { sessions: found, index } = JSON.parse(body) as Searched;
    return index.state === 'ready' && index.backlog === 0 && found.length === sessions ? true : undefined;
  });
}

/** Returns all documents of an index without their write times. */
async function documents(name: string): Promise<readonly unknown[]> {
  await fetch(`${opensearch.url}/${name}-v2/_refresh`, { method: 'POST' });
  const answer = await fetch(`${opensearch.url}/${name}-v2/_search?size=10000`);
  const { hits } = (await answer.json()) as { hits: { hits: { _id: string; _source: unknown }[] } };
  return hits.hits
    .map(({ _id: id, _source: source }) => [id, source] as const)
    .toSorted(([left], [right]) => (left < right ? -1 : 1));
}

function block(name: string, isBlocked: boolean): Promise<unknown> {
  return fetch(`${opensearch.url}/${name}-v2/_settings`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ 'index.blocks.write': isBlocked }),
  });
}

/** Searches repeatedly, and reports results that are missing without a notice. */
class Watcher {
  readonly unsaid: string[] = [];
  readonly statuses = new Map<number, number>();
  /** For each word: the time from which every search must find its session or report that results are missing. */
  readonly #due = new Map<string, number>();
  #isOver = false;
  readonly #running: Promise<void>;

  constructor(recorder: RecorderRig) {
    this.#running = this.#run(recorder);
  }

  /** Records that this word is durable from now on. */
  wrote(word: string): void {
    this.#due.set(word, performance.now());
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }

  async #run(recorder: RecorderRig): Promise<void> {
    while (!this.#isOver) {
      for (const [word, since] of this.#due) {
        const asked = performance.now();
        if (asked - since < NOTICED_MS) continue;
        const { status, body } = await search(recorder, word);
        this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
        if (status !== 200) {
          if (!/"code":"SEARCH_(?:UNAVAILABLE|BUSY)"/.test(body))
            this.unsaid.push(`${word}: ${status} ${body}`);
          continue;
        }
        const { sessions, index } = JSON.parse(body) as Searched;
        const isSaid = index.state !== 'ready' || index.backlog > 0 || index.lagSeconds > 0;
        if (sessions.length === 0 && !isSaid) this.unsaid.push(`${word}: ${body}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** Limits the request memory of OpenSearch, which rejects larger requests with 429. */
function limitRequests(limit: string | null): Promise<unknown> {
  return fetch(`${opensearch.url}/_cluster/settings`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ transient: { 'network.breaker.inflight_requests.limit': limit } }),
  });
}

interface Trouble {
  readonly name: string;
  decide(path: string, index: string): Fault;
  /** Applies the fault to the real server. */
  readonly begin?: (index: string) => Promise<unknown>;
  readonly end?: (index: string) => Promise<unknown>;
}

const chance = createRandom(runSeed());
const random = (): number => chance.below(1_000_000) / 1_000_000;
const isBulk = (path: string): boolean => path.includes('/_bulk');
const isSearch = (path: string): boolean => path.includes('/_search') || path.includes('/_mget');
const half = (fault: Fault): Fault => (random() < 0.5 ? fault : { kind: 'pass' });

const TROUBLES: readonly Trouble[] = [
  { name: 'refuses connections', decide: () => ({ kind: 'refuse' }) },
  {
    name: 'cuts every second answer, between any two bytes',
    decide: () => half({ kind: 'cut', part: random() }),
  },
  {
    name: 'cuts answers behind what was written',
    decide: (path) => (isBulk(path) ? { kind: 'cut', part: random() } : { kind: 'pass' }),
  },
  {
    name: 'has no room to write (429)',
    decide: (path) => (isBulk(path) ? { kind: 'status', status: 429 } : { kind: 'pass' }),
  },
  {
    name: 'cannot write (503)',
    decide: (path) => (isBulk(path) ? { kind: 'status', status: 503 } : { kind: 'pass' }),
  },
  {
    name: 'has no room for every second search (429)',
    decide: (path) => (isSearch(path) ? half({ kind: 'status', status: 429 }) : { kind: 'pass' }),
  },
  {
    name: 'cannot search (503)',
    decide: (path) => (isSearch(path) ? { kind: 'status', status: 503 } : { kind: 'pass' }),
  },
  {
    name: 'makes nothing found (503 to refreshes)',
    decide: (path) => (path.includes('_refresh') ? { kind: 'status', status: 503 } : { kind: 'pass' }),
  },
  { name: 'takes three seconds for all', decide: () => ({ kind: 'delay', ms: 3000 }) },
  {
    name: 'guards its memory (a breaker of its own)',
    decide: () => ({ kind: 'pass' }),
    begin: () => limitRequests('1kb'),
    end: () => limitRequests(null),
  },
  {
    name: 'lets nobody write (a block of its own)',
    decide: () => ({ kind: 'pass' }),
    begin: (index) => block(index, true),
    end: (index) => block(index, false),
  },
  {
    name: 'lets nobody write, now and then, between any two requests',
    decide: (path, index) =>
      isBulk(path) ? { kind: 'before', act: () => block(index, random() < 0.5) } : { kind: 'pass' },
    end: (index) => block(index, false),
  },
];

async function open(proxy: FaultProxy, name: string): Promise<RecorderRig> {
  const recorder = await createRecorderRig({
    searchText: 'all',
    searchServer: { url: proxy.url, name, shards: 1 },
  });
  await uploadWhole(recorder.recorder, `${HEADER}[1.5,"o","needle u0 row\\r\\n"]\n`);
  await whole(recorder, 1);
  return recorder;
}

/** Stores sessions during a fault. @returns the longest time of an acknowledgement */
async function record({ recorder }: RecorderRig, watcher: Watcher): Promise<number> {
  let longest = 0;
  const timed = async (act: () => Promise<unknown>): Promise<void> => {
    const began = performance.now();
    await act();
    longest = Math.max(longest, performance.now() - began);
  };
  const upload = openUpload(recorder);
  upload.write(HEADER);
  for (let at = 1; at <= UPLOADS; at += 1) {
    const rows = Array.from(
      { length: at },
      (_, row) => `[${row + 1},"o","needle u${at} row ${row} of upload\\r\\n"]\n`,
    );
    await timed(() => uploadWhole(recorder, HEADER + rows.join('')));
    watcher.wrote(`u${at}`);
    const durable = upload.acks.at(-1)?.ack ?? 0;
    upload.write(`[${at},"o","needle live${at}\\r\\n"]\n`);
    await timed(() => upload.ack(({ ack }) => ack > durable));
    watcher.wrote(`live${at}`);
    await new Promise((resolve) => setTimeout(resolve, 800));
  }
  upload.end();
  await upload.over;
  return longest;
}

describe.skipIf(!isThere)('an OpenSearch', () => {
  beforeAll(async () => {
    rig = createRig();
    opensearch = await startOpenSearch(rig);
  });
  afterAll(() => rig.stop());

  it.each(TROUBLES)(
    'that $name keeps nothing from being recorded, hides nothing unsaid, and has all when that is over',
    { timeout: 180_000 },
    async ({ decide, begin, end }) => {
      numbers += 1;
      const name = `faults${numbers}`;
      await using proxy = await openFaultProxy(opensearch.url);
      await using recorder = await open(proxy, name);
      if (begin !== undefined) expect(await begin(name)).toMatchObject({ status: 200 });
      proxy.decide = (path) => decide(path, name);
      const watcher = new Watcher(recorder);
      const longest = await record(recorder, watcher);
      proxy.decide = () => ({ kind: 'pass' });
      await end?.(name);
      await whole(recorder, UPLOADS + 2);
      await watcher.end();
      expect(watcher.unsaid).toEqual([]);
      expect(longest).toBeLessThan(PROMPT_MS);
      // the fault occurred at least once
      expect(proxy.met.size).toBeGreaterThan(0);
      if (end !== undefined) expect(proxy.met.get('server')).toBeGreaterThan(0);
      const spool = `${recorder.directory}.second`;
      onTestFinished(() => rm(spool, { recursive: true, force: true }));
      const undisturbed = await createRecorderRig(
        {
          searchText: 'all',
          searchServer: { url: opensearch.url, name: `${name}-well`, shards: 1 },
          spoolDirectory: spool,
        },
        recorder.directory,
      );
      await whole(undisturbed, UPLOADS + 2);
      expect(await answersOf(recorder)).toEqual(await answersOf(undisturbed));
      expect(await documents(name)).toEqual(await documents(`${name}-well`));
      await undisturbed.recorder.close();
    },
  );
});

/**
 * The process that writes the index is killed repeatedly while it reads an archive. Sessions that are written to the
 * index must stay there, and all other sessions must be read again.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { startIndexClient, type IndexClient } from '../../../src/tsrecorder/search/index-client.ts';
import { Indexer } from '../../../src/tsrecorder/search/indexer.ts';
import { createSearchMetrics } from '../../../src/tsrecorder/search/search-metrics.ts';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { createRandom, runSeed, type Random } from '../../support/random.ts';
import { createRig, HEADER, type Rig } from '../recorder-rig.ts';
import { query } from './engine-suite.ts';

const RECORDINGS = 1500;
/**
 * Number of requests to the index process after which the first batch is certainly written. A batch has 256 recordings
 * with two requests each.
 */
const WRITTEN = 530;
/**
 * Numbers of requests after which the process is killed: fifteen kills before the first write, and five kills after it.
 */
const KILLS = (random: Random): readonly number[] =>
  Array.from({ length: 20 }, (_, at) => (at % 4 === 3 ? WRITTEN + random.below(260) : random.below(480)));

async function fill(rig: Rig): Promise<void> {
  const folder = join(rig.directory, 'nOTHER');
  await mkdir(folder, { recursive: true });
  for (let number = 0; number < RECORDINGS; number += 1) {
    const time = new Date(Date.parse('2026-01-20T00:00:00Z') + number * 3_600_000).toISOString();
    const text = JSON.stringify([1, 'o', `needle word${number} of${number % 7}\r\n`]);
    await writeFile(join(folder, `${time.slice(0, 19)}.000000000Z.cast`), `${HEADER}${text}\n`);
  }
}

/**
 * Indexes everything.
 * @param killAfter number of requests before the kill; undefined: no kill
 * @returns number of times that a session was read again after the index had stored it
 */
async function backfill(rig: Rig, directory: string, killAfter: () => number | undefined): Promise<number> {
  const written = new Set<string>();
  let finished: string[] = [];
  let again = 0;
  const beginOf = new Map<number, string>();
  async function start(): Promise<IndexClient> {
    const client = await startIndexClient({ directory, mayWrite: true });
    let left = killAfter();
    finished = [];
    const asked: IndexClient['ask'] = async (operation, ask) => {
      if (left === 0) client.kill();
      if (left !== undefined) left -= 1;
      if (operation === 'begin') {
        const { key, doc } = ask as {
          readonly key: number;
          readonly doc: { readonly names: { readonly id: string } };
        };
        beginOf.set(key, doc.names.id);
        if (written.has(doc.names.id)) again += 1;
      }
      const answer = await client.ask(operation, ask);
      if (operation === 'finish') finished.push(beginOf.get((ask as { readonly key: number }).key)!);
      if (operation === 'flush') for (const id of finished.splice(0)) written.add(id);
      return answer;
    };
    return {
      get isStopped() {
        return client.isStopped;
      },
      pid: client.pid,
      ask: asked,
      kill: () => client.kill(),
      close: () => client.close(),
    };
  }
  const indexer = new Indexer({
    store: { list: () => rig.recorder.catalog.stored() },
    catalog: rig.recorder.catalog,
    live: () => [],
    text: 'all',
    start,
    now: () => performance.now(),
    liveMs: 1000,
    reconcileMs: 1e9,
    restartMs: 1,
    metrics: createSearchMetrics(),
    log: createSilentLogger(),
  });
  await indexer.settled();
  expect(await indexer.progress()).toMatchObject({ state: 'ready', backlog: 0, sessions: RECORDINGS });
  await indexer.close();
  expect(written.size).toBe(RECORDINGS);
  return again;
}

function answersOf(directory: string): unknown {
  const reader = new IndexReader(directory);
  try {
    return {
      found: ['needle', 'word3', 'of5', 'needle of1', 'wor*', ''].map((text) =>
        reader.find(query(text), 'everything', { limit: 2 * RECORDINGS }),
      ),
      listed: reader.list({ query: query(''), may: 'everything', limit: 2 * RECORDINGS }),
      versions: reader.versions('', 2 * RECORDINGS),
    };
  } finally {
    reader.close();
  }
}

it(
  'after twenty kills, a backfill gives the index of one without kills, and reads no written session again',
  { timeout: 300_000 },
  async () => {
    await using rig = await createRig();
    await fill(rig);
    const whole = join(rig.spool, 'whole');
    expect(await backfill(rig, whole, () => undefined)).toBe(0);
    const wanted = answersOf(whole);
    expect(JSON.stringify(wanted)).toContain('word1499');
    const kills = [...KILLS(createRandom(runSeed()))];
    const killed = join(rig.spool, 'killed');
    expect(await backfill(rig, killed, () => kills.shift())).toBe(0);
    expect(kills).toEqual([]);
    expect(answersOf(killed)).toEqual(wanted);
  },
);

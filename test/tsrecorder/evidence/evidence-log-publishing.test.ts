import { copyFile, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { EvidenceLog, type EvidenceLogOptions } from '../../../src/tsrecorder/evidence/evidence-log.ts';
import {
  encodeEntry,
  encodeSegment,
  hashLine,
  logSegmentName,
  NO_HASH,
  parseSegment,
  parseEntry,
  segmentPrefix,
} from '../../../src/tsrecorder/evidence/log-entry.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';

const KEY = generateSigningKey();

async function createBench() {
  const root = await mkdtemp(join(tmpdir(), 'evidence-log-'));
  const store = await createDiskStore(join(root, 'store'));
  let failures = 0;
  const open = async (name: string, more: Partial<EvidenceLogOptions> = {}): Promise<EvidenceLog> => {
    const log = await EvidenceLog.open({
      store,
      path: join(root, name),
      key: KEY,
      randomId: () => name.repeat(32).slice(0, 32),
      nowMs: Date.now,
      log: createSilentLogger(),
      publishMs: 1,
      tailMs: 1,
      witnessMs: 0,
      onFailure: () => (failures += 1),
      ...more,
    });
    onTestFinished(() => log.close());
    return log;
  };
  /** Returns the entries of an evidence log in the store. */
  const published = async (log: string): Promise<readonly string[]> => {
    const found: string[] = [];
    for (const name of await store.listDocuments(segmentPrefix(log))) {
      const { lines } = parseSegment(Buffer.from((await store.readDocument(name))!).toString());
      found.push(...lines.map((line) => parseEntry(line)!.event.kind));
    }
    return found;
  };
  return { root, store, open, published, failures: () => failures };
}

const removed = (name: string) => ({ kind: 'documentRemoved', name, reason: 'test' }) as const;

describe('an evidence log', () => {
  it("publishes each entry once although the store's response was lost", async () => {
    const bench = await createBench();
    let lost = 1;
    const putDocument: RecordingStore['putDocument'] = async (name, content) => {
      await bench.store.putDocument(name, content);
      if (name.startsWith(segmentPrefix()) && lost-- > 0)
        throw new TailcastError('STORE_FAILED', 'no answer');
    };
    const log = await bench.open('a', { store: { ...bench.store, putDocument } });
    await expect.poll(() => log.unpublished).toBe(0);
    log.append(removed('x'));
    await expect.poll(() => log.unpublished).toBe(0);
    expect(bench.failures()).toBe(1);
    expect(await bench.published(log.id)).toEqual(['open', 'documentRemoved']);
  });

  it.each([
    'nothing',
    'lines without a signature',
    'a copy of an earlier segment',
    'another key',
    'only a signature',
    'other lines with the signature of the tail',
  ])('replaces a forged segment under its next name: %s', async (kind) => {
    const bench = await createBench();
    const log = await bench.open('a');
    await expect.poll(() => log.unpublished).toBe(0);
    const earlier = (await bench.store.readDocument(logSegmentName(log.id, 0)))!;
    const text = Buffer.from(earlier).toString();
    const { lines } = parseSegment(text);
    const next = encodeEntry({
      n: lines.length,
      prev: hashLine(lines.at(-1)!),
      time: '',
      event: removed('y'),
    });
    const tail = { log: log.id, n: lines.length, hash: hashLine(next) };
    const head = { log: log.id, n: lines.length, hash: '0'.repeat(64) };
    const forged = {
      nothing: '',
      'lines without a signature': `${lines.join('\n')}\n`,
      'a copy of an earlier segment': earlier,
      'another key': encodeSegment(['{}'], head, generateSigningKey()),
      'only a signature': text.split('\n').slice(-2).join('\n'),
      'other lines with the signature of the tail': encodeSegment(['{}'], tail, KEY),
    }[kind]!;
    await bench.store.putDocument(logSegmentName(log.id, lines.length), Buffer.from(forged));
    log.append(removed('x'));
    await expect.poll(() => log.unpublished).toBe(0);
    expect(await bench.published(log.id)).toEqual(['open', 'documentRemoved']);
  });

  it('reads a bounded number of segments of unknown logs before it publishes, in turn', async () => {
    const bench = await createBench();
    for (let count = 0; count < 700; count++)
      await bench.store.putDocument(
        logSegmentName(count.toString(16).padStart(32, '0'), 0),
        Buffer.from('x'),
      );
    const reads: string[] = [];
    const store: RecordingStore = {
      ...bench.store,
      readDocument(name, maxBytes) {
        reads.push(name);
        return bench.store.readDocument(name, maxBytes);
      },
    };
    const log = await bench.open('a', { store });
    await log.publish();
    await log.publish();
    await log.publish();
    expect(new Set(reads.slice(0, 700)).size).toBe(700);
    expect(reads.length).toBeLessThanOrEqual(4 * 500);
  });

  it('sees the newest entry of a known log although each pass finds more names than it can read', async () => {
    const bench = await createBench();
    const other = await bench.open('f');
    await expect.poll(() => other.unpublished).toBe(0);
    const log = await bench.open('a');
    await log.publish();
    expect(log.witnessed(other.id)).toMatchObject({ n: 0 });
    for (let count = 0; count < 520; count++)
      await bench.store.putDocument(
        logSegmentName(count.toString(16).padStart(32, '0'), 0),
        Buffer.from('x'),
      );
    other.append(removed('x'));
    await other.sync();
    await other.publish();
    await log.publish();
    expect(log.witnessed(other.id)?.n).toBeGreaterThan(0);
  });

  it('sees the newest entry of another log behind garbage names, and reports the garbage once', async () => {
    const bench = await createBench();
    const other = await bench.open('b', { witnessMs: 1e12 });
    await expect.poll(() => other.unpublished).toBe(0);
    for (let number = 0; number < 3; number++) {
      other.append(removed('x'));
      await other.sync();
      await other.publish();
    }
    const garbage = Array.from({ length: 100 }, (_, at) => logSegmentName(other.id, 900_000 + at));
    for (const name of garbage) await bench.store.putDocument(name, Buffer.from(''));
    const errors: unknown[] = [];
    const error = (fields: object): void => void errors.push(fields);
    const log = await bench.open('a', { log: { ...createSilentLogger(), error } });
    await log.publish();
    expect(log.witnessed(other.id)?.n).toBe(3);
    expect(errors).toEqual([{ log: other.id, segments: 100, object: garbage[0] }]);
    other.append(removed('y'));
    await other.sync();
    await other.publish();
    await log.publish();
    expect(log.witnessed(other.id)?.n).toBe(4);
    for (const name of garbage) await bench.store.removeDocument(name);
    await log.publish();
    await bench.store.putDocument(garbage[0]!, Buffer.from(''));
    await log.publish();
    expect(errors).toHaveLength(2);
  });

  it('follows more segments of another log than one pass reads', async () => {
    const bench = await createBench();
    const other = 'b'.repeat(32);
    const segments = new Map<string, Buffer>([[logSegmentName(other, 900_000), Buffer.from('')]]);
    let prev = NO_HASH;
    for (let n = 0; n <= 600; n++) {
      const line = encodeEntry({ n, prev, time: '', event: removed('x') });
      prev = hashLine(line);
      const segment = encodeSegment([line], { log: other, n, hash: prev }, KEY);
      segments.set(logSegmentName(other, n), Buffer.from(segment));
    }
    const store: RecordingStore = {
      ...bench.store,
      listDocuments: async (prefix) => [...(await bench.store.listDocuments(prefix)), ...segments.keys()],
      readDocument: async (name, maxBytes) => segments.get(name) ?? bench.store.readDocument(name, maxBytes),
    };
    let nowMs = Date.now();
    const log = await bench.open('a', { store, witnessMs: 3_600_000, nowMs: () => nowMs });
    await expect.poll(() => log.witnessed(other)?.n).toBe(498);
    nowMs += 60_000;
    await log.publish();
    expect(log.witnessed(other)?.n).toBe(600);
  });

  it.each(['known', 'unknown'])('reads a damaged segment of a log again: %s', async (kind) => {
    const bench = await createBench();
    const other = await bench.open('b', { witnessMs: 1e12 });
    await expect.poll(() => other.unpublished).toBe(0);
    const early = kind === 'known' ? await bench.open('a') : undefined;
    await early?.publish();
    expect(early?.witnessed(other.id)?.n).toBe(early && 0);
    other.append(removed('x'));
    await other.sync();
    await other.publish();
    const names = await bench.store.listDocuments(segmentPrefix(other.id));
    const contents = await Promise.all(names.map(async (name) => bench.store.readDocument(name)));
    for (const name of names) await bench.store.replaceDocument(name, Buffer.from('x'));
    const log = early ?? (await bench.open('a'));
    await log.publish();
    for (const [at, name] of names.entries()) await bench.store.replaceDocument(name, contents[at]!);
    await log.publish();
    expect(log.witnessed(other.id)?.n).toBe(1);
  });

  it('compares its journal with the store although garbage names follow', async () => {
    const bench = await createBench();
    const path = join(bench.root, 'a');
    const first = await bench.open('a');
    await expect.poll(() => first.unpublished).toBe(0);
    await copyFile(path, `${path}.before`);
    first.append(removed('x'));
    await first.close();
    await copyFile(`${path}.before`, path);
    for (let number = 0; number < 50; number++)
      await bench.store.putDocument(logSegmentName(first.id, 900_000 + number), Buffer.from(''));
    const reads: string[] = [];
    const readDocument: RecordingStore['readDocument'] = (name, maxBytes) => {
      reads.push(name);
      return bench.store.readDocument(name, maxBytes);
    };
    const again = await bench.open('a', { store: { ...bench.store, readDocument } });
    await expect.poll(() => again.unpublished).toBe(0);
    expect(await bench.published(first.id)).toEqual(['open', 'documentRemoved', 'restart']);
    expect(reads.length).toBeLessThan(10);
  });

  it('sees the newest entry of another log after copies of earlier segments', async () => {
    const bench = await createBench();
    const other = await bench.open('b');
    await expect.poll(() => other.unpublished).toBe(0);
    const [first = ''] = await bench.store.listDocuments(segmentPrefix(other.id));
    const old = (await bench.store.readDocument(first))!;
    for (const number of [500, 501]) await bench.store.putDocument(logSegmentName(other.id, number), old);
    await bench.store.putDocument(logSegmentName('c'.repeat(32), 0), old);
    other.append(removed('x'));
    await expect.poll(() => other.unpublished).toBe(0);
    const log = await bench.open('a');
    await log.publish();
    expect(log.witnessed(other.id)).toMatchObject({ log: other.id, n: 1 });
    expect(log.witnessed('c'.repeat(32))).toBeUndefined();
  });

  it('finds out after a crash what the store already contains', async () => {
    const bench = await createBench();
    const path = join(bench.root, 'a');
    const first = await bench.open('a', { publishMs: 1_000_000 });
    await expect.poll(() => first.unpublished).toBe(0);
    first.append(removed('x'));
    await first.sync();
    await copyFile(path, `${path}.before`);
    await first.publish();
    await first.close();
    // restores the journal from the time before the publication, as if the store's response had been lost
    await copyFile(`${path}.before`, path);
    const again = await bench.open('a');
    await expect.poll(() => again.unpublished).toBe(0);
    expect(await bench.published(again.id)).toEqual(['open', 'documentRemoved', 'restart']);
    expect(bench.failures()).toBe(0);
  });

  it('does not overwrite entries that another recorder published under its name', async () => {
    const bench = await createBench();
    const path = join(bench.root, 'a');
    const first = await bench.open('a', { publishMs: 1_000_000 });
    await expect.poll(() => first.unpublished).toBe(0);
    await copyFile(path, join(bench.root, 'copy'));
    first.append(removed('x'));
    await first.publish();
    // a second recorder has a copy of the spool, cannot list the store at its start, and publishes a different entry
    const blind = await bench.open('copy', {
      store: { ...bench.store, listDocuments: async () => Promise.reject(new Error('down')) },
      publishMs: 1_000_000,
    });
    blind.append(removed('y'));
    await blind.sync();
    await blind.close();
    const other = await bench.open('copy', { publishMs: 1_000_000 });
    expect(other.id).toBe(first.id);
    expect(await bench.published(first.id)).toEqual(['open', 'documentRemoved']);
    expect(bench.failures()).toBeGreaterThan(0);
  });

  it('logs the positions of other logs, each position once', async () => {
    const bench = await createBench();
    const other = await bench.open('b');
    await expect.poll(() => other.unpublished).toBe(0);
    const log = await bench.open('a');
    await expect.poll(() => bench.published(log.id)).toEqual(['open', 'witness']);
    log.append(removed('x'));
    await expect.poll(() => bench.published(log.id)).toEqual(['open', 'witness', 'documentRemoved']);
    other.append(removed('y'));
    await expect.poll(() => other.unpublished).toBe(0);
    log.append(removed('z'));
    await expect.poll(async () => (await bench.published(log.id)).slice(3)).toContain('witness');
  });

  it('reads after a start the logged positions of other logs, and trusts only trusted keys', async () => {
    const bench = await createBench();
    const other = await bench.open('b');
    const stranger = await bench.open('c', { key: generateSigningKey() });
    await expect.poll(() => [other.unpublished, stranger.unpublished]).toEqual([0, 0]);
    const log = await bench.open('a');
    await expect.poll(() => bench.published(log.id)).toEqual(['open', 'witness']);
    const seen = log.witnessed(other.id);
    expect(seen).toMatchObject({ log: other.id, n: 0 });
    expect(log.witnessed(stranger.id)).toBeUndefined();
    await log.close();
    for (const name of await bench.store.listDocuments(segmentPrefix(other.id)))
      await bench.store.removeDocument(name);
    const again = await bench.open('a');
    await expect.poll(() => again.unpublished).toBe(0);
    expect(again.witnessed(other.id)).toEqual(seen);
  });

  it('publishes its tail, and no tail without unpublished entries', async () => {
    const bench = await createBench();
    const tails = async (): Promise<number> =>
      (await bench.store.listDocuments('.evidence/')).filter((name) => name.includes('tail')).length;
    const log = await bench.open('a', { publishMs: 1_000_000 });
    await expect.poll(() => log.unpublished).toBe(0);
    log.showTail();
    log.append({ kind: 'durable', sessions: [] });
    await log.sync();
    log.showTail();
    await expect.poll(tails).toBe(1);
    await log.close();
    log.showTail();
  });
});

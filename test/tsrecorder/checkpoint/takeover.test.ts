import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { verifyStore, type VerifyReport } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { proveSession } from '../../../src/tsrecorder/checkpoint/prove.ts';
import { rebuildSpool } from '../../../src/tsrecorder/checkpoint/rebuild.ts';
import { listOpenSessions } from '../../../src/tsrecorder/checkpoint/segments.ts';
import { logSegmentName, parseSegmentName } from '../../../src/tsrecorder/evidence/log-entry.ts';
import { parseRecordingId } from '../../../src/tsrecorder/store/key.ts';
import type { MemoryBucket } from '../store/memory-bucket.ts';
import { createTakeoverSite, LEASE_MS, type Site, type SiteRecorder } from './takeover-site.ts';

const LINE = '[1,"o","a"]\n';

const open = (bucket: MemoryBucket): readonly string[] =>
  [...bucket.objects.keys()].filter((name) => name.startsWith('.open/'));

const stored = (bucket: MemoryBucket): readonly string[] =>
  [...bucket.objects.keys()].filter((name) => name.endsWith('.cast'));

const verify = ({ store, keys, nowMs }: Site, ...named: readonly number[]): Promise<VerifyReport> =>
  verifyStore({
    store,
    keys: named.map((number) => keys[number]!.public),
    checkpoint: [],
    nowMs: nowMs(),
  });

/** Creates a site whose first recorder has a running session and its copy in the bucket. */
async function beginSession(recorders = 2) {
  const site = createTakeoverSite(recorders);
  const lost = await site.recorder(0);
  await lost.look();
  const session = await lost.begin('one');
  await session.write(LINE);
  await lost.copies.update();
  return { site, lost, session };
}

/** Lets a recorder claim and take over the sessions of a lost recorder. Default: the second recorder of the site. */
async function takeOver(site: Site, recorder?: SiteRecorder): Promise<SiteRecorder> {
  const own = recorder ?? (await site.recorder(1));
  await own.look();
  site.wait(LEASE_MS / 2);
  await own.look();
  return own;
}

/** Creates a site whose first recorder is lost. The running session of that recorder was copied to the bucket. */
async function createLoss(): Promise<{
  readonly site: Site;
  readonly id: string;
  readonly cast: string;
  readonly name: string;
}> {
  const { site, lost, session } = await beginSession(3);
  site.wait(LEASE_MS);
  return { site, id: session.id(), cast: session.cast(), name: lost.lease.name };
}

interface PublishedLog {
  readonly log: string;
  /** Number of the next entry of the evidence log. */
  readonly next: number;
}

function publishedLog(bucket: MemoryBucket): PublishedLog {
  const segments = [...bucket.objects]
    .flatMap(([name, { content }]) => {
      const segment = parseSegmentName(name);
      return segment === undefined
        ? []
        : [{ ...segment, lines: content.toString().split('\n').slice(0, -1) }];
    })
    .toSorted((left, right) => left.first - right.first);
  const { log, first, lines } = segments.at(-1)!;
  return { log, next: first + lines.length - 1 };
}

describe('a session that a lost recorder left', () => {
  it('is taken over after its claim has existed for half the duration of a lease, and only once', async () => {
    const { site, id, cast } = await createLoss();
    const { bucket } = site;
    const own = await site.recorder(1);
    await own.look();
    site.wait(LEASE_MS / 2 - 1);
    await own.look();
    expect(stored(bucket)).toEqual([]);
    site.wait(1);
    await own.look();
    expect(stored(bucket)).toHaveLength(1);
    expect(bucket.objects.get(stored(bucket)[0]!)?.content.toString()).toBe(cast);
    await expect.poll(() => open(bucket)).toEqual([]);
    await own.look();
    expect(await own.catalog.list({ limit: 9 })).toMatchObject({
      recordings: [{ id, state: 'interrupted', trust: 'verified' }],
    });
    expect([...bucket.objects.keys()].filter((name) => name.startsWith('.recorders/'))).toEqual([
      `.recorders/${own.lease.name}`,
    ]);
  });

  it.each([
    ['after the log', () => ({ at: 9999, content: 'x' })],
    ['directly after the log', ({ next }: PublishedLog) => ({ at: next, content: 'x' })],
  ])('is taken over although another program added a segment %s', async (_, forge) => {
    const { site, cast } = await createLoss();
    const { bucket } = site;
    const published = publishedLog(bucket);
    const { at, content } = forge(published);
    await bucket.put(logSegmentName(published.log, at), Buffer.from(content), { once: true });
    const own = await takeOver(site);
    expect(own.untrusted()).toEqual([]);
    expect(stored(bucket).map((name) => bucket.objects.get(name)?.content.toString())).toEqual([cast]);
  });

  it('is taken over although another program put a damaged archive under its key', async () => {
    const site = createTakeoverSite();
    const { bucket } = site;
    const lost = await site.recorder(0);
    await lost.look();
    const finished = await lost.begin('finished');
    await finished.end();
    const sessions = [await lost.begin('one'), await lost.begin('two')];
    for (const session of sessions) await session.write(LINE);
    await lost.copies.update();
    await lost.evidence.publish();
    const nameOf = (id: string, suffix: string): string => `${id.replace('_', '/')}.${suffix}`;
    const [victim] = sessions.map((session) => session.id()).toSorted();
    bucket.objects.set(nameOf(victim!, 'json'), bucket.objects.get(nameOf(finished.id(), 'json'))!);
    const damaged = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3]);
    await bucket.put(nameOf(victim!, 'cast'), damaged, { once: true });
    site.wait(LEASE_MS);
    const own = await site.recorder(1);
    await own.look();
    site.wait(LEASE_MS / 2);
    await own.look();
    await expect.poll(() => open(bucket)).toEqual([]);
    const casts = stored(bucket).map((name) => bucket.objects.get(name)!.content.toString());
    expect(casts).toEqual(expect.arrayContaining(sessions.map((session) => session.cast())));
  });

  it('is taken over only by the last of two recorders that claimed it', async () => {
    const { site, name } = await createLoss();
    const [first, second] = [await site.recorder(1), await site.recorder(2)];
    await first.look();
    // both recorders detected the loss, but the second one has already claimed the sessions
    await second.lease.claim(name);
    site.wait(LEASE_MS / 2);
    await first.look();
    expect(stored(site.bucket)).toEqual([]);
    expect(first.untrusted()).toEqual([]);
  });

  it('is verified with the logs of both recorders, and not with one key only', async () => {
    const { site, id } = await createLoss();
    const own = await takeOver(site);
    await own.evidence.publish();
    const both = await verify(site, 0, 1);
    expect(both.verdict).toBe('verified');
    expect(both.findings).toContainEqual(
      expect.objectContaining({
        code: 'adopted',
        recording: id,
        message: expect.stringContaining(`log ${own.evidence.log} adopted the session`),
      }),
    );
    const codes = (await verify(site, 1)).findings.map(({ code }) => code);
    expect(codes).toContain('adoption-unproven');
  });

  it('that was stored before its recorder was lost is only removed from the copies', async () => {
    const { site, lost, session } = await beginSession();
    await session.end();
    await lost.evidence.publish();
    site.wait(LEASE_MS);
    const own = await site.recorder(1);
    await own.look();
    await own.look();
    expect(open(site.bucket)).toEqual([]);
    expect(stored(site.bucket)).toHaveLength(1);
    expect(own.untrusted()).toEqual([]);
  });

  it('has a notice in the store about the durable bytes that are missing', async () => {
    const site = createTakeoverSite();
    const lost = await site.recorder(0);
    await lost.look();
    const session = await lost.begin('one');
    await lost.copies.update();
    await session.write(`[1,"o","${'x'.repeat(900_000)}"]\n`);
    for (let line = 0; line < 6; line += 1) await session.write(`[1,"o","${'x'.repeat(900_000)}"]\n`);
    await lost.evidence.publish();
    site.wait(LEASE_MS);
    const own = await takeOver(site);
    await own.evidence.publish();
    expect((await own.catalog.list({ limit: 9 })).recordings[0]?.problem).toMatch(
      /^the recorder that had the session was lost; \d+ acknowledged bytes are lost: they were not in the bucket/,
    );
    const { verdict, findings } = await verify(site, 0, 1);
    expect(verdict).toBe('lost');
    expect(findings.filter(({ code }) => code === 'lost')).toHaveLength(1);
  });

  it('still belongs to the lost recorder if the recorder that takes it over is stopped in between', async () => {
    const { site, id } = await createLoss();
    const own = await site.recorder(1);
    const spool = await mkdtemp(join(tmpdir(), 'takeover-rebuilt-'));
    const [session] = await listOpenSessions(site.bucket);
    const trusted = new Map(site.keys.map((key) => [key.public.id, key.public] as const));
    const { evidence } = own;
    const proven = await proveSession(session!, {
      bucket: site.bucket,
      store: site.store,
      trusted,
      evidence,
      lease: own.lease,
    });
    if (!('adoption' in proven)) throw new Error('it is not proven');
    expect(await rebuildSpool(site.bucket, session!, proven, spool)).toBeUndefined();
    expect((await readdir(spool)).toSorted()).toEqual([`${id}.adopted`, `${id}.cast`, `${id}.notes`]);
    expect(JSON.parse(await readFile(join(spool, `${id}.adopted`), 'utf8'))).toMatchObject({
      key: site.keys[0]!.public.id,
    });
    expect(parseRecordingId(id)).toEqual(session!.key);
    expect(own.lease.name).not.toBe(session!.recorder);
  });
});

describe('an older copy of all objects of a lost recorder in the bucket', () => {
  const OF_LOST = ['.open/', '.evidence/logs/', '.evidence/tails/', '.recorders/'];

  /**
   * Creates a site in which an attacker replaces the evidence log of a lost recorder with an older copy. With `seen`,
   * the other recorder has read the complete log before the attacker replaces it.
   */
  async function createReplay(seen: boolean): Promise<{ readonly site: Site; readonly own: SiteRecorder }> {
    const { site, lost, session } = await beginSession();
    const { bucket } = site;
    await lost.evidence.publish();
    const copy = new Map([...bucket.objects].filter(([name]) => OF_LOST.some((of) => name.startsWith(of))));
    await session.write('[2,"o","rm -rf /"]\n');
    await lost.copies.update();
    await lost.begin('another');
    await lost.evidence.publish();
    // a recorder reads the evidence logs of other recorders at its start
    const witness = seen ? await site.recorder(1) : undefined;
    await witness?.evidence.publish();
    for (const name of bucket.objects.keys()) {
      const isOfLost = name.includes(lost.lease.name) || name.includes(lost.evidence.log);
      if (isOfLost && !copy.has(name)) bucket.objects.delete(name);
    }
    for (const [name, object] of copy) bucket.objects.set(name, object);
    site.wait(LEASE_MS);
    return { site, own: witness ?? (await site.recorder(1)) };
  }

  it('is not signed: the session stays in the bucket, and the reason is reported', async () => {
    const { site, own } = await createReplay(true);
    await takeOver(site, own);
    expect(stored(site.bucket)).toEqual([]);
    expect(own.untrusted()).toMatchObject([
      {
        trust: 'failed',
        reason: expect.stringMatching(/older copy: this recorder saw entry \d+/) as unknown,
      },
    ]);
    expect((await own.catalog.list({ limit: 9 })).recordings).toMatchObject([
      { trust: 'failed', trustReason: expect.stringContaining('older copy') as unknown },
    ]);
    expect(open(site.bucket).length).toBeGreaterThan(0);
  });

  it('is not signed if the session had ended when this recorder last read the lease of the lost one', async () => {
    const { site, lost, session } = await beginSession();
    const { bucket } = site;
    await lost.evidence.publish();
    const own = await site.recorder(1);
    await own.look();
    const before = new Map(bucket.objects);
    await session.end();
    await lost.evidence.publish();
    await lost.look();
    await own.look();
    expect(own.evidence.witnessed(lost.evidence.log)?.n ?? 0).toBeLessThan(publishedLog(bucket).next - 1);
    bucket.objects.clear();
    for (const [name, object] of before) bucket.objects.set(name, object);
    site.wait(LEASE_MS);
    await takeOver(site, own);
    expect(stored(bucket)).toEqual([]);
    expect(own.untrusted()).toMatchObject([
      { trust: 'failed', reason: expect.stringContaining('older copy') as unknown },
    ]);
  });

  it('is a fault in each order of the logs if its recorder had signed another end', async () => {
    for (let attempt = 0; attempt < 6; attempt += 1) {
      const site = createTakeoverSite();
      const { bucket } = site;
      const lost = await site.recorder(0);
      await lost.look();
      const session = await lost.begin('one');
      await session.write(LINE);
      await lost.copies.update();
      await lost.evidence.publish();
      const before = new Map(bucket.objects);
      await session.write('[2,"o","rm -rf /"]\n');
      await session.end();
      await lost.evidence.publish();
      const log = [...bucket.objects].filter(([name]) => name.startsWith('.evidence/logs/'));
      bucket.objects.clear();
      for (const [name, object] of before) bucket.objects.set(name, object);
      site.wait(LEASE_MS);
      const own = await site.recorder(1);
      await own.look();
      site.wait(LEASE_MS / 2);
      await own.look();
      await own.evidence.publish();
      expect(stored(bucket)).toHaveLength(1);
      for (const [name, object] of log) bucket.objects.set(name, object);
      const { findings } = await verify(site, 0, 1);
      expect(findings).toContainEqual(
        expect.objectContaining({ code: 'recording-differs-from-log', recording: session.id() }),
      );
    }
  });

  it('is taken over if no recorder has seen a newer state', async () => {
    const { site, own } = await createReplay(false);
    await takeOver(site, own);
    expect(stored(site.bucket)).toHaveLength(1);
  });

  it('does not convince a recorder that it has seen a newer state', async () => {
    const { site, lost } = await beginSession();
    const { bucket } = site;
    await lost.evidence.publish();
    const { log } = lost.evidence;
    const signature = { log, n: 999, hash: 'a'.repeat(64), key: lost.key.public.id, ed25519: 'eA==' };
    const content = Buffer.from(`{"n":999}\n${JSON.stringify({ signature })}\n`);
    const name = logSegmentName(log, 999);
    bucket.objects.set(name, { content, modifiedAtMs: site.nowMs() });
    const own = await site.recorder(1);
    await own.evidence.publish();
    const seen = own.evidence.witnessed(log);
    expect(seen?.n).toBeLessThan(999);
    expect(seen?.n).toBeGreaterThan(0);
    bucket.objects.delete(name);
    site.wait(LEASE_MS);
    await takeOver(site, own);
    expect(stored(bucket)).toHaveLength(1);
  });
});

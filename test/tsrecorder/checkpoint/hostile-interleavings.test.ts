/**
 * Two recorders share a bucket. An attacker has write access to the bucket but no signing key. Each seed creates
 * another order of the actions of recorders and attacker. `TEST_SEED` changes all seeds.
 */
import { hash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { encodeStatement } from '../../../src/tsrecorder/evidence/statement.ts';
import {
  encodeSegment,
  encodeEntry,
  hashLine,
  keyName,
  logSegmentName,
  NO_HASH,
} from '../../../src/tsrecorder/evidence/log-entry.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { checkSigned } from '../../../src/tsrecorder/evidence/verify-recording.ts';
import { verifyStore } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { encodeMeta } from '../../../src/tsrecorder/spool/spool-journal.ts';
import { parseRecordingId, recordingId, recordingKey } from '../../../src/tsrecorder/store/key.ts';
import { createRandom, type Random } from '../../support/random.ts';
import { HEADER, STORED_HEADER } from '../recorder-rig.ts';
import {
  createTakeoverSite,
  LEASE_MS,
  type Site,
  type SiteRecorder,
  type SiteSession,
} from './takeover-site.ts';

const INTERLEAVINGS = 100;
const FIRST_SEED = Number(process.env['TEST_SEED'] ?? 1);
const STEPS = 30;
const FORGED = 'forged-by-the-hostile-writer';

interface Hostile {
  /** Adds objects without changing those of the recorders. */
  add(): Promise<void>;
  /** Changes, replaces and removes objects of the recorders. */
  harm(): Promise<void>;
  /** Changes the output of all copies to other output of the same length. */
  forgeInPlace(): void;
}

/** Creates an attacker who can write to the bucket, remembers all objects, and has an untrusted key. */
function createHostile({ bucket, nowMs }: Site, random: Random): Hostile {
  const key = generateSigningKey();
  const memory: Map<string, Buffer>[] = [];
  const madeUp = (): string => Buffer.from(random.bytes(8)).toString('hex');
  const names = (prefix: string): readonly string[] =>
    [...bucket.objects.keys()].filter((name) => name.startsWith(prefix)).toSorted();
  const put = (name: string, content: string | Uint8Array): void => {
    bucket.objects.set(name, { content: Buffer.from(content), modifiedAtMs: nowMs() });
  };

  /** Adds a forged session, unsigned or signed with the wrong key. */
  function forgeSession(isSigned: boolean): void {
    const owner = madeUp();
    const of = {
      nodeId: 'nGATE1CNTRL',
      time: `2026-07-29T10:4${random.below(10)}:42.00000000${random.below(10)}Z`,
    };
    const folder = `.open/${owner}/${recordingId(of)}/`;
    const cast = `${STORED_HEADER}[1,"o","${FORGED}"]\n`;
    const meta = encodeMeta({
      ...of,
      nodeName: 'gateway.tail1.ts.net',
      address: '100.64.0.1',
      protocol: 'v2',
      token: random.pick(['one', 'two', 'other']),
      uploadedHeaderBytes: HEADER.length,
      storedHeaderBytes: STORED_HEADER.length,
    });
    put(`${folder}notes-000000000000000`, meta);
    put(`${folder}cast-000000000000000`, cast);
    if (!isSigned) return;
    const log = madeUp() + madeUp();
    const time = new Date(nowMs()).toISOString();
    const events = [
      { kind: 'open', format: 1, log, key: key.public.raw } as const,
      {
        kind: 'start',
        recording: recordingId(of),
        header: hash('sha256', STORED_HEADER),
        nodeId: of.nodeId,
        nodeName: 'gateway.tail1.ts.net',
        address: '100.64.0.1',
        durable: cast.length,
      } as const,
    ];
    const lines: string[] = [];
    for (const [n, event] of events.entries())
      lines.push(encodeEntry({ n, prev: n === 0 ? NO_HASH : hashLine(lines[n - 1]!), time, event }));
    put(logSegmentName(log, 0), encodeSegment(lines, { log, n: 1, hash: hashLine(lines[1]!) }, key));
    put(keyName(key.public.id), key.public.pem);
    put(`.recorders/${owner}`, encodeStatement('lease', { recorder: owner, owner, log, at: nowMs() }, key));
    const digest = (text: string): object => ({
      bytes: Buffer.byteLength(text),
      sha256: hash('sha256', text),
    });
    const checkpoint = {
      recorder: owner,
      recording: recordingId(of),
      log,
      start: 1,
      header: hash('sha256', STORED_HEADER),
      meta: hash('sha256', meta),
      bodyBytes: cast.length,
      cast: digest(cast),
      notes: digest(meta),
    };
    put(`${folder}proof`, encodeStatement('checkpoint', checkpoint, key));
  }

  function copyToOther(change: boolean): void {
    const owner = madeUp();
    const [, source] = /^(\.open\/[^/]+\/[^/]+\/)/.exec(pick('.open/') ?? '') ?? [];
    if (source === undefined) return;
    for (const name of names(source)) {
      const text = bucket.objects.get(name)!.content.toString();
      put(name.replace(/^\.open\/[^/]+/, `.open/${owner}`), change ? text.replace('genuine', FORGED) : text);
    }
  }

  const pick = (prefix: string): string | undefined => {
    const found = names(prefix);
    return found.length === 0 ? undefined : random.pick(found);
  };

  function change(prefix: string): void {
    const name = pick(prefix);
    if (name === undefined) return;
    const content = Buffer.from(bucket.objects.get(name)!.content);
    if (content.length === 0) return;
    switch (random.below(4)) {
      case 0:
        content[random.below(content.length)]! ^= 1 << random.below(8);
        put(name, content);
        break;
      case 1:
        put(name, content.subarray(0, random.below(content.length)));
        break;
      case 2:
        put(name, Buffer.concat([content, Buffer.from(`[2,"o","${FORGED}"]\n`)]));
        break;
      default:
        put(name, content.toString().replaceAll('genuine', FORGED));
    }
  }

  function replay(): void {
    if (memory.length === 0) return;
    const then = random.pick(memory);
    const prefix = random.pick(['.open/', '.recorders/', '.evidence/']);
    const old = [...then.keys()].filter((name) => name.startsWith(prefix));
    if (old.length === 0) return;
    const name = random.pick(old);
    const group = random.oneIn(2) ? name.slice(0, name.lastIndexOf('/') + 1) : name;
    for (const each of old.filter((other) => other.startsWith(group))) put(each, then.get(each)!);
  }

  function swap(): void {
    const [one, other] = [pick('.open/'), pick('.open/')];
    if (one === undefined || other === undefined) return;
    const [first, second] = [bucket.objects.get(one)!.content, bucket.objects.get(other)!.content];
    put(one, second);
    put(other, first);
  }

  function remember(): void {
    memory.push(new Map([...bucket.objects].map(([name, { content }]) => [name, content])));
  }

  return {
    forgeInPlace() {
      for (const name of names('.open/').filter((each) => each.includes('/cast-')))
        put(name, bucket.objects.get(name)!.content.toString().replaceAll('genuine', 'forgery'));
    },
    async add() {
      remember();
      random.pick([
        () => forgeSession(false),
        () => forgeSession(true),
        () => copyToOther(false),
        () => copyToOther(true),
      ])();
    },
    async harm() {
      remember();
      random.pick([
        () => change('.open/'),
        () => change('.recorders/'),
        () => change('.evidence/'),
        () => {
          const name = pick(random.pick(['.open/', '.recorders/', '.evidence/']));
          if (name !== undefined) bucket.objects.delete(name);
        },
        () => {
          const name = pick('.recorders/');
          if (name !== undefined) put(name, `${madeUp()}\n`);
        },
        replay,
        swap,
      ])();
    },
  };
}

interface World {
  readonly site: Site;
  readonly recorders: readonly [SiteRecorder, SiteRecorder];
  readonly sessions: {
    readonly session: SiteSession;
    readonly at: number;
    isEnded: boolean;
    copied: number;
  }[];
  /** True if the first recorder was killed. */
  isKilled: boolean;
}

async function createWorld(): Promise<World> {
  const site = createTakeoverSite();
  const recorders = [await site.recorder(0), await site.recorder(1)] as const;
  for (const recorder of recorders) await recorder.look();
  const sessions: World['sessions'] = [];
  for (const [at, token] of [
    [0, 'one'],
    [0, 'two'],
    [1, 'three'],
  ] as const) {
    const session = await recorders[at].begin(token);
    await session.write('[1,"o","genuine"]\n');
    sessions.push({ session, at, isEnded: false, copied: 0 });
    site.wait(1);
  }
  return { site, recorders, sessions, isKilled: false };
}

async function copy(world: World, at: 0 | 1): Promise<void> {
  await world.recorders[at].copies.update().catch(() => undefined);
  for (const each of world.sessions)
    if (each.at === at && !each.isEnded) each.copied = each.session.cast().length;
}

/** Runs one step of a recorder. Steps that fail because of the attacker are retried later. */
async function step(world: World, random: Random): Promise<void> {
  const { site, recorders, sessions } = world;
  const at = world.isKilled ? 1 : (random.below(2) as 0 | 1);
  const recorder = recorders[at];
  const open = sessions.filter((each) => each.at === at && !each.isEnded);
  switch (random.below(8)) {
    case 0:
    case 1:
      await copy(world, at);
      break;
    case 2:
    case 3:
      await recorder.look().catch(() => undefined);
      break;
    case 4:
      site.wait(random.pick([10, LEASE_MS / 4, LEASE_MS / 2]));
      break;
    case 5:
      await recorder.evidence.publish().catch(() => undefined);
      break;
    default:
      if (open.length > 0) await random.pick(open).session.write(`[2,"o","genuine ${random.below(1000)}"]\n`);
  }
}

/**
 * Runs 16 rounds of the second recorder, and of the first recorder unless it was killed. Half a lease passes before
 * each round.
 */
async function settle(world: World): Promise<void> {
  const { site, recorders } = world;
  for (let round = 0; round < 16; round += 1) {
    site.wait(LEASE_MS / 2);
    await recorders[1].look().catch(() => undefined);
    if (!world.isKilled) {
      await recorders[0].look().catch(() => undefined);
      await copy(world, 0);
    }
    await copy(world, 1);
  }
}

/** Returns the cast as a viewer reads it: all parts of the session. */
async function castOf({ catalog }: SiteRecorder, id: string): Promise<string> {
  const { pieces = [] } = (await catalog.find(id)) ?? {};
  const chunks = pieces.map((piece) => Array.fromAsync(piece.read({ start: piece.start, end: piece.end() })));
  return Buffer.concat((await Promise.all(chunks)).flat()).toString();
}

/** Checks that every signed or verified recording is a prefix of the genuine session. */
async function checkNoForgery({ site, recorders, sessions }: World): Promise<void> {
  const { store, keys, bucket } = site;
  const byId = new Map(keys.map((key) => [key.public.id, key.public] as const));
  const casts = sessions.map(({ session }) => session.cast());
  const isGenuine = (cast: string): boolean => casts.some((genuine) => genuine.startsWith(cast));
  for (const { key } of await store.list()) {
    const { findings, evidence } = await checkSigned(store, key, { trusted: true, byId });
    const isSound = evidence && findings.every(({ severity }) => severity !== 'fault');
    const cast = bucket.objects.get(recordingKey(key))!.content.toString();
    expect(isSound, recordingId(key)).toBe(true);
    expect(isGenuine(cast), `${recordingId(key)} is signed`).toBe(true);
  }
  for (const recorder of recorders) {
    const { recordings } = await recorder.catalog.list({ limit: 100 });
    for (const { id, trust } of recordings) {
      const cast = await castOf(recorder, id);
      if (trust === 'verified') expect(isGenuine(cast), `${id} is listed as verified`).toBe(true);
      const isMadeUp = !sessions.some(({ session }) => session.id() === id);
      if (isMadeUp) expect(trust, `${id} never happened`).not.toBe('verified');
      if (/forge/.test(cast) && trust === undefined)
        // while a session runs, its recording at another recorder is unfinished and not verified
        expect(recordings.find((each) => each.id === id)?.state).toBe('running');
    }
  }
}

async function play(seed: number, hostileOf: (hostile: Hostile) => () => Promise<void>): Promise<World> {
  const random = createRandom(seed);
  const world = await createWorld();
  const hostile = createHostile(world.site, random);
  const attack = hostileOf(hostile);
  const killAt = random.oneIn(4) ? Number.POSITIVE_INFINITY : 5 + random.below(STEPS - 10);
  for (let at = 0; at < STEPS; at += 1) {
    if (at === killAt) {
      world.isKilled = true;
      if (attack === hostile.harm && random.oneIn(2)) hostile.forgeInPlace();
    }
    if (random.oneIn(3)) await attack();
    else await step(world, random);
  }
  return world;
}

const SEEDS = Array.from({ length: INTERLEAVINGS / 2 }, (_, n) => FIRST_SEED + n);

describe('a takeover while an attacker without a key writes to the bucket', () => {
  it.each(SEEDS)(
    'signs and verifies nothing forged, whatever the attacker changes: seed %i',
    async (seed) => {
      const world = await play(seed, (hostile) => (createRandom(seed).oneIn(2) ? hostile.harm : hostile.add));
      await settle(world);
      await checkNoForgery(world);
      const { recorders, sessions, site, isKilled } = world;
      // a running recorder stores its sessions under their ids, even if the attacker changes the copies
      for (const each of sessions.filter(({ at }) => at === 1 || !isKilled)) {
        await each.session.end();
        each.isEnded = true;
        const entry = await recorders[1].catalog.find(each.session.id());
        expect(entry?.recording).toMatchObject({ id: each.session.id(), trust: 'verified' });
        const key = parseRecordingId(each.session.id())!;
        expect(
          each.session.cast().startsWith(site.bucket.objects.get(recordingKey(key))!.content.toString()),
        ).toBe(true);
      }
    },
  );

  it.each(SEEDS)('loses nothing that was copied, whatever the attacker adds: seed %i', async (seed) => {
    const world = await play(seed + INTERLEAVINGS, (hostile) => hostile.add);
    await settle(world);
    await checkNoForgery(world);
    const { recorders, sessions, site, isKilled } = world;
    for (const { session, at, copied } of sessions) {
      const isLost = isKilled && at === 0;
      if (!isLost) await session.end();
      if (isLost && copied === 0) continue;
      const entry = await recorders[1].catalog.find(session.id());
      const cast = await castOf(recorders[1], session.id());
      expect(entry?.recording).toMatchObject({ id: session.id(), trust: 'verified' });
      expect(session.cast().startsWith(cast)).toBe(true);
      expect(cast.length).toBeGreaterThanOrEqual(isLost ? copied : session.cast().length);
    }
    for (const recorder of recorders.slice(isKilled ? 1 : 0)) await recorder.evidence.publish();
    const { findings } = await verifyStore({
      store: site.store,
      keys: site.keys.map((key) => key.public),
      checkpoint: [],
      nowMs: site.nowMs(),
    });
    const ours = findings.filter(
      ({ severity, code, log }) => severity === 'fault' && !isStranger(code, log, recorders),
    );
    expect(ours).toEqual([]);
  });
});

/** True for a fault in an evidence log of none of these recorders. The attacker must have added this log. */
function isStranger(code: string, log: string | undefined, recorders: readonly SiteRecorder[]): boolean {
  return code.startsWith('log-') && !recorders.some(({ evidence }) => evidence.log === log);
}

import { chmod, mkdir, mkdtemp, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLogger, createSilentLogger } from '../../../src/observe/logger.ts';
import { PREFIX_BYTES } from '../../../src/recording/journal/journal-codec.ts';
import { openOwnFolder, surveyJournals } from '../../../src/recording/journal/journal-directory.ts';
import {
  createJournalKey,
  KEY_BYTES,
  loadJournalKey,
  type JournalKey,
} from '../../../src/recording/journal/journal-key.ts';
import { Journals, type Deliverer, type JournalOptions } from '../../../src/recording/journal/journals.ts';
import { findRecorders } from '../../../src/recording/find-recorders.ts';
import type { LateEnd, LateEvents, UploadRest } from '../../../src/recording/late-end.ts';
import { SEGMENT_BYTES } from '../../../src/recording/journal/session-journal.ts';
import { Preamble } from '../../../src/recording/preamble.ts';
import { createRecorderClient } from '../../../src/recording/recorder-client.ts';
import { dialLoopback } from '../../support/recorder-dial.ts';
import { framed, startRecorderDouble } from '../../support/recorder-double.ts';

const key = createJournalKey(Buffer.alloc(KEY_BYTES, 7));
const HEADER = '{"version":2}\n';
const LINES = '[0,"o","a"]\n[1,"o","b"]\n';
const MANY = 1_000_000_000;
const HEADER_BYTES = framed(HEADER).length;
const LINES_BYTES = framed(LINES).length;

let directory: string;
const closers: (() => Promise<void> | void)[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcjournals-'));
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const reported: string[] = [];
const silent: LateEvents = {
  left: (bytes) => void reported.push(`left ${bytes}`),
  delivered: ({ bytes }) => void reported.push(`delivered ${bytes}`),
  dropped: ({ reason }) => void reported.push(`dropped: ${reason}`),
  kept: ({ reason }) => void reported.push(`kept: ${reason}`),
};

/** Opens the journals of one process. All intervals are so long that no timer runs during a test. */
async function open(
  with_: JournalKey = key,
  log = createSilentLogger(),
  findRecorders?: JournalOptions['findRecorders'],
  maxBytes = MANY,
): Promise<Journals> {
  reported.length = 0;
  const journals = await Journals.open({
    directory,
    key: with_,
    maxBytes,
    unixMs: Date.now,
    log,
    eventsOf: () => silent,
    signMs: MANY,
    noteMs: MANY,
    ...(findRecorders === undefined ? {} : { findRecorders }),
  });
  closers.push(() => journals.close());
  return journals;
}

/** Returns the tail of an upload whose journal contains all its bytes. */
function restOf(bytes: Uint8Array): UploadRest {
  return { bytes, offset: 0, lineBytes: 0, preamble: new Preamble(), part: 1, resumable: true };
}

/** Creates a deliverer that accepts and stores every delivery. */
function createDeliverer(hasRoom = (): boolean => true): Deliverer & { readonly ends: LateEnd[] } {
  const ends: LateEnd[] = [];
  return { ends, hasRoom, take: (end) => ends.push(end) > 0 };
}

/** Leaves a session on disk as if the process had been killed during the session. */
async function leaveSession(recorders: readonly string[] = ['192.0.2.1:80']): Promise<void> {
  const text = HEADER + LINES;
  const journals = await open();
  const journal = journals.begin({ sessionId: 's1', recorders, recorderTags: [], about: { user: 'alice' } });
  const preamble = new Preamble();
  preamble.push(framed(text));
  expect(journal.append(0, framed(text), preamble)).toBe(true);
  await journals.close();
}

async function journalFiles(): Promise<string[]> {
  const names = await readdir(directory, { recursive: true });
  return names.filter((name) => name.includes('.journal')).map((name) => join(directory, name));
}

/** Opens the journals as the next process does, and looks once for sessions that an earlier process left. */
async function lookAgain(with_ = key) {
  const journals = await open(with_);
  const deliverer = createDeliverer();
  journals.start(deliverer);
  await journals.look();
  return { journals, deliverer };
}

/** Changes the first journal, and returns its new bytes. */
async function changeJournal(change: (bytes: Buffer) => unknown): Promise<Buffer> {
  const [path = ''] = await journalFiles();
  const bytes = await readFile(path);
  change(bytes);
  await writeFile(path, bytes);
  return bytes;
}

describe('journals of an earlier process', () => {
  it('are delivered by the next process, from their start, and removed', async () => {
    const recorder = await startRecorderDouble({});
    closers.push(() => recorder.close());
    await leaveSession([recorder.address]);
    expect(await journalFiles()).toHaveLength(1);
    const journals = await open();
    const client = createRecorderClient({
      dial: dialLoopback,
      nowMs: () => performance.now(),
      log: createSilentLogger(),
      lateLimits: { retryMs: 10, maxRetryMs: 20 },
      journals,
    });
    closers.push(() => client.close());
    await expect
      .poll(() => reported)
      .toEqual([`left ${framed(HEADER + LINES).length}`, `delivered ${framed(HEADER + LINES).length}`]);
    expect(recorder.uploads[0]!.headers).toMatchObject({ 'tailcast-session': 's1', 'tailcast-offset': '0' });
    expect(recorder.uploads[0]!.body).toEqual(framed(HEADER + LINES));
    await expect.poll(journalFiles).toEqual([]);
    expect([journals.left, journals.bytes]).toEqual([0, 0]);
  });

  it('are taken by exactly one of several processes that look for them', async () => {
    await leaveSession();
    await leaveSession();
    const many = await Promise.all(Array.from({ length: 5 }, () => open()));
    const deliverers = many.map((journals) => {
      const deliverer = createDeliverer();
      journals.start(deliverer);
      return deliverer;
    });
    await Promise.all(many.map((journals) => journals.look()));
    await Promise.all(many.map((journals) => journals.look()));
    expect(deliverers.flatMap(({ ends }) => ends)).toHaveLength(2);
  });

  it('are found if the process that took them was killed before it moved them', async () => {
    await leaveSession();
    const first = await openOwnFolder(directory, key);
    const [other = ''] = (await readdir(directory)).filter((name) => !first.path.endsWith(name));
    await rename(join(directory, other), join(first.path, `taken-${other}`));
    await first.abandon();
    const { deliverer } = await lookAgain();
    expect(deliverer.ends).toHaveLength(1);
    expect(await readdir(directory)).toHaveLength(1);
  });

  it('are not taken from a running process', async () => {
    const living = await open();
    const journal = living.begin({ sessionId: 's1', recorders: [], recorderTags: [], about: {} });
    journal.append(0, framed(HEADER), new Preamble());
    const { deliverer } = await lookAgain();
    expect(deliverer.ends).toEqual([]);
    expect(journal.append(HEADER_BYTES, framed(LINES), new Preamble())).toBe(true);
  });

  it('are kept and counted if they are sealed with another key', async () => {
    await leaveSession();
    const { journals, deliverer } = await lookAgain(createJournalKey(Buffer.alloc(KEY_BYTES, 8)));
    expect(deliverer.ends).toEqual([]);
    expect(journals.unreadable).toBe(1);
    expect(await journalFiles()).toHaveLength(1);
    const other = createJournalKey(Buffer.alloc(KEY_BYTES, 8));
    expect((await surveyJournals(directory, other)).foreign.files).toBe(1);
    expect((await surveyJournals(directory, key)).left.files).toBe(1);
  });

  it('keep their names if a newer version wrote them, so that this version can deliver them', async () => {
    await leaveSession();
    await changeJournal((bytes) => void bytes.write('9', 'tcjrnl'.length));
    const { journals, deliverer } = await lookAgain();
    expect(deliverer.ends).toEqual([]);
    expect([journals.unreadable, journals.left]).toEqual([1, 0]);
    await journals.close();
    expect((await journalFiles())[0]).toMatch(/\.journal$/);
    expect((await surveyJournals(directory, key)).left.files).toBe(1);
  });

  it('are set aside if somebody changed them', async () => {
    await leaveSession();
    await changeJournal((bytes) => {
      bytes[60] = (bytes[60] ?? 0) ^ 1;
    });
    const { journals, deliverer } = await lookAgain();
    expect(deliverer.ends).toEqual([]);
    expect([journals.unreadable, journals.left]).toEqual([1, 0]);
    expect((await journalFiles())[0]).toMatch(/\.journal\.damaged$/);
    expect((await surveyJournals(directory, key)).damaged.files).toBe(1);
  });

  it.each([
    ['zeros from its first byte on', 0, [0]],
    ['zeros behind the prefix', PREFIX_BYTES, [0]],
    ['a length of 1 MiB behind the prefix', PREFIX_BYTES, [0, 0x10, 0, 0]],
  ])('are set aside if the head is damaged: %s', async (_, at, value) => {
    await leaveSession();
    const bytes = await changeJournal((bytes) =>
      bytes.fill(Buffer.from(value), at, Math.min(bytes.length, at + 512)),
    );
    const { journals } = await lookAgain();
    expect([journals.unreadable, journals.left]).toEqual([1, 0]);
    const [kept = ''] = await journalFiles();
    expect(kept).toMatch(/\.journal\.damaged$/);
    expect(await readFile(kept)).toEqual(bytes);
  });

  it('are delivered up to a damaged length, and set aside', async () => {
    await leaveSession();
    const [path = ''] = await journalFiles();
    const bytes = await readFile(path);
    bytes.fill(0, bytes.length - 40);
    await writeFile(path, bytes.subarray(0, bytes.length - 5));
    const { journals } = await lookAgain();
    expect(journals.unreadable).toBe(1);
    expect((await surveyJournals(directory, key)).damaged.files).toBe(1);
  });

  it('are reported when they are removed without content', async () => {
    await leaveSession();
    const [path = ''] = await journalFiles();
    await writeFile(path, '');
    const logged: string[] = [];
    const destination = { write: (line: string) => void logged.push(line) };
    const journals = await open(key, createLogger({ level: 'warn', destination }));
    journals.start(createDeliverer());
    await journals.look();
    expect(logged).toEqual([expect.stringContaining('an empty journal is removed')]);
  });

  it.each([
    ['content', 60, 0xff],
    ['length', PREFIX_BYTES + 2, 0],
  ])('are set aside if the %s of a head that overwrote another one is damaged', async (_, at, value) => {
    const journals = await open();
    const preamble = new Preamble();
    const journal = journals.begin({ sessionId: 's1', recorders: [], recorderTags: [], about: {} });
    let end = 0;
    const write = (): void => {
      const bytes = framed(`[${end},"o","${'x'.repeat(SEGMENT_BYTES)}"]\n`);
      preamble.push(bytes);
      expect(journal.append(end, bytes, preamble)).toBe(true);
      end += bytes.length;
    };
    write();
    write();
    journal.acknowledged(end, end);
    const [spare = ''] = (await journalFiles()).toSorted();
    write();
    await journals.close();
    const left = (await journalFiles()).toSorted();
    const path = left.at(-1) ?? '';
    expect(left).not.toContain(spare);
    const bytes = await readFile(path);
    expect(bytes.toString('latin1', 0, 8)).toBe('tcjrnl4\n');
    bytes.fill(value, at, at + 2);
    await writeFile(path, bytes);
    const logged: string[] = [];
    const destination = { write: (line: string) => void logged.push(line) };
    const next = await open(key, createLogger({ level: 'error', destination }));
    next.start(createDeliverer());
    await next.look();
    expect(next.unreadable).toBe(1);
    expect(logged).toEqual([expect.stringContaining('"its head cannot be read"')]);
    expect(await journalFiles()).toContainEqual(expect.stringMatching(/\.000003\.journal\.damaged$/));
    expect((await surveyJournals(directory, key)).damaged.files).toBe(1);
  });

  it('are delivered only to recorders that still have their tag', async () => {
    const [address, tagsOf] = ['192.0.2.1:80', { '192.0.2.1:80': ['tag:recorder'] }];
    const first = await open();
    const journal = first.begin({
      sessionId: 's1',
      recorders: [address],
      recorderTags: [],
      tagsOf,
      about: {},
    });
    journal.append(0, framed(HEADER), new Preamble());
    await first.close();
    let tags: readonly string[] = ['tag:recorder'];
    const carriesTag = async (_address: string, wanted: readonly string[]): Promise<boolean> =>
      wanted.some((tag) => tags.includes(tag));
    const next = await open(key, createSilentLogger(), (named, signal) =>
      findRecorders(named, { carriesTag }, signal),
    );
    const deliverer = createDeliverer();
    next.start(deliverer);
    await next.look();
    const find = deliverer.ends[0]!.find!;
    expect(await find(new AbortController().signal)).toEqual([address]);
    tags = ['tag:laptop'];
    await expect(find(new AbortController().signal)).rejects.toThrow('is no node with tag:recorder');
  });

  it('stay on disk until there is space in memory', async () => {
    await leaveSession();
    let room = false;
    const journals = await open();
    const deliverer = createDeliverer(() => room);
    journals.start(deliverer);
    await journals.look();
    expect([deliverer.ends.length, journals.left]).toEqual([0, 1]);
    room = true;
    await journals.look();
    expect(deliverer.ends).toHaveLength(1);
    // the deliverer has no capacity and returns the session, so the session is delivered again
    deliverer.ends[0]!.journal!.wait();
    await journals.look();
    expect(deliverer.ends).toHaveLength(2);
    deliverer.ends[1]!.journal!.remove();
    expect([journals.left, journals.bytes]).toEqual([0, 0]);
  });
});

describe('the tails of a stopped process', () => {
  it('wait without an event if the share of their user is full', async () => {
    await leaveSession();
    const journals = await open();
    const users: string[] = [];
    const deliverer = createDeliverer();
    journals.start({
      hasRoom: (_bytes, user) => users.push(user) > 0 && user === '',
      take: (end) => deliverer.take(end),
    });
    await journals.look();
    expect(users).toEqual(['', 'alice']);
    expect([deliverer.ends.length, journals.left]).toEqual([0, 1]);
  });

  it('are announced once, also if the deliverer returns them', async () => {
    await leaveSession();
    const journals = await open();
    const deliverer = createDeliverer();
    journals.start(deliverer);
    await journals.look();
    deliverer.ends[0]!.journal!.wait();
    await journals.look();
    expect(deliverer.ends.map(({ announced }) => announced)).toEqual([false, true]);
  });
});

describe('a user whose journals fill the share of the user', () => {
  const MAX_BYTES = 1024 * 1024;
  const bytes = framed(`[0,"o","${'x'.repeat(10_000)}"]\n`);
  const openSmall = (log = createSilentLogger()): Promise<Journals> => open(key, log, undefined, MAX_BYTES);

  function begin(journals: Journals, user: string) {
    return journals.begin({ sessionId: user, recorders: [], recorderTags: [], about: { user } });
  }

  /** Appends to a new journal of the user until the journal refuses. */
  function fill(journals: Journals, user = 'greedy') {
    const journal = begin(journals, user);
    let end = 0;
    for (; journal.append(end, bytes, new Preamble()); end += bytes.length);
    return journal;
  }

  it('leaves space for the journal of another user, and the refusal is logged', async () => {
    const logged: string[] = [];
    const destination = { write: (line: string) => void logged.push(line) };
    const journals = await openSmall(createLogger({ level: 'warn', destination }));
    for (let count = 0; count < 3; count += 1) fill(journals);
    expect(logged).toEqual([expect.stringContaining('output cannot be kept on disk')]);
    expect(begin(journals, 'calm').append(0, bytes, new Preamble())).toBe(true);
  });

  it('leaves space also after the sessions have ended without a recorder', async () => {
    const journals = await openSmall();
    const ends = [1, 2, 3].map(() => journals.leave(fill(journals), silent, restOf(bytes)));
    expect(begin(journals, 'greedy').append(0, bytes, new Preamble())).toBe(false);
    expect(begin(journals, 'calm').append(0, bytes, new Preamble())).toBe(true);
    for (const end of ends) end!.remove();
    expect(begin(journals, 'greedy').append(0, bytes, new Preamble())).toBe(true);
  });

  it('leaves space also after a restart of the gateway', async () => {
    const before = await openSmall();
    for (let count = 0; count < 3; count += 1) fill(before);
    await before.close();
    const journals = await openSmall();
    const deliverer = createDeliverer();
    journals.start(deliverer);
    await journals.look();
    expect(deliverer.ends.map(({ user }) => user)).toContain('greedy');
    expect(begin(journals, 'greedy').append(0, bytes, new Preamble())).toBe(false);
    expect(begin(journals, 'calm').append(0, bytes, new Preamble())).toBe(true);
    for (const { journal } of deliverer.ends) journal?.remove();
    expect(journals.bytes).toBeLessThan(2 * bytes.length);
    expect(begin(journals, 'greedy').append(0, bytes, new Preamble())).toBe(true);
  });
});

describe('a tail of which the disk has no space for the last bytes', () => {
  const line = (length: number): string => `[0,"o","${'x'.repeat(length)}"]\n`;

  /** Fills the disk share of a session, and loses its recorder. @returns the size of the tail */
  async function loseRecorder(
    journals: Journals,
    late: Parameters<typeof createRecorderClient>[0]['lateLimits'],
  ) {
    const recorder = await startRecorderDouble({ acks: 'alive' });
    const client = createRecorderClient({
      dial: dialLoopback,
      nowMs: () => performance.now(),
      log: createSilentLogger(),
      journals,
      limits: { moveTimeoutMs: 60, moveRetryMs: 10, maxFruitlessMoves: 1 },
      lateLimits: { retryMs: MANY, maxRetryMs: MANY, ...late },
    });
    closers.push(() => client.close());
    const request = {
      recorders: [recorder.address],
      sessionId: 's1',
      about: { user: 'alice' },
      late: silent,
    };
    const upload = await client.open(request, new AbortController().signal);
    void upload.write(HEADER);
    expect(upload.write(line(1_000))).toBeUndefined();
    const shown = upload.pendingBytes;
    const refused = upload.write(line(600_000));
    expect(refused).toBeInstanceOf(Promise);
    refused!.catch(() => undefined);
    await recorder.until(() => recorder.uploads[0]?.size === upload.pendingBytes);
    await recorder.close();
    await upload.lost;
    upload.leave(new Uint8Array());
    return { client, shown, all: upload.pendingBytes };
  }

  it('keeps the first bytes on disk when the process exits, and reports the others as lost', async () => {
    const journals = await open(key, createSilentLogger(), undefined, 1024 * 1024);
    const { client, shown } = await loseRecorder(journals, {});
    client.close();
    expect(
      reported.map((each) => each.replace(/\d+/, (count) => (Number(count) === shown ? 'shown' : '…'))),
    ).toEqual(['left …', 'dropped: the gateway has ended', 'left shown', 'kept: the gateway has ended']);
    await journals.close();
    const { deliverer } = await lookAgain();
    expect(deliverer.ends.map(({ rest }) => rest.bytes.length)).toEqual([shown]);
  });

  it('keeps the first bytes on disk if the memory has no space either', async () => {
    const journals = await open(key, createSilentLogger(), undefined, 1024 * 1024);
    const { client, shown } = await loseRecorder(journals, { maxSessions: 0 });
    expect(reported.slice(1)).toEqual([expect.stringContaining('share of 0'), `left ${shown}`]);
    client.close();
    await journals.close();
    const { deliverer } = await lookAgain();
    expect(deliverer.ends.map(({ rest }) => rest.bytes.length)).toEqual([shown]);
  });
});

describe('a process whose folder was taken, because it seemed dead', () => {
  it('delivers nothing from that folder, and continues in a new folder after everything is acknowledged', async () => {
    const { journals } = await lookAgain();
    const head = { sessionId: 's1', recorders: [], recorderTags: [], about: {} };
    const over = journals.begin(head);
    over.append(0, framed(HEADER), new Preamble());
    const end = journals.leave(over, silent, restOf(framed(HEADER)))!;
    const running = journals.begin({ ...head, sessionId: 's2' });
    running.append(0, framed(HEADER), new Preamble());
    const [own = ''] = await readdir(directory);
    await mkdir(join(directory, 'other'));
    await rename(join(directory, own), join(directory, 'other', own));
    await journals.look();
    expect(end.taken).toBe(true);
    expect(running.append(HEADER_BYTES, framed(LINES), new Preamble())).toBe(false);
    running.acknowledged(HEADER_BYTES + LINES_BYTES, (HEADER + LINES).length);
    expect(running.append(HEADER_BYTES + LINES_BYTES, framed(LINES), new Preamble())).toBe(true);
    end.remove();
    expect(await journalFiles()).toHaveLength(3);
  });
});

describe('the key of the journals', () => {
  it('is created once, readable only by its owner, even if several processes start at once', async () => {
    const path = join(directory, 'late.key');
    const keys = await Promise.all(Array.from({ length: 8 }, () => loadJournalKey(path)));
    expect(new Set(keys.map(({ id }) => id.toString('hex'))).size).toBe(1);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(['late.key']);
  });

  it.each([
    ['empty', ''],
    ['too short', Buffer.alloc(KEY_BYTES - 1).toString('base64')],
    ['too long', Buffer.alloc(KEY_BYTES + 1).toString('base64')],
    ['no base64', 'ü'.repeat(44)],
  ])('is refused when the file is %s', async (_what, text) => {
    const path = join(directory, 'late.key');
    await writeFile(path, text, { mode: 0o600 });
    await expect(loadJournalKey(path)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });

  it('is refused if other users can read it, or if it cannot be created', async () => {
    const path = join(directory, 'late.key');
    await loadJournalKey(path);
    await chmod(path, 0o604);
    await expect(loadJournalKey(path)).rejects.toThrow('everybody may read it');
    await expect(loadJournalKey(join(path, 'key'))).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });
});

describe('a directory that is not usable', () => {
  it('causes an error at the start', async () => {
    await writeFile(join(directory, 'file'), '');
    await expect(openOwnFolder(join(directory, 'file'), key)).rejects.toMatchObject({
      code: expect.any(String),
    });
  });
});

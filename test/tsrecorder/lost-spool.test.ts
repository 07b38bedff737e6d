/**
 * A killed recorder restarts, and acknowledged bytes are missing from its spool. The recorder must report the affected
 * sessions.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, cp, mkdtemp, readFile, readdir, rename, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore, type VerifyReport } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { createRig, HEADER, openUpload, until } from './recorder-rig.ts';

const PROGRAM = join(dirname(fileURLToPath(import.meta.url)), 'recorder-process.ts');

interface Killed {
  readonly directory: string;
  readonly spool: string;
  /** Names of the spooled sessions without suffixes, oldest first. */
  readonly sessions: readonly string[];
  readonly acked: number;
}

/** Uploads two sessions, and kills their recorder after the acknowledgements. */
async function killRecorder(lines = 3): Promise<Killed> {
  const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-lost-'));
  const child = fork(PROGRAM, [directory], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
  const [output] = await once(child.stdout!, 'data');
  const body = (name: string): string =>
    HEADER.replace('sh -i', name) +
    Array.from({ length: lines }, (_, at) => `[${at},"o","${name} ${'x'.repeat(100)}"]\n`).join('');
  const acked = body('one').length;
  for (const name of ['one', 'two']) {
    const upload = openUpload({ url: String(output).trim() }, { 'tailcast-session': name });
    upload.stream.on('error', () => undefined);
    upload.write(body(name));
    await upload.ack(({ ack }) => ack === acked);
  }
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
  const spool = `${directory}.spool`;
  const names = (await readdir(spool)).filter((name) => name.endsWith('.cast')).toSorted();
  return { directory, spool, sessions: names.map((name) => join(spool, name.slice(0, -5))), acked };
}

/** Restarts a recorder, which stores the remaining sessions, and verifies the store one hour later. */
async function comeBack({ directory }: Pick<Killed, 'directory'>, stored: number): Promise<VerifyReport> {
  const rig = await createRig({ timing: { resumeGraceMs: 1 } }, directory);
  await until(async () => {
    const left = (await readdir(`${directory}.spool`)).filter((name) => name.endsWith('.notes'));
    return left.length === 0 && (await rig.list()).length === stored ? true : undefined;
  });
  await rig.recorder.close();
  const key = await loadSigningKey(join(`${directory}.spool`, 'evidence', 'key.pem'), false);
  const store = await createDiskStore(directory, { readOnly: true });
  return verifyStore({ store, keys: [key.public], checkpoint: [], nowMs: Date.now() + 3_600_000 });
}

async function clean({ directory, spool }: Killed): Promise<void> {
  await rm(directory, { recursive: true });
  await rm(spool, { recursive: true, force: true });
}

/** Copies a store without the lock of the running process. */
async function copyWhole(from: string, to: string): Promise<void> {
  await cp(from, to, { recursive: true, filter: (path) => !path.endsWith('/owner') });
}

/** Returns the published entries of the evidence log. An entry is in the tail first, and later in a segment. */
async function logOf(directory: string): Promise<string> {
  const folder = join(directory, '.evidence');
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const files = names.filter((name) => name.endsWith('.ndjson')).map((name) => join(folder, name));
  return (await Promise.all(files.map((path) => readFile(path, 'utf8').catch(() => '')))).join('');
}

const idOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

describe('a recorder that is restarted after a kill', () => {
  it('finds everything if nobody has changed its spool', async () => {
    const killed = await killRecorder();
    const report = await comeBack(killed, 2);
    expect([report.verdict, report.findings]).toEqual(['verified', []]);
    await clean(killed);
  });

  it('reports a session as lost if its files were removed from the spool', async () => {
    const killed = await killRecorder();
    const [gone = ''] = killed.sessions;
    await Promise.all([rm(`${gone}.cast`), rm(`${gone}.notes`)]);
    const report = await comeBack(killed, 1);
    expect(report.verdict).toBe('lost');
    expect(report.findings).toMatchObject([
      {
        severity: 'fault',
        code: 'lost',
        recording: idOf(gone),
        message: `the recorder acknowledged ${killed.acked} bytes of it, and 0 exist: its spool is gone`,
      },
    ]);
    await clean(killed);
  });

  it.each(['cast', 'notes'])('reports a session as lost if only the %s was removed', async (suffix) => {
    const killed = await killRecorder();
    const [gone = ''] = killed.sessions;
    await rm(`${gone}.${suffix}`);
    const report = await comeBack(killed, 1);
    expect(report.findings).toMatchObject([{ code: 'lost', recording: idOf(gone) }]);
    await clean(killed);
  });

  it('reports how much of a truncated session is missing, and shows the rest', async () => {
    const killed = await killRecorder(200);
    const [cut = ''] = killed.sessions;
    await truncate(`${cut}.cast`, 3000);
    const report = await comeBack(killed, 2);
    expect(report.verdict).toBe('lost');
    expect(report.findings).toMatchObject([
      {
        code: 'lost',
        recording: idOf(cut),
        message: expect.stringMatching(/: its spool is shorter than it was$/),
      },
    ]);
    await clean(killed);
  });

  it('does not mistake a session for another one whose files were swapped with its own', async () => {
    const killed = await killRecorder();
    const [one = '', two = ''] = killed.sessions;
    await rename(`${one}.cast`, `${one}.moved`);
    await rename(`${two}.cast`, `${one}.cast`);
    await rename(`${one}.moved`, `${two}.cast`);
    const report = await comeBack(killed, 2);
    expect(report.verdict).toBe('lost');
    const lost = report.findings.filter(({ code }) => code === 'lost');
    expect(new Set(lost.map(({ recording }) => recording))).toEqual(new Set([one, two].map(idOf)));
    await clean(killed);
  });

  it.each(['its files', 'the whole spool'])(
    'reports the missing bytes of a session if %s are replaced by an older copy',
    async (what) => {
      const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-lost-'));
      const killed = { directory, spool: `${directory}.spool`, sessions: [], acked: 0 };
      const copy = `${directory}.copy`;
      const child = fork(PROGRAM, [directory, '0', '60000', '20'], {
        stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
      });
      const [output] = await once(child.stdout!, 'data');
      const recorder = { url: String(output).trim() };
      const lineOf = (at: number): string => `[${at},"o","${'x'.repeat(100)}"]\n`;
      const grow = async (name: string, lines: number): Promise<number> => {
        const upload = openUpload(recorder, { 'tailcast-session': name });
        upload.stream.on('error', () => undefined);
        let acked = HEADER.length;
        upload.write(HEADER);
        for (let at = 0; at < lines; at += 1) {
          upload.write(lineOf(at));
          acked += lineOf(at).length;
        }
        await upload.ack(({ ack }) => ack === acked);
        if (name === 'one') {
          await copyWhole(killed.spool, copy);
          for (let at = lines; at < 2 * lines; at += 1) {
            upload.write(lineOf(at));
            acked += lineOf(at).length;
          }
          await upload.ack(({ ack }) => ack === acked);
        }
        return acked;
      };
      const one = await grow('one', 10);
      await grow('two', 10);
      await until(async () => ((await logOf(directory)).includes(`,${one}]`) ? true : undefined));
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
      if (what === 'the whole spool') {
        await rm(killed.spool, { recursive: true });
        await rename(copy, killed.spool);
      } else {
        for (const name of await readdir(copy))
          if (/\.(cast|notes)$/.test(name)) await copyFile(join(copy, name), join(killed.spool, name));
        await rm(copy, { recursive: true });
      }
      const report = await comeBack(killed, what === 'the whole spool' ? 1 : 2);
      expect(report.verdict).toBe('lost');
      const lost = report.findings.filter(({ code }) => code === 'lost').map(({ message }) => message);
      const short = new RegExp(
        `^the recorder acknowledged ${one} bytes of it, and \\d+ exist: its spool is shorter than it was$`,
      );
      const gone = /^the recorder acknowledged \d+ bytes of it, and 0 exist: its spool is gone$/;
      const expected = what === 'the whole spool' ? [gone, short] : [short];
      expect(lost).toHaveLength(expected.length);
      for (const pattern of expected) expect(lost).toContainEqual(expect.stringMatching(pattern));
      expect(report.findings.filter(({ code }) => code !== 'lost')).toEqual([]);
      await clean(killed);
    },
  );

  it('cannot replace a removed spool: the log names the sessions that had started', async () => {
    const killed = await killRecorder();
    const key = join(killed.directory, 'key.pem');
    await copyFile(join(killed.spool, 'evidence', 'key.pem'), key);
    await rm(killed.spool, { recursive: true });
    await comeBack(killed, 0);
    const trusted = await loadSigningKey(key, false);
    const store = await createDiskStore(killed.directory, { readOnly: true });
    const soon = await verifyStore({ store, keys: [trusted.public], checkpoint: [], nowMs: Date.now() });
    expect(soon.unfinished).toBe(2);
    const later = await verifyStore({
      store,
      keys: [trusted.public],
      checkpoint: [],
      nowMs: Date.now() + 86_400_001,
    });
    const late = later.findings.filter(({ code }) => code === 'unfinished-too-long');
    expect(late.map(({ recording }) => recording)).toEqual(killed.sessions.map(idOf));
    await clean(killed);
  });
});

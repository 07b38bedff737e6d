/**
 * Tests search in daily use: real kubectl and a real editor with a real API server. Sessions are found while they run
 * and afterwards, in a folder and in a bucket, by both commands, and again after the index is lost.
 */
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { indexDirectory } from '../../../src/tsrecorder/search/recorder-search.ts';
import { runCommand } from '../../support/run-command.ts';
import { createTerminalOracle } from '../../support/terminal-oracle.ts';
import { createPod } from '../cases/case.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { environmentFor, findKubectls, runKubectl, type Kubectl } from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { startS3 } from '../rig/s3.ts';
import { openTerminal } from '../rig/terminal.ts';
import type { StoredRecording } from '../support/archive.ts';
import {
  identityOf,
  startTestGateway,
  startTestRecorder,
  type TestBucket,
  type TestRecorder,
} from '../support/product.ts';
import { createBucket } from '../support/site.ts';

ensureDebianProgram('vim');
const LOGIN = 'alice@example.com';
const POD = 'editor';
/**
 * Words that search must find. The test types these words letter by letter in an editor, so no command contains them.
 */
const WORDS = { running: 'quokkaburrow', kept: 'wombatlantern' } as const;

interface Hit {
  readonly at: number;
  readonly text: string;
}

interface Found {
  readonly recording: StoredRecording;
  readonly hits: readonly Hit[];
}

/** Returns the output of `tailcast search --json`; empty if the exit code was 1, which means no match, as with grep. */
async function search(recorder: TestRecorder, ...words: readonly string[]): Promise<readonly Found[]> {
  const { code, out, err } = await runCommand('search', ...words, '--json', '--recorder', recorder.url);
  const found = out
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Found);
  if (code !== (found.length === 0 ? 1 : 0)) throw new Error(`exit code ${code}: ${err}`);
  return found;
}

/** Resolves when one session is found. */
function theOnly(rig: Rig, recorder: TestRecorder, ...words: readonly string[]): Promise<Found> {
  return rig.until(`a session with ${words.join(' ')}`, async () => {
    const found = await search(recorder, ...words);
    return found.length === 1 ? found[0] : undefined;
  });
}

/** Returns the time in seconds at which a session's screen shows a word, as xterm renders the stored cast. */
async function shownFrom(cast: string, word: string): Promise<number | undefined> {
  const [header = '{}', ...lines] = cast.split('\n').filter(Boolean);
  const { width, height } = JSON.parse(header) as { width: number; height: number };
  const screen = createTerminalOracle(width, height);
  try {
    for (const line of lines) {
      const [at, kind, data] = JSON.parse(line) as [number, string, string];
      if (kind === 'r') screen.resize(...(data.split('x').map(Number) as [number, number]));
      if (kind === 'o') await screen.write(data);
      if (screen.screen().some((row) => row.includes(word))) return at;
    }
    return undefined;
  } finally {
    screen.dispose();
  }
}

/** Installs the command as a kubectl plugin, from the sources. @returns the folder for the PATH */
function installPlugin(folder: string): string {
  mkdirSync(join(folder, 'program'), { recursive: true });
  // the program knows from this file name that kubectl called it
  const program = join(folder, 'program', 'kubectl-tailcast');
  symlinkSync(join(import.meta.dirname, '../../../src/main.ts'), program);
  const script = `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`;
  writeFileSync(join(folder, 'kubectl-tailcast'), script, { mode: 0o755 });
  return folder;
}

describe.each(['a folder', 'a bucket'] as const)('a search over %s', (where) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let kubectl: Kubectl;
  let kubeconfig: string;
  let recorder: TestRecorder;
  let folder: string;
  let bucket: TestBucket | undefined;

  async function startBucket(): Promise<TestBucket> {
    const server = await startS3(rig);
    await createBucket(server, 'recordings');
    vi.stubEnv('AWS_ACCESS_KEY_ID', server.accessKeyId);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', server.secretAccessKey);
    rig.onStop(() => void vi.unstubAllEnvs());
    return { endpoint: server.endpoint, region: server.region, bucket: 'recordings' };
  }

  async function startRecorder(): Promise<void> {
    recorder = await startTestRecorder(folder, 'gateway.example.ts.net', bucket, true);
  }

  async function startGateway(): Promise<void> {
    const gateway = await startTestGateway({
      mode: 'auth',
      upstream: cluster.kubeconfig('upstream', { token: cluster.tokens.impersonator }),
      stateDirectory: join(folder, 'gateway'),
      identity: identityOf({ login: LOGIN }, recorder.address),
    });
    rig.onStop(() => gateway.close(500));
    const at = { server: `https://127.0.0.1:${gateway.port}`, ca: gateway.caPem ?? '', token: 'unused' };
    kubeconfig = cluster.kubeconfig('through', at);
  }

  beforeAll(async () => {
    rig = createRig();
    folder = join(rig.folder, 'product');
    mkdirSync(folder);
    cluster = await startKubernetes(rig, { version: '1.36', node: { webSockets: true } });
    kubectl = (await findKubectls()).at(-1)!;
    if (where === 'a bucket') bucket = await startBucket();
    await startRecorder();
    rig.onStop(() => recorder.close());
    await startGateway();
    await createPod(cluster, POD, { command: ['sleep', 'infinity'] });
  });
  afterAll(() => rig.stop());

  /** Simulates a user who is editing a file. */
  async function edit(word: string, file: string) {
    const terminal = openTerminal(
      kubectl.path,
      ['exec', '-it', POD, '--', 'vim', '-u', 'NONE', '-N', join(folder, file)],
      { env: environmentFor({ kubeconfig }), columns: 80, rows: 24 },
    );
    rig.onStop(() => terminal.kill());
    await terminal.expect('~');
    terminal.type('i');
    await terminal.expect('INSERT');
    for (const letter of word) {
      terminal.type(letter);
      await terminal.expect(letter);
    }
    return terminal;
  }

  it('finds what is typed inside an editor while the session runs, and where it was when it is over', async () => {
    expect(await search(recorder, WORDS.running)).toEqual([]);
    const terminal = await edit(WORDS.running, 'running.txt');
    // an editor keeps a row on the screen; search must find its words while the row is visible
    terminal.type('\r');
    const running = await theOnly(rig, recorder, WORDS.running, 'state:running');
    expect(running.recording).toMatchObject({
      source: { user: LOGIN },
      kubernetes: { namespace: 'default', pod: POD },
    });
    terminal.type('\x1b:wq\r');
    expect(await terminal.ended).toBe(0);
    const ended = await theOnly(
      rig,
      recorder,
      WORDS.running,
      'state:completed',
      `user:${LOGIN}`,
      `pod:${POD}`,
    );
    expect(ended.recording.id).toBe(running.recording.id);
    const [hit] = ended.hits;
    expect(hit?.text).toContain(WORDS.running);
    const cast = await (await fetch(`${recorder.url}/api/v1/recordings/${ended.recording.id}/cast`)).text();
    const from = await shownFrom(cast, WORDS.running);
    // the time of a hit is the time at which the first letter of the word appeared in the row
    expect(from).toBeGreaterThan(0);
    expect(Math.abs((hit?.at ?? -1) - (from ?? 0))).toBeLessThan(2);
  });

  it('is what kubectl tailcast search asks through a gateway, with the exit codes of grep', async () => {
    const terminal = await edit(WORDS.kept, 'kept.txt');
    terminal.type('\x1b:wq\r');
    expect(await terminal.ended).toBe(0);
    await theOnly(rig, recorder, WORDS.kept, 'state:completed');
    const plugins = installPlugin(join(folder, 'plugins'));
    vi.stubEnv('PATH', `${plugins}${delimiter}${process.env['PATH'] ?? ''}`);
    const found = await runKubectl(kubectl, ['tailcast', 'search', WORDS.kept], { kubeconfig });
    expect(found.stderr.toString()).toBe('');
    expect(found.code).toBe(0);
    expect(found.stdout.toString()).toContain(WORDS.kept);
    expect(found.stdout.toString()).toContain(`default/${POD}`);
    const absent = await runKubectl(kubectl, ['tailcast', 'search', 'absentword'], { kubeconfig });
    expect([absent.code, absent.stdout.toString()]).toEqual([1, '']);
    const wrong = await runKubectl(kubectl, ['tailcast', 'search', 'usr:alice'], { kubeconfig });
    expect(wrong.code).toBe(2);
    expect(wrong.stderr.toString()).toContain('did you mean user:?');
  });

  it('finds all of it again when the files of the index are gone', async () => {
    const was = await theOnly(rig, recorder, WORDS.kept);
    await recorder.close();
    rmSync(indexDirectory(join(folder, bucket === undefined ? 'recordings.spool' : 'spool')), {
      recursive: true,
    });
    await startRecorder();
    expect(await theOnly(rig, recorder, WORDS.kept)).toEqual(was);
    expect((await runCommand('index', 'verify', '--recorder', recorder.url)).code).toBe(0);
  });
});

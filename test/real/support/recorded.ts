/** Compares recordings with the output and input that each kubectl had. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CaseContext, WitnessedRun } from '../cases/case.ts';
import type { Archive, RecordedOutput, StoredRecording } from './archive.ts';

/** For each case: the indexes of the kubectl runs that open a session. Cases without an entry open no session. */
const SESSIONS: Readonly<Record<string, readonly number[]>> = {
  'exec exit codes and streams': [0, 1, 2, 3],
  'exec refused': [2],
  'exec stdin ends': [0, 1],
  'exec 8 MiB both ways': [0],
  attach: [0],
  'run -i --rm': [0],
  debug: [0],
  'exec on a terminal': [0],
  'attach on a terminal': [0],
  'run -it --rm': [0],
};

/** Patterns of text that kubectl itself prints into the streams of a session. */
const KUBECTL_SAYS = [
  /If you don't see a command prompt, try pressing enter\.\r?\n/g,
  /All commands and output from this session will be recorded in container logs, [^\n]*\n/g,
  /command terminated with exit code \d+\r?\n/g,
  /pod "[^"]+" deleted(?: from \S+ namespace)?\r?\n/g,
  /pod [\w-]+\/[\w-]+ terminated \(\w+\)\r?\n/g,
  /Session ended, resume using [^\n]*\n/g,
  /error: (?:Internal error occurred|unable to upgrade connection|command terminated)[^\n]*\n/g,
  /Defaulting debug container name to [^\n]*\n/g,
  /E\d{4} [^\n]*\] Unknown stream id \d+, discarding message\n/g,
  /Targeting container [^\n]*\n/g,
  /--profile=legacy is deprecated [^\n]*\n/g,
];

/**
 * Checks every session of a case that ran through a recording gateway.
 *
 * @returns one sentence per difference
 */
export async function compareRecordings(
  archive: Archive,
  caseName: string,
  context: CaseContext,
  known: ReadonlySet<string>,
): Promise<readonly string[]> {
  const witness = context.witness ?? [];
  const pods = [context.pod, ...['', '-a', '-t', '-d'].map((suffix) => `${context.unique}${suffix}`)];
  if (caseName === 'cp both ways') return compareCopies(archive, context, known);
  const expected = (SESSIONS[caseName] ?? []).map((index) => witness[index]);
  const recordings = await wholeOnes(archive, pods, known, expected.length);
  if (recordings.length !== expected.length) {
    return [`${expected.length} sessions ran, ${recordings.length} were recorded`];
  }
  const problems: string[] = [];
  for (const [index, recording] of recordings.entries()) {
    const run = expected[index];
    if (run === undefined) problems.push(`kubectl run ${index} was not witnessed`);
    else problems.push(...compare(recording, await archive.read(recording.id), run));
  }
  return problems;
}

async function wholeOnes(
  archive: Archive,
  pods: readonly string[],
  known: ReadonlySet<string>,
  count: number,
): Promise<readonly StoredRecording[]> {
  const all = await archive.whole(pods, known.size + count);
  return all.filter(({ id }) => !known.has(id));
}

function compare(recording: StoredRecording, output: RecordedOutput, run: WitnessedRun): string[] {
  const problems: string[] = [];
  const check = (what: string, recorded: unknown, seen: unknown): void => {
    if (recorded !== seen) problems.push(`${what}: recorded ${brief(recorded)}, seen ${brief(seen)}`);
  };
  check('state', recording.state, 'completed');
  check('outcome', output.outcome, 'completed');
  const isExec = run.args[0] === 'exec';
  check('kind', recording.kind, isExec ? 'exec' : 'attach');
  check('user', recording.source.user, 'rig-admin');
  if (isExec) check('command', recording.command, run.args.slice(run.args.indexOf('--') + 1).join(' '));
  if (run.on === 'terminal') {
    check(
      'terminal',
      withoutFirstKeys(output.text, run),
      withoutFirstKeys(withoutKubectl(afterHint(run)), run),
    );
    check('bytes of the terminal', output.stdout.toString(), output.text);
    return problems;
  }
  // exec returns the command's exit code; the status of attach only reports whether attaching succeeded.
  if (isExec && run.code !== 1) check('result', recording.result, String(run.code));
  if (isBinary(run.stdout)) check('stdout', digest(output.stdout), digest(run.stdout));
  else check('stdout', output.stdout.toString(), withoutKubectl(run.stdout.toString()));
  check('stderr', output.stderr.toString(), withoutKubectl(run.stderr.toString()));
  return problems;
}

/** An upload with `kubectl cp` opens two sessions, `test -d` and `tar x`. A download opens one session, `tar c`. */
const COPY_SESSIONS = 3;

/** Checks the recordings of `kubectl cp`. The output of the download is a tar stream, which must contain the files. */
async function compareCopies(
  archive: Archive,
  { pod, folder }: CaseContext,
  known: ReadonlySet<string>,
): Promise<readonly string[]> {
  const recordings = await wholeOnes(archive, [pod], known, COPY_SESSIONS);
  const bad = recordings.filter(
    ({ state, result }) => state !== 'completed' || !['0', '1', undefined].includes(result),
  );
  const download = recordings.findLast(({ command }) => command?.startsWith('tar cf -') === true);
  if (download === undefined) {
    const commands = recordings.map(({ command }) => command).join('; ');
    return [`the download was not recorded, but: ${commands}`];
  }
  const { stdout } = await archive.read(download.id);
  const unpacked = join(folder, 'from-recording');
  mkdirSync(unpacked);
  const tar = spawnSync('tar', ['-x', '-C', unpacked], { input: stdout, encoding: 'utf8' });
  const path = join(unpacked, folder, 'pod', 'source', 'data.bin');
  const equal =
    tar.status === 0 && digest(readFileSync(path)) === digest(readFileSync(join(folder, 'source/data.bin')));
  return [
    ...bad.map(({ command, state, result }) => `${command ?? ''}: ${state}, result ${result ?? ''}`),
    ...(equal ? [] : [`the recorded archive does not hold the file: ${tar.stderr}`]),
  ];
}

/** Returns the output from kubectl's hint on, because `kubectl run` shows the pod's log before it attaches. */
function afterHint({ args, terminal }: WitnessedRun & { readonly on: 'terminal' }): string {
  const text = terminal.output();
  const hint = /(All commands and output|If you don't see a command prompt)/.exec(text);
  return args[0] === 'run' ? text.slice(hint?.index ?? 0) : text;
}

/**
 * Removes leading line breaks unless kubectl ran `exec`. All other commands attach: the test presses a key after
 * kubectl's prompt, and the local terminal may echo this key.
 */
function withoutFirstKeys(text: string, { args }: WitnessedRun): string {
  return args[0] === 'exec' ? text : text.replace(/^[\r\n]+/, '');
}

function withoutKubectl(text: string): string {
  return KUBECTL_SAYS.reduce((rest, pattern) => rest.replaceAll(pattern, ''), text);
}

function isBinary(bytes: Buffer): boolean {
  return bytes.length > 1024 * 1024;
}

function digest(bytes: Buffer): string {
  return `${bytes.length} bytes, ${createHash('sha256').update(bytes).digest('hex')}`;
}

function brief(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 2000 ? `${text.slice(0, 1000)} … ${text.slice(-1000)}` : text;
}

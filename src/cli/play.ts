import { setTimeout as sleep } from 'node:timers/promises';
import { TailcastError, errorText } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { CastBytes } from '../screen/cast-lines.ts';
import { createCastReader, readCastStart, type CastAction, type CastStart } from '../screen/cast-reader.ts';
import { clockText, parseClock } from '../screen/clock-text.ts';
import { CastText } from '../search/cast-text.ts';
import { hiddenText } from '../search/transcript-document.ts';
import { statusNotices } from '../wire/recorder-api/recording-status.ts';
import { openArchive } from './open-archive.ts';
import { plain, print, printRaw } from './output.ts';
import type { CommandContext } from '../config/command-context.ts';
import { openCastFile, type CastFile } from './cast-file.ts';
import type { Archive } from './archive.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import type { ScreenSize } from '../terminal/size.ts';
import { createReplayClock } from './replay-clock.ts';
import { playWithKeys } from './play-keys.ts';
import { createTerminalFilter, RAW_OUTPUT, TERMINAL_RESET, type OutputFilter } from './safe-terminal.ts';
import type { Options } from './tool.ts';

/**
 * `tailcast play`: writes a recording to the terminal with its original timing. An interactive terminal gets keyboard
 * controls.
 *
 * @param id an id or its prefix, `latest`, or the path of a `.cast` file
 * @throws TailcastError `RECORDING_UNKNOWN`, `RECORDING_MALFORMED` or `RECORDER_UNREACHABLE`
 */
export async function playRecording(id: string, options: Options, context: CommandContext): Promise<void> {
  const from = fromOf(options['from']);
  const found = await findStored(id, options, context);
  await printNotices(found?.recording, context);
  if (from > 0 && options['follow'] !== true) await requireWithin(id, found, from);
  const keyed = await openKeyed(id, found, options, context);
  if (keyed !== undefined) await playKeyed(id, keyed, { ...options, from }, context);
  else await playTimed(id, found, from, options, context);
  // Print the notices again, because `playKeyed` has cleared the screen, and because the session may have stopped
  // meanwhile.
  if (found === undefined || (keyed === undefined && options['follow'] !== true)) return;
  if (!context.signal.aborted) await printNotices(await found.archive.find(found.recording.id), context);
}

interface Stored {
  readonly archive: Archive;
  readonly recording: ListedRecording;
}

/** Finds a recording in an archive. Returns undefined if the user specified the path of a file. */
async function findStored(
  id: string,
  options: Options,
  context: CommandContext,
): Promise<Stored | undefined> {
  const file = await openCastFile(id);
  await file?.close();
  if (file !== undefined) return undefined;
  const archive = await openArchive(options, context);
  return { archive, recording: await archive.find(id) };
}

/** Prints missing parts and problems of a recording. Prints nothing for a local file, whose status is unknown. */
async function printNotices(
  recording: ListedRecording | undefined,
  { stderr }: CommandContext,
): Promise<void> {
  if (recording === undefined) return;
  for (const notice of statusNotices(recording)) await print(stderr, `tailcast: ${plain(notice)}\n`);
}

/** Plays without keyboard controls, and writes each event at its time. */
async function playTimed(
  id: string,
  found: Stored | undefined,
  from: number,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const lines = await openLines(id, found, options);
  const text = new CastText({ onRow: () => undefined });
  const onStart = async ({ withoutTerminal, size }: CastStart): Promise<void> => {
    if (!withoutTerminal) await fit(size, options, context);
  };
  const started = performance.now();
  let shown = false;
  try {
    for await (const { due, output } of outputs(readAlso(lines, text), { ...options, from }, onStart)) {
      const waitMs = due * 1000 - (performance.now() - started);
      if (waitMs > 1) await sleep(waitMs, undefined, { signal: context.signal });
      shown = true;
      await printRaw(context.stdout, output);
      if (context.signal.aborted || context.stdout.destroyed) break;
    }
  } catch (error) {
    if (!context.signal.aborted) throw asProblem(error, id);
  } finally {
    if (shown && context.stdout.isTTY === true) await printRaw(context.stdout, `${TERMINAL_RESET}\r\n`);
    await restoreSize(options, context);
  }
  if (text.hidden > 0) await print(context.stderr, `${hiddenText(text.hidden)}\n`);
  if (context.stdout.isTTY === true && !context.signal.aborted)
    await print(context.stdout, 'end of the recording\n');
}

/** @throws TailcastError `USAGE` for a time after the end of the recording */
async function requireWithin(id: string, found: Stored | undefined, from: number): Promise<void> {
  const seconds = await secondsOf(id, found).catch((error: unknown) => {
    throw asProblem(error, id);
  });
  if (seconds !== undefined && from > seconds)
    throw new TailcastError(
      'USAGE',
      `--from: ${clockText(from)} is after the end of the recording at ${clockText(seconds)}`,
    );
}

/** Time of the last event; undefined for a running session. */
async function secondsOf(id: string, found: Stored | undefined): Promise<number | undefined> {
  if (found !== undefined) {
    const { state, durationSeconds = 0 } = found.recording;
    return state === 'running' ? undefined : durationSeconds;
  }
  const file = await fileAt(id);
  await file.close();
  let read: ((line: string) => CastAction | undefined) | undefined;
  let last = 0;
  for await (const line of file.lines()) {
    if (read !== undefined) last = read(line)?.seconds ?? last;
    else if (line.trim() !== '') read = createCastReader(readCastStart(line));
  }
  return last;
}

/** With `--fit`, asks the terminal to change to the recorded size. Otherwise warns if the terminal is too small. */
async function fit(
  { columns, rows }: ScreenSize,
  options: Options,
  { stdout, stderr }: CommandContext,
): Promise<void> {
  const { columns: width = 80, rows: height = 24, isTTY } = stdout;
  if (isTTY !== true || (columns <= width && rows <= height)) return;
  if (options['fit'] === true) await printRaw(stdout, `\x1b[8;${rows};${columns}t`);
  else
    await print(
      stderr,
      `tailcast: the recording has ${columns} columns and ${rows} rows, this terminal ${width} and ${height}: ` +
        'enlarge it, or use --fit\n',
    );
}

async function restoreSize(options: Options, { stdout }: CommandContext): Promise<void> {
  const { columns, rows, isTTY } = stdout;
  if (options['fit'] === true && isTTY === true && columns !== undefined && rows !== undefined)
    await printRaw(stdout, `\x1b[8;${rows};${columns}t`);
}

/** Yields the lines unchanged, and counts invisible characters. */
async function* readAlso(lines: AsyncIterable<string>, text: CastText): AsyncGenerator<string> {
  for await (const line of lines) {
    text.line(line);
    yield line;
  }
  text.end();
}

/** @throws TailcastError `USAGE` for an invalid time */
function fromOf(given: unknown): number {
  if (typeof given !== 'string') return 0;
  const seconds = parseClock(given);
  if (seconds === undefined)
    throw new TailcastError('USAGE', `--from: ${given} is not a time; use 90, 1:30 or 1h2m3s`);
  return seconds;
}

interface Keyed {
  readonly cast: CastBytes;
  readonly seconds: number | undefined;
  readonly keys: NonNullable<CommandContext['stdin']>;
  readonly close: () => Promise<void>;
}

/**
 * Opens the recording for playback with keyboard controls. Returns undefined without an interactive terminal, and with
 * `--follow`.
 */
async function openKeyed(
  id: string,
  found: Stored | undefined,
  options: Options,
  context: CommandContext,
): Promise<Keyed | undefined> {
  const { stdin, stdout } = context;
  if (stdin?.isTTY !== true || stdout.isTTY !== true || options['follow'] === true) return undefined;
  if (found === undefined) {
    const file = await fileAt(id);
    return { cast: file.bytes, seconds: undefined, keys: stdin, close: file.close };
  }
  const { archive, recording } = found;
  return {
    cast: archive.bytes(recording),
    seconds: recording.durationSeconds,
    keys: stdin,
    close: async () => undefined,
  };
}

async function playKeyed(
  id: string,
  { cast, seconds, keys, close }: Keyed,
  options: Options & { readonly from: number },
  context: CommandContext,
): Promise<void> {
  const { stdout, signal } = context;
  try {
    await playWithKeys({
      cast,
      seconds,
      from: options.from,
      speed: typeof options['speed'] === 'number' ? options['speed'] : 1,
      skipsIdle: options['idleLimit'] !== undefined,
      isRaw: options['raw'] === true,
      keys,
      screen: stdout,
      signal,
      onSize: (size) => fit(size, options, context),
    });
  } catch (error) {
    if (!signal.aborted) throw asProblem(error, id);
  } finally {
    await close();
    await restoreSize(options, context);
  }
}

async function openLines(
  id: string,
  found: Stored | undefined,
  options: Options,
): Promise<AsyncIterable<string>> {
  if (found !== undefined)
    return found.archive.lines(found.recording, { follow: options['follow'] === true });
  const file = await fileAt(id);
  await file.close();
  return file.lines();
}

/** @throws TailcastError `RECORDING_UNKNOWN` if the file was removed meanwhile */
async function fileAt(path: string): Promise<CastFile> {
  const file = await openCastFile(path);
  if (file === undefined) throw new TailcastError('RECORDING_UNKNOWN', path);
  return file;
}

/** Yields the output for the terminal. Each piece has its due time, in seconds after the start of playback. */
async function* outputs(
  lines: AsyncIterable<string>,
  options: Options & { readonly from: number },
  onStart: (start: CastStart) => Promise<void>,
): AsyncGenerator<{ due: number; output: string }> {
  const { from } = options;
  let read: ((line: string) => CastAction | undefined) | undefined;
  let filter: OutputFilter = RAW_OUTPUT;
  let clock = (seconds: number): number => seconds;
  let due = 0;
  for await (const line of lines) {
    if (read === undefined) {
      if (line.trim() === '') continue;
      const start = readCastStart(line);
      await onStart(start);
      read = createCastReader(start);
      clock = createReplayClock({
        speed: typeof options['speed'] === 'number' ? options['speed'] : 1,
        idleLimitSeconds:
          typeof options['idleLimit'] === 'number' ? options['idleLimit'] : start.idleLimitSeconds,
      });
      if (options['raw'] !== true) filter = createTerminalFilter(start.withoutTerminal);
      continue;
    }
    const action = read(line);
    if (action?.kind === 'bad') throw new WireError('malformed', 'a line is not an asciicast event');
    if (action?.kind !== 'output') continue;
    // output before `from` is due immediately, so that the screen reaches the state at `from`
    due = action.seconds < from ? 0 : clock(action.seconds - from);
    yield { due, output: filter.push(action.text) };
  }
  if (read === undefined) throw new WireError('malformed', 'the recording is empty');
  yield { due, output: filter.end() };
}

function asProblem(error: unknown, id: string): unknown {
  if (!(error instanceof WireError)) return error;
  return new TailcastError('RECORDING_MALFORMED', `${id}: ${errorText(error)}`, { cause: error });
}

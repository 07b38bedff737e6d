import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { TailcastError, errorText } from '../errors.ts';
import { isCastComment, parseCastEvent } from '../wire/asciicast/event.ts';
import { parseCastHeader, type ParsedCastHeader } from '../wire/asciicast/header.ts';
import { WireError } from '../wire/wire-error.ts';
import type { CastBytes } from '../screen/cast-lines.ts';
import { parseClock } from '../screen/clock-text.ts';
import { openArchive } from './open-archive.ts';
import { print } from './output.ts';
import type { CommandContext } from '../config/command-context.ts';
import { createReplayClock } from './replay-clock.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { playWithKeys } from './play-keys.ts';
import { createTerminalFilter, TERMINAL_RESET } from './safe-terminal.ts';

/**
 * `tailcast play`: writes a recording to the terminal with its own timing; with keys for whoever sits at one.
 *
 * @param id an id or its beginning, `latest`, or the path of a `.cast` file.
 * @throws TailcastError `RECORDING_UNKNOWN`, `RECORDING_MALFORMED` or `RECORDER_UNREACHABLE`.
 */
export async function playRecording(
  id: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const from = fromOf(options['from']);
  const keyed = await openKeyed(id, options, context);
  if (keyed !== undefined) {
    await playKeyed(id, keyed, { ...options, from }, context);
    return;
  }
  const clock = createReplayClock({
    speed: typeof options['speed'] === 'number' ? options['speed'] : 1,
    idleLimitSeconds: typeof options['idleLimit'] === 'number' ? options['idleLimit'] : undefined,
  });
  const lines = await openLines(id, options, context);
  const filter = options['raw'] === true ? (text: string) => text : createTerminalFilter();
  const started = performance.now();
  let shown = false;
  try {
    for await (const { due, data } of outputs(lines, clock, from)) {
      const waitMs = due * 1000 - (performance.now() - started);
      if (waitMs > 1) await sleep(waitMs, undefined, { signal: context.signal });
      shown = true;
      await print(context.stdout, filter(data));
      if (context.signal.aborted || context.stdout.destroyed) break;
    }
  } catch (error) {
    if (!context.signal.aborted) throw asProblem(error, id);
  } finally {
    if (shown && context.stdout.isTTY === true) await print(context.stdout, `${TERMINAL_RESET}\r\n`);
  }
}

/** @throws TailcastError `USAGE` for what is no time. */
function fromOf(given: unknown): number {
  if (typeof given !== 'string') return 0;
  const seconds = parseClock(given);
  if (seconds === undefined)
    throw new TailcastError('USAGE', `--from: ${given} is no time; e.g. 90, 1:30, 1h2m3s`);
  return seconds;
}

interface Keyed {
  readonly cast: CastBytes;
  readonly seconds: number | undefined;
  readonly keys: NonNullable<CommandContext['stdin']>;
  readonly close: () => Promise<void>;
}

/** Undefined when there is no person with a terminal, or the session is to be followed. */
async function openKeyed(
  id: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<Keyed | undefined> {
  const { stdin, stdout } = context;
  if (stdin?.isTTY !== true || stdout.isTTY !== true || options['follow'] === true) return undefined;
  if (await isFile(id)) {
    const file = await open(id);
    const { size } = await file.stat();
    const cast: CastBytes = {
      bytes: size,
      async read(start, end) {
        const block = Buffer.alloc(end - start);
        const { bytesRead } = await file.read(block, 0, block.length, start);
        return block.subarray(0, bytesRead);
      },
    };
    return { cast, seconds: undefined, keys: stdin, close: () => file.close() };
  }
  const archive = await openArchive(options, context);
  const recording = await archive.find(id);
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
  options: Readonly<Record<string, unknown>> & { readonly from: number },
  { stdout, signal }: CommandContext,
): Promise<void> {
  try {
    await playWithKeys({
      cast,
      seconds,
      from: options.from,
      speed: typeof options['speed'] === 'number' ? options['speed'] : 1,
      skipsIdle: options['idleLimit'] !== undefined,
      createFilter: () => (options['raw'] === true ? (text: string) => text : createTerminalFilter()),
      keys,
      screen: stdout,
      signal,
    });
  } catch (error) {
    if (!signal.aborted) throw asProblem(error, id);
  } finally {
    await close();
  }
}

async function openLines(
  id: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<AsyncIterable<string>> {
  if (await isFile(id)) return readTextLines(createReadStream(id), MAX_LINE_BYTES);
  const archive = await openArchive(options, context);
  const recording = await archive.find(id);
  return archive.lines(recording, { follow: options['follow'] === true });
}

/** The output events with the moment each is due. */
async function* outputs(
  lines: AsyncIterable<string>,
  clock: (recordedSeconds: number) => number,
  from: number,
): AsyncGenerator<{ due: number; data: string }> {
  let header: ParsedCastHeader | undefined;
  let seconds = 0;
  for await (const line of lines) {
    if (line.trim() === '') continue;
    if (header === undefined) {
      header = parseCastHeader(line);
      continue;
    }
    if (header.version === 3 && isCastComment(line)) continue;
    const event = parseCastEvent(line);
    seconds = header.version === 3 ? seconds + event.seconds : event.seconds;
    // what came before is shown at once: the screen is what it was then
    const due = seconds < from ? 0 : clock(seconds - from);
    if (event.code === 'o') yield { due, data: event.data };
  }
  if (header === undefined) throw new WireError('malformed', 'the recording is empty');
}

function asProblem(error: unknown, id: string): unknown {
  if (!(error instanceof WireError)) return error;
  return new TailcastError('RECORDING_MALFORMED', `${id}: ${errorText(error)}`, { cause: error });
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true;
}

import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { TailcastError, errorText } from '../errors.ts';
import { isCastComment, parseCastEvent } from '../wire/asciicast/event.ts';
import { parseCastHeader, type ParsedCastHeader } from '../wire/asciicast/header.ts';
import { WireError } from '../wire/wire-error.ts';
import { openArchive } from './open-archive.ts';
import { print } from './output.ts';
import type { CommandContext } from '../config/command-context.ts';
import { createReplayClock } from './replay-clock.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { createTerminalFilter, TERMINAL_RESET } from './safe-terminal.ts';

/**
 * `tailcast play`: writes a recording to the terminal with its own timing.
 *
 * @param id an id or its beginning, `latest`, or the path of a `.cast` file.
 * @throws TailcastError `RECORDING_UNKNOWN`, `RECORDING_MALFORMED` or `RECORDER_UNREACHABLE`.
 */
export async function playRecording(
  id: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const clock = createReplayClock({
    speed: typeof options['speed'] === 'number' ? options['speed'] : 1,
    idleLimitSeconds: typeof options['idleLimit'] === 'number' ? options['idleLimit'] : undefined,
  });
  const lines = await openLines(id, options, context);
  const filter = options['raw'] === true ? (text: string) => text : createTerminalFilter();
  const started = performance.now();
  let shown = false;
  try {
    for await (const { due, data } of outputs(lines, clock)) {
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
    const due = clock(seconds);
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

/** `tailcast export`: writes a recording to a file. */
import { createWriteStream } from 'node:fs';
import { rename, rm, stat } from 'node:fs/promises';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { z } from 'zod';
import { writeBundle } from '../bundle/write-bundle.ts';
import { readOfflinePage } from '../compose/player-directory.ts';
import type { CommandContext } from '../config/command-context.ts';
import { errorReason, isSystemError, TailcastError } from '../errors.ts';
import { clockText, stoppedText } from '../screen/clock-text.ts';
import {
  HIDDEN_PARTIAL_TEXT,
  hiddenText,
  PARTIAL_TEXT,
  STRINGS_TEXT,
} from '../search/transcript-document.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { recordingFileName } from '../wire/recorder-api/recording.ts';
import { exactOutput } from '../tsrecorder/library/exact-output.ts';
import type { ExportSources } from './archive.ts';
import { EXPORT_FORMATS } from './help-texts.ts';
import { openArchive } from './open-archive.ts';
import { plain, print, printOver, printRaw } from './output.ts';
import { createTerminalFilter } from './safe-terminal.ts';
import type { Options } from './tool.ts';

const ROWS = z.array(z.tuple([z.number(), z.string()]));
const TRANSCRIPT = z.object({
  rows: ROWS,
  hidden: z.object({ characters: z.number(), rows: ROWS, isPartial: z.boolean().optional() }),
  isPartial: z.boolean(),
  stoppedAt: z.number().optional(),
});

const MAX_PROBLEMS = 20;

type ExportFormat = (typeof EXPORT_FORMATS)[number];

/**
 * Writes a new file. Fails if the file already exists. After an error, no incomplete file remains.
 *
 * @returns the exit code: 1 if output is missing, otherwise 0
 * @throws TailcastError `USAGE`, `RECORDING_UNKNOWN`, `RECORDER_UNREACHABLE`, `PLAY_INDEX_UNAVAILABLE`
 */
export async function writeExport(id: string, options: Options, context: CommandContext): Promise<number> {
  const format = EXPORT_FORMATS.find((name) => name === options['format']) ?? 'html';
  const archive = await openArchive(options, context);
  const recording = await archive.find(id);
  if (recording.state === 'running')
    throw new TailcastError('USAGE', `${recording.id} is still running: export it when it is over`);
  const target =
    typeof options['output'] === 'string' ? options['output'] : recordingFileName(recording.id, `.${format}`);
  const problems = new Problems();
  const write = (put: Put): Promise<void> =>
    archive.withSources(recording, async (sources) => {
      for await (const piece of contentOf(format, sources, problems, context)) await put(piece);
    });
  if (target === '-') {
    await write(printerOf(format, context));
    return problems.print(context);
  }
  if ((await stat(target).catch(() => undefined)) !== undefined)
    throw new TailcastError('USAGE', `${target} exists already; name another file with --output`);
  await writeFileAtomically(target, write);
  await print(context.stderr, `${target}\n`);
  return problems.print(context);
}

type Put = (piece: string | Uint8Array) => Promise<void>;

/** Files and pipes get the raw bytes; a terminal gets filtered text. */
function printerOf(format: ExportFormat, { stdout }: CommandContext): Put {
  if (stdout.isTTY !== true) return (piece) => printRaw(stdout, piece);
  const decoder = new TextDecoder();
  const filter = format === 'stdout' || format === 'stderr' ? createTerminalFilter(true) : undefined;
  return (piece) => {
    const text = typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true });
    return filter === undefined ? print(stdout, text) : printRaw(stdout, filter.push(text));
  };
}

async function* contentOf(
  format: ExportFormat,
  sources: ExportSources,
  problems: Problems,
  context: CommandContext,
): AsyncGenerator<string | Uint8Array> {
  switch (format) {
    case 'html':
      yield* writeBundle(sources, {
        page: await readPage(),
        madeAt: new Date().toISOString(),
        onProgress: progressAt(context),
      });
      return;
    case 'cast':
      yield* sources.cast();
      return;
    case 'txt':
      yield* transcriptText(await sources.transcript(), problems);
      return;
    case 'stdout':
    case 'stderr':
      yield* exactOutput({ cast: sources.cast(), notes: await sources.notes() }, format, (text) =>
        problems.add(text),
      );
  }
}

/** Collects the reasons why an export is incomplete: the texts of the first reasons, and the number of all reasons. */
class Problems {
  readonly #texts: string[] = [];
  #count = 0;

  add(text: string): void {
    this.#count += 1;
    if (this.#count <= MAX_PROBLEMS) this.#texts.push(text);
  }

  /**
   * Prints the problems.
   *
   * @returns the exit code
   */
  async print({ stderr }: CommandContext): Promise<number> {
    for (const text of this.#texts) await print(stderr, `${plain(text)}\n`);
    if (this.#count > MAX_PROBLEMS) await print(stderr, `and ${this.#count - MAX_PROBLEMS} more\n`);
    return this.#count === 0 ? 0 : 1;
  }
}

/** Yields one line for each row; the line starts with the time of the row. */
function* transcriptText(document: Uint8Array | undefined, problems: Problems): Generator<string> {
  if (document === undefined) throw new TailcastError('PLAY_INDEX_UNAVAILABLE', 'it has no transcript');
  const { data } = TRANSCRIPT.safeParse(jsonOrUndefined(Buffer.from(document).toString()));
  if (data === undefined)
    throw new TailcastError('RECORDING_MALFORMED', 'the transcript has an unknown format');
  const { rows, hidden, stoppedAt, isPartial } = data;
  if (stoppedAt !== undefined) problems.add(stoppedText(stoppedAt));
  else if (isPartial) problems.add(PARTIAL_TEXT);
  if (hidden.isPartial === true) problems.add(HIDDEN_PARTIAL_TEXT);
  for (const [at, row] of rows) yield `${clockText(at, true)}\t${plain(row)}\n`;
  if (hidden.characters === 0 && hidden.rows.length === 0) return;
  yield `\n${hidden.characters === 0 ? STRINGS_TEXT : hiddenText(hidden.characters)}:\n`;
  for (const [at, row] of hidden.rows) yield `${clockText(at, true)}\t${plain(row)}\n`;
}

async function readPage(): Promise<string> {
  return readOfflinePage().catch((error: unknown) => {
    throw new TailcastError('USAGE', `this installation has no player: ${errorReason(error)}`);
  });
}

/** Shows the progress on a terminal. */
function progressAt({ stderr }: CommandContext): (share: number) => void {
  const isTerminal = 'isTTY' in stderr && stderr.isTTY === true;
  let shown = -1;
  return (share) => {
    const percent = Math.floor(share * 100);
    if (!isTerminal || percent === shown) return;
    shown = percent;
    void printOver(stderr, `exporting: ${percent} %`);
    if (percent === 100) void print(stderr, '\n');
  };
}

/** @throws TailcastError `USAGE` if the file cannot be created */
async function writeFileAtomically(target: string, write: (put: Put) => Promise<void>): Promise<void> {
  const draft = `${target}.part`;
  // only the user who exports a recording may read the file
  const file = createWriteStream(draft, { mode: 0o600, flags: 'wx' });
  try {
    await once(file, 'open').catch((error: unknown) => {
      throw new TailcastError(
        'USAGE',
        `--output ${target} cannot be written: ${reasonOfOutput(error, draft)}`,
      );
    });
    await write((piece) => printRaw(file, piece));
    file.end();
    await once(file, 'close');
    await rename(draft, target);
  } catch (error) {
    // an existing temporary file belongs to another export
    if (!file.pending) await rm(draft, { force: true });
    file.destroy();
    throw error;
  }
}

function reasonOfOutput(error: unknown, draft: string): string {
  if (isSystemError(error, 'ENOENT')) return `the folder ${dirname(draft)} does not exist`;
  if (isSystemError(error, 'EEXIST'))
    return `${draft} exists, so another export may be running; remove it if none is`;
  return errorReason(error);
}

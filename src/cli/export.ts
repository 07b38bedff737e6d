/** `tailcast export`: a recording as a file to keep or to hand on. */
import { createWriteStream } from 'node:fs';
import { readFile, rename, rm, stat } from 'node:fs/promises';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { z } from 'zod';
import { writeBundle } from '../bundle/write-bundle.ts';
import { OFFLINE_PAGE } from '../compose/player-directory.ts';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorText } from '../errors.ts';
import { clockText } from '../screen/clock-text.ts';
import { hiddenText } from '../search/transcript-document.ts';
import { exactOutput } from '../tsrecorder/library/exact-output.ts';
import type { ExportSources } from './archive.ts';
import { EXPORT_FORMATS } from './help-texts.ts';
import { openArchive } from './open-archive.ts';
import { plain, print } from './output.ts';

const ROWS = z.array(z.tuple([z.number(), z.string()]));
const TRANSCRIPT = z.object({ rows: ROWS, hidden: z.object({ characters: z.number(), rows: ROWS }) });

const MAX_PROBLEMS = 20;

type ExportFormat = (typeof EXPORT_FORMATS)[number];

/**
 * Writes the file whole or not at all, and never over another one.
 *
 * @returns the exit code: 1 when bytes of the output are missing in it
 * @throws TailcastError `USAGE`, `RECORDING_UNKNOWN`, `RECORDER_UNREACHABLE`, `PLAY_INDEX_UNAVAILABLE`.
 */
export async function writeExport(
  id: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<number> {
  const format = EXPORT_FORMATS.find((name) => name === options['format']) ?? 'html';
  const archive = await openArchive(options, context);
  const recording = await archive.find(id);
  if (recording.state === 'open')
    throw new TailcastError('USAGE', `${recording.id} is still running: export it when it is over`);
  const target = typeof options['output'] === 'string' ? options['output'] : `${recording.id}.${format}`;
  const problems = new Problems();
  const write = (out: Writable): Promise<void> =>
    archive.withSources(recording, async (sources) => {
      for await (const piece of contentOf(format, sources, problems, context)) await print(out, piece);
    });
  if (target === '-') {
    await write(context.stdout);
    return problems.told(context);
  }
  if ((await stat(target).catch(() => undefined)) !== undefined)
    throw new TailcastError('USAGE', `${target} is there already; name another file with --output`);
  await writeWhole(target, write);
  await print(context.stderr, `${target}\n`);
  return problems.told(context);
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
      yield* transcriptText(await sources.transcript());
      return;
    case 'stdout':
    case 'stderr':
      yield* exactOutput({ cast: sources.cast(), notes: await sources.notes() }, format, (text) =>
        problems.add(text),
      );
  }
}

/** Why what was exported is not all that was written: the first of them, and how many there are. */
class Problems {
  readonly #texts: string[] = [];
  #count = 0;

  add(text: string): void {
    this.#count += 1;
    if (this.#count <= MAX_PROBLEMS) this.#texts.push(text);
  }

  /** @returns the exit code */
  async told({ stderr }: CommandContext): Promise<number> {
    for (const text of this.#texts) await print(stderr, `${plain(text)}\n`);
    if (this.#count > MAX_PROBLEMS) await print(stderr, `and ${this.#count - MAX_PROBLEMS} more\n`);
    return this.#count === 0 ? 0 : 1;
  }
}

/** A line for each row, the time before it. */
function* transcriptText(document: Uint8Array | undefined): Generator<string> {
  if (document === undefined)
    throw new TailcastError('PLAY_INDEX_UNAVAILABLE', 'there is no transcript of it');
  const { rows, hidden } = TRANSCRIPT.parse(JSON.parse(Buffer.from(document).toString()));
  for (const [at, row] of rows) yield `${clockText(at, true)}\t${row}\n`;
  if (hidden.characters === 0) return;
  yield `\n${hiddenText(hidden.characters)}:\n`;
  for (const [at, row] of hidden.rows) yield `${clockText(at, true)}\t${row}\n`;
}

async function readPage(): Promise<string> {
  return readFile(OFFLINE_PAGE, 'utf8').catch((error: unknown) => {
    throw new TailcastError('USAGE', `this installation has no player: ${errorText(error)}`);
  });
}

/** For a person who waits. */
function progressAt({ stderr }: CommandContext): (share: number) => void {
  const isTerminal = 'isTTY' in stderr && stderr.isTTY === true;
  let shown = -1;
  return (share) => {
    const percent = Math.floor(share * 100);
    if (!isTerminal || percent === shown) return;
    shown = percent;
    stderr.write(`\rexporting: ${percent} %${percent === 100 ? '\n' : ''}`);
  };
}

async function writeWhole(target: string, write: (out: Writable) => Promise<void>): Promise<void> {
  const draft = `${target}.part`;
  // what is in a recording is for whoever exports it
  const file = createWriteStream(draft, { mode: 0o600, flags: 'wx' });
  try {
    await once(file, 'open');
    await write(file);
    file.end();
    await once(file, 'close');
    await rename(draft, target);
  } catch (error) {
    file.destroy();
    await rm(draft, { force: true });
    throw error;
  }
}

/** `tailcast clip`: writes a range of a recording as an animated SVG, or as GIF or MP4 with external programs. */
import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { copyFile, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { readCastStart, type CastStart } from '../screen/cast-reader.ts';
import { clipCast, ClipError, clipStills, clipSvg, type ClipOptions } from '../screen/clip.ts';
import { parseClock } from '../screen/clock-text.ts';
import { recordingFileName } from '../wire/recorder-api/recording.ts';
import { WireError } from '../wire/wire-error.ts';
import { openCastFile } from './cast-file.ts';
import { CLIP_FORMATS } from './help-texts.ts';
import { openArchive } from './open-archive.ts';
import { print, printRaw } from './output.ts';
import type { Options } from './tool.ts';

const DEFAULT_SECONDS = 10;

/**
 * Writes a new file after the clip is complete. Fails if the file already exists.
 *
 * @param id an id or its prefix, `latest`, or the path of a `.cast` file
 * @throws TailcastError `USAGE`, `RECORDING_UNKNOWN`, `RECORDING_MALFORMED`, `RECORDER_UNREACHABLE`
 */
export async function writeClip(id: string, options: Options, context: CommandContext): Promise<void> {
  const format = CLIP_FORMATS.find((name) => name === options['format']) ?? 'svg';
  const from = timeOf(options['from'], '--from') ?? 0;
  const to = timeOf(options['to'], '--to') ?? from + DEFAULT_SECONDS;
  const { name, lines } = await openLines(id, options, context);
  const output = options['output'];
  const target = typeof output === 'string' ? output : recordingFileName(name, `.${format}`);
  if (target !== '-' && (await stat(target).catch(() => undefined)) !== undefined)
    throw new TailcastError('USAGE', `${target} exists already; name another file with --output`);
  if (target === '-' && format !== 'svg')
    throw new TailcastError('USAGE', `--output -: only the format svg can be written to standard output`);
  const iterator = lines[Symbol.asyncIterator]();
  try {
    const clip = { ...(await splitStart(iterator)), from, to };
    if (format === 'svg') {
      const svg = await clipSvg(clip);
      if (target === '-') return await printRaw(context.stdout, svg);
      await writeFile(target, svg, { flag: 'wx' });
    } else await convert(clip, format, target, context.signal);
  } catch (error) {
    if (error instanceof ClipError) throw new TailcastError('USAGE', error.message, { cause: error });
    if (error instanceof WireError)
      throw new TailcastError('RECORDING_MALFORMED', `${id}: ${error.message}`, { cause: error });
    throw error;
  } finally {
    await iterator.return?.();
  }
  await print(context.stderr, `${target}\n`);
}

async function openLines(
  id: string,
  options: Options,
  context: CommandContext,
): Promise<{ readonly name: string; readonly lines: AsyncIterable<string> }> {
  const file = await openCastFile(id);
  await file?.close();
  if (file !== undefined) return { name: 'clip', lines: file.lines() };
  const archive = await openArchive(options, context);
  const recording = await archive.find(id);
  return { name: recording.id, lines: archive.lines(recording, { follow: false }) };
}

async function splitStart(
  iterator: AsyncIterator<string>,
): Promise<{ readonly start: CastStart; readonly lines: AsyncIterable<string> }> {
  for (let next = await iterator.next(); next.done !== true; next = await iterator.next())
    if (next.value.trim() !== '')
      return { start: readCastStart(next.value), lines: { [Symbol.asyncIterator]: () => iterator } };
  throw new WireError('malformed', 'the recording is empty');
}

/** @throws TailcastError `USAGE` for an invalid time */
function timeOf(given: unknown, option: string): number | undefined {
  if (typeof given !== 'string') return undefined;
  const seconds = parseClock(given);
  if (seconds === undefined)
    throw new TailcastError('USAGE', `${option}: ${given} is not a time; use 90, 1:30 or 1h2m3s`);
  return seconds;
}

/** Renders the clip with `agg` if it is installed, otherwise with `ffmpeg`. */
async function convert(
  clip: ClipOptions,
  format: 'gif' | 'mp4',
  target: string,
  signal: AbortSignal,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'tailcast-clip-'));
  try {
    let made = join(folder, 'clip.gif');
    let source = made;
    if (await isInstalled('agg')) {
      const cast = join(folder, 'clip.cast');
      await writeFile(cast, await clipCast(clip), { mode: 0o600 });
      await run('agg', [cast, made], signal);
    } else source = await writeStills(clip, folder);
    if (source !== made || format !== 'gif') {
      made = join(folder, `made.${format}`);
      await run('ffmpeg', ['-loglevel', 'error', '-i', source, ...FFMPEG_OPTIONS[format], made], signal);
    }
    await copyFile(made, target, constants.COPYFILE_EXCL);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const FFMPEG_OPTIONS = {
  gif: ['-vf', 'fps=12,split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none'],
  // The filter makes the width and the height even, which the codec requires.
  mp4: '-vf fps=12,scale=trunc(iw/2)*2:trunc(ih/2)*2 -pix_fmt yuv420p -movflags faststart'.split(' '),
};

/** Writes the screens of a clip as files. @returns the path of a list of these files for ffmpeg */
async function writeStills(clip: ClipOptions, folder: string): Promise<string> {
  const list = ['ffconcat version 1.0'];
  let name = '';
  for (const { svg, seconds } of await clipStills(clip)) {
    name = `${list.length}.svg`;
    await writeFile(join(folder, name), svg, { mode: 0o600 });
    list.push(`file ${name}\nduration ${seconds.toFixed(3)}`);
  }
  // the last file is listed twice, because ffmpeg ignores the duration of the last entry
  list.push(`file ${name}\n`);
  const path = join(folder, 'clip.ffconcat');
  await writeFile(path, list.join('\n'), { mode: 0o600 });
  return path;
}

function isInstalled(program: string): Promise<boolean> {
  const child = spawn(program, ['--version'], { stdio: 'ignore' });
  return new Promise((resolve) => {
    child.on('error', () => resolve(false));
    child.on('close', () => resolve(true));
  });
}

async function run(program: 'agg' | 'ffmpeg', args: readonly string[], signal: AbortSignal): Promise<void> {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], signal });
  let message = '';
  child.stderr.on('data', (data: Buffer) => {
    message = (message + data.toString()).slice(-1000);
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', (error) =>
      reject(
        'code' in error && error.code === 'ENOENT'
          ? new TailcastError(
              'USAGE',
              '--format: this format needs agg or ffmpeg. Install ffmpeg, or use --format svg',
            )
          : error,
      ),
    );
    child.on('close', resolve);
  });
  if (code !== 0) throw new TailcastError('USAGE', `${program} failed: ${message.trim()}`);
}

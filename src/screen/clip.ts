/**
 * Clips: a range of a recording as an animated SVG, or as an asciicast for other converters. The content is untrusted,
 * so the SVG contains it only as text.
 */
import { readScreen, type Cell, type CellColour, type CellRow } from './cells.ts';
import { createCastReader, type CastStart } from './cast-reader.ts';
import { createScratch, takeSnapshot } from './snapshot.ts';
import { INK, paletteColour, PAPER } from '../terminal/palette.ts';
import { createTerminal, type PlayTerminal } from './terminal.ts';

export interface ClipOptions {
  readonly start: CastStart;
  /** Lines of the cast after the header. */
  readonly lines: AsyncIterable<string>;
  /** Start and end of the range, in seconds of the recording. */
  readonly from: number;
  readonly to: number;
}

/** Maximum length of a clip, in seconds. */
const MAX_CLIP_SECONDS = 600;
/** Minimum time between two frames, in seconds. */
const FRAME_SECONDS = 1 / 12;
const MAX_FRAMES = 1500;
/** Maximum number of characters of all distinct rows. */
const MAX_TEXT = 8 * 1024 ** 2;
/**
 * Maximum number of cells in all frames together, enough for {@link MAX_FRAMES} frames of 200x80. Reading a cell takes
 * about 0.5 µs.
 */
const MAX_CELLS = 24e6;

const TOO_LARGE = 'The clip is too large. Choose a shorter range.';

const CELL_WIDTH = 8.4;
const ROW_HEIGHT = 17;
const PADDING = 12;
const PAPER_FILL = hexColour(PAPER);
const INK_FILL = hexColour(INK);

const TEXT_STYLE = `text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre;fill:${INK_FILL}}`;

/** Error for a range that cannot be converted to a clip. The message tells the user how to change the range. */
export class ClipError extends Error {
  override readonly name = 'ClipError';
}

/** Returns a clip as an animated SVG. @throws ClipError if the range is invalid or has too much content */
export async function clipSvg(options: ClipOptions): Promise<string> {
  return (await framesOf(options, (row) => printRow(row))).print(options.to - options.from);
}

/** One screen of a clip, as an SVG without animation. */
export interface ClipStill {
  readonly svg: string;
  readonly seconds: number;
}

/**
 * Returns the screens of a clip in order. The SVG positions each cell separately, because ffmpeg's SVG renderer ignores
 * `textLength`.
 * @throws ClipError in the same cases as `clipSvg`
 */
export async function clipStills(options: ClipOptions): Promise<Iterable<ClipStill>> {
  const printCells = ({ cells, wrapped }: CellRow): string => {
    let column = 0;
    return cells
      .map((cell) => {
        const part = printRow({ cells: [cell], wrapped }, column);
        column += cell.width;
        return part;
      })
      .join('');
  };
  return (await framesOf(options, printCells)).stills(options.to - options.from);
}

async function framesOf(options: ClipOptions, printed: (row: CellRow) => string): Promise<Frames> {
  const { from, to } = checked(options);
  const step = Math.max(FRAME_SECONDS, (to - from) / MAX_FRAMES);
  const frames = new Frames(printed);
  await walk(options, {
    bucketOf: (seconds) => (seconds <= from ? 0 : Math.ceil((seconds - from) / step)),
    onBucket: async (bucket, terminal) => frames.add(bucket * step, terminal),
  });
  return frames;
}

/**
 * @returns a cast of the range. The first event of the cast draws the screen at the start of the range. @throws
 * ClipError as `clipSvg`
 */
export async function clipCast(options: ClipOptions): Promise<string> {
  const { from } = checked(options);
  const scratch = createScratch();
  const events: string[] = [];
  let size = options.start.size;
  let hasStarted = false;
  await walk(options, {
    bucketOf: (seconds) => (seconds <= from ? 0 : 1),
    async onBucket(bucket, terminal) {
      if (bucket > 0) return;
      checkDrawn(terminal);
      const screen = await takeSnapshot(terminal, scratch);
      if (screen === undefined)
        throw new ClipError('The screen at the start of the range is incomplete. Choose another start.');
      ({ size } = terminal);
      events.push(JSON.stringify([0, 'o', screen]));
      hasStarted = true;
    },
    onAction(action) {
      if (!hasStarted) return;
      const at = Math.max(0, action.seconds - from);
      if (action.kind === 'output') events.push(JSON.stringify([at, 'o', action.text]));
      if (action.kind === 'resize')
        events.push(JSON.stringify([at, 'r', `${action.size.columns}x${action.size.rows}`]));
    },
  });
  scratch.dispose();
  const header = { version: 2, width: size.columns, height: size.rows };
  return `${[JSON.stringify(header), ...events].join('\n')}\n`;
}

function checked({ from, to }: ClipOptions): { readonly from: number; readonly to: number } {
  if (!(from >= 0 && to > from)) throw new ClipError('The end of a clip must be after its start.');
  if (to - from > MAX_CLIP_SECONDS)
    throw new ClipError(`A clip has at most ${MAX_CLIP_SECONDS} seconds. Choose a shorter range.`);
  return { from, to };
}

/** @throws ClipError if the screen is not up to date, because the terminal has stopped */
function checkDrawn({ isStopped }: PlayTerminal): void {
  if (isStopped)
    throw new ClipError('The output before the end of the range cannot be drawn. Choose an earlier range.');
}

interface Walk {
  /** Returns the number of the interval that contains the time `seconds`. Later intervals have larger numbers. */
  readonly bucketOf: (seconds: number) => number;
  /** Called at the end of each interval that contains events, with the screen at that time. */
  readonly onBucket: (bucket: number, terminal: PlayTerminal) => Promise<void>;
  readonly onAction?: (action: Action) => void;
}

type Action = NonNullable<ReturnType<ReturnType<typeof createCastReader>>>;

/** Plays the recording up to the end of the range. */
async function walk(
  { start, lines, to }: ClipOptions,
  { bucketOf, onBucket, onAction }: Walk,
): Promise<void> {
  const terminal = createTerminal({ ...start.size, withoutTerminal: start.withoutTerminal });
  const read = createCastReader(start);
  let bucket = 0;
  let text = '';
  const flush = async (): Promise<void> => {
    if (text !== '') await terminal.write(text);
    text = '';
  };
  try {
    for await (const line of lines) {
      terminal.budget.allow(line.length);
      const action = read(line);
      if (action === undefined || action.kind === 'bad') continue;
      if (action.seconds > to) break;
      const next = bucketOf(action.seconds);
      if (next !== bucket) {
        await flush();
        await onBucket(bucket, terminal);
        bucket = next;
      }
      if (action.kind === 'output') text += action.text;
      if (text.length > MAX_WRITE) await flush();
      if (action.kind === 'resize') {
        await flush();
        terminal.resize(action.size);
      }
      onAction?.(action);
    }
    await flush();
    await onBucket(bucket, terminal);
  } finally {
    terminal.dispose();
  }
}

const MAX_WRITE = 128 * 1024;

interface Frame {
  readonly at: number;
  /** For each row of the screen, its index in {@link Frames.#rows}. */
  readonly rows: readonly number[];
}

/** Frames of a clip. Equal rows are stored once. */
class Frames {
  readonly #frames: Frame[] = [];
  readonly #rows: string[] = [];
  readonly #known = new Map<string, number>();
  readonly #printed: (row: CellRow) => string;
  #text = 0;
  #cells = 0;
  #columns = 1;
  #height = 1;

  constructor(printed: (row: CellRow) => string) {
    this.#printed = printed;
  }

  add(at: number, terminal: PlayTerminal): void {
    checkDrawn(terminal);
    const { emulator } = terminal;
    this.#cells += emulator.cols * emulator.rows;
    if (this.#cells > MAX_CELLS) throw new ClipError(TOO_LARGE);
    this.#columns = Math.max(this.#columns, emulator.cols);
    this.#height = Math.max(this.#height, emulator.rows);
    const rows = readScreen(emulator).map((row) => this.#rowOf(row));
    const last = this.#frames.at(-1);
    if (last !== undefined && last.rows.join() === rows.join()) return;
    this.#frames.push({ at, rows });
  }

  #rowOf(row: CellRow): number {
    const content = this.#printed(row);
    const known = this.#known.get(content);
    if (known !== undefined) return known;
    this.#text += content.length;
    if (this.#text > MAX_TEXT) throw new ClipError(TOO_LARGE);
    this.#rows.push(content);
    this.#known.set(content, this.#rows.length - 1);
    return this.#rows.length - 1;
  }

  /** Returns the start tag. `scale` multiplies the size of the screen. */
  #open(scale: number): { readonly width: number; readonly tag: string } {
    const width = Math.ceil(this.#columns * CELL_WIDTH + 2 * PADDING);
    const height = this.#height * ROW_HEIGHT + 2 * PADDING;
    const size = `viewBox="0 0 ${width} ${height}" width="${width * scale}" height="${height * scale}"`;
    return { width, tag: `<svg xmlns="http://www.w3.org/2000/svg" ${size}>` };
  }

  *stills(seconds: number): Generator<ClipStill> {
    // twice the size, so that text is sharp, and width and height are even numbers, which the video codec requires
    const { tag } = this.#open(2);
    const style = `<style>rect{shape-rendering:crispEdges}${TEXT_STYLE}</style>`;
    for (const [index, { at, rows }] of this.#frames.entries()) {
      const texts = rows.map(
        (row, y) => `<g transform="translate(${PADDING} ${PADDING + y * ROW_HEIGHT})">${this.#rows[row]}</g>`,
      );
      yield {
        svg: `${tag}${style}<rect width="100%" height="100%" fill="${PAPER_FILL}"/>${texts.join('')}</svg>\n`,
        seconds: (this.#frames[index + 1]?.at ?? seconds) - at,
      };
    }
  }

  print(seconds: number): string {
    const { width, tag } = this.#open(1);
    const share = (at: number): string => `${Math.min(100, (at / seconds) * 100).toFixed(3)}%`;
    const steps = this.#frames.map(
      ({ at }, index) => `${index === 0 ? '0%' : share(at)}{transform:translateX(${-index * width}px)}`,
    );
    const last = (this.#frames.length - 1) * width;
    const frames = this.#frames.map(({ rows }, index) => {
      const uses = rows.map((row, y) =>
        this.#rows[row] === ''
          ? ''
          : `<use href="#r${row}" x="${index * width + PADDING}" y="${PADDING + y * ROW_HEIGHT}"/>`,
      );
      return uses.join('');
    });
    return [
      tag,
      '<style>',
      TEXT_STYLE,
      `@keyframes clip{${steps.join('')}100%{transform:translateX(${-last}px)}}`,
      `.clip{animation:clip ${seconds.toFixed(2)}s step-end infinite}`,
      '</style>',
      `<rect width="100%" height="100%" rx="8" fill="${PAPER_FILL}"/>`,
      `<defs>${this.#rows.map((row, id) => (row === '' ? '' : `<g id="r${id}">${row}</g>`)).join('')}</defs>`,
      `<g class="clip">${frames.join('')}</g>`,
      '</svg>\n',
    ].join('\n');
  }
}

/**
 * Returns a row as rectangles and texts: at most one rectangle and one text for consecutive cells of the same style.
 */
function printRow({ cells }: CellRow, firstColumn = 0): string {
  let column = firstColumn;
  let parts = '';
  for (let index = 0; index < cells.length;) {
    const first = cells[index];
    if (first === undefined) break;
    const start = column;
    let text = '';
    for (let cell: Cell | undefined = first; cell?.styleKey === first.styleKey; cell = cells[index]) {
      text += cell.text;
      column += cell.width;
      index += 1;
    }
    parts += printRun(first, text, start, column - start);
  }
  return parts;
}

function printRun({ style }: Cell, text: string, column: number, columns: number): string {
  const ink = colourText(
    style.inverse ? style.background : style.foreground,
    style.inverse ? PAPER_FILL : INK_FILL,
  );
  const paper = colourText(
    style.inverse ? style.foreground : style.background,
    style.inverse ? INK_FILL : '',
  );
  const x = (column * CELL_WIDTH).toFixed(1);
  const rect =
    paper === ''
      ? ''
      : `<rect x="${x}" width="${(columns * CELL_WIDTH).toFixed(1)}" height="${ROW_HEIGHT}" fill="${paper}"/>`;
  const shown = text.trimEnd();
  if (shown === '' || style.hidden) return rect;
  const width = ((columns - (text.length - shown.length)) * CELL_WIDTH).toFixed(1);
  const attributes = [
    `x="${x}" y="13" textLength="${width}"`,
    ink === INK_FILL ? '' : ` fill="${ink}" style="fill:${ink}"`,
    style.bold ? ' font-weight="700"' : '',
    style.italic ? ' font-style="italic"' : '',
    style.dim ? ' opacity="0.65"' : '',
    style.underline ? ' text-decoration="underline"' : '',
  ].join('');
  return `${rect}<text ${attributes}>${escapeXml(shown)}</text>`;
}

function colourText(colour: CellColour, otherwise: string): string {
  if (colour === undefined) return otherwise;
  if (typeof colour === 'string') return /^#[0-9a-f]{6}$/.test(colour) ? colour : otherwise;
  return hexColour(paletteColour(colour));
}

function hexColour(colour: number): string {
  return `#${colour.toString(16).padStart(6, '0')}`;
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

function escapeXml(text: string): string {
  return (
    text
      .toWellFormed()
      // oxlint-disable-next-line no-control-regex -- XML allows no control characters
      .replaceAll(/[\u0000-\u001f\u007f-\u009f\ufffe\uffff]/g, ' ')
      .replaceAll(/[&<>"]/g, (character) => ENTITIES[character] ?? '')
  );
}

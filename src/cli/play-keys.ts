/**
 * Interactive playback: pause, seek, speed, go to a time, find. Recorded output passes the filter before it reaches the
 * user's terminal. During a pause, the last row shows the position, or the input of the user.
 */
import type { Readable, Writable } from 'node:stream';
import { stoppedText, clockText, parseClock } from '../screen/clock-text.ts';
import type { CastBytes } from '../screen/cast-lines.ts';
import { readCastLines } from '../screen/cast-lines.ts';
import { readCastStart } from '../screen/cast-reader.ts';
import { Playback } from '../screen/playback.ts';
import { hiddenText, type TranscriptDocument } from '../search/transcript-document.ts';
import type { JournalCommand } from '../search/shell-marks.ts';
import { Transcript } from '../search/transcript.ts';
import { WireError } from '../wire/wire-error.ts';
import type { ScreenSize } from '../terminal/size.ts';
import { plain, printRaw } from './output.ts';
import { createTerminalFilter, RAW_OUTPUT, TERMINAL_RESET, type OutputFilter } from './safe-terminal.ts';

export interface KeyedPlayOptions {
  readonly cast: CastBytes;
  /** Time of the last event; undefined if unknown. */
  readonly seconds: number | undefined;
  readonly from: number;
  readonly speed: number;
  /** True if long pauses are shortened. */
  readonly skipsIdle: boolean;
  /** True if output is written unfiltered. Otherwise only output that is safe for the viewer's terminal is written. */
  readonly isRaw: boolean;
  readonly keys: Readable & { setRawMode?(raw: boolean): unknown };
  readonly screen: Writable & { readonly rows?: number };
  readonly signal: AbortSignal;
  /** Called once with the size of the recorded terminal, before the first output. */
  readonly onSize: (size: ScreenSize) => Promise<void>;
}

const TICK_MS = 25;
/** Seconds that each key seeks forwards or backwards. */
const STEPS: ReadonlyMap<string, number> = new Map([
  ['\x1b[D', -5],
  ['\x1b[C', 5],
  ['\x1b[1;2D', -60],
  ['\x1b[1;2C', 60],
]);
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32];
/** Maximum number of rows of the command list. */
const MAX_LISTED = 15;
/** A jump to a match seeks to this number of seconds after the match, so that the match is visible. */
const AFTER_SECONDS = 0.05;
/** Maximum size of a recording that is read again only to find invisible characters, in bytes. */
const MAX_NOTICE_BYTES = 8 * 1024 ** 2;
const FIND_LIMITS = { maxText: 64 * 1024 ** 2, maxRows: 1_000_000 };

/** Resolves when the user quits. @throws WireError if the first line is not a valid header */
export async function playWithKeys(options: KeyedPlayOptions): Promise<void> {
  const player = await KeyedPlayer.open(options);
  if (player.size !== undefined) await options.onSize(player.size);
  await player.run();
}

/** Matches one key press. A key may send an escape sequence, such as `\x1b[D`. */
// oxlint-disable-next-line no-control-regex -- keys send controls
const KEY = /\x1b\[[0-9;]*[A-Za-z]|[^]/gu;

interface Typing {
  readonly kind: 'g' | '/' | ':';
  text: string;
}

const PROMPTS: Readonly<Record<Typing['kind'], string>> = {
  g: 'go to ',
  '/': '/',
  ':': 'number of a command: ',
};

class KeyedPlayer {
  readonly #options: KeyedPlayOptions;
  readonly #playback: Playback;
  #filter: OutputFilter;
  /** Text that the user types after `g`, `/` or `:`. */
  #typing: Typing | undefined;
  #wanted = '';
  #transcript: Promise<TranscriptDocument> | undefined;
  /** Commands of the session, in order of time. The list is empty until the transcript is loaded. */
  readonly #entries: JournalCommand[] = [];
  #note = '';
  /**
   * True while the screen is redrawn for another position in the recording. Meanwhile the status row is not written.
   */
  #isDrawing = false;
  readonly #over = Promise.withResolvers<void>();

  static async open(options: KeyedPlayOptions): Promise<KeyedPlayer> {
    const lines = readCastLines(options.cast, 0);
    const first = (await lines.next())?.[0];
    lines.stop();
    if (first === undefined) throw new WireError('malformed', 'the recording is empty');
    return new KeyedPlayer(options, first);
  }

  /** Size of the recorded terminal; undefined for a session without a terminal. */
  readonly size: ScreenSize | undefined;

  private constructor(options: KeyedPlayOptions, header: string) {
    this.#options = options;
    const { cast, seconds, screen, speed, skipsIdle, isRaw } = options;
    const start = readCastStart(header);
    const createFilter = (): OutputFilter =>
      isRaw ? RAW_OUTPUT : createTerminalFilter(start.withoutTerminal);
    this.#filter = createFilter();
    this.size = start.withoutTerminal ? undefined : start.size;
    this.#playback = new Playback({
      cast,
      start,
      headerBytes: Buffer.byteLength(header) + 1,
      seconds,
      terminal: {
        write: (text) => printRaw(screen, this.#filter.push(text)),
        // the size of the user's terminal is not changed
        resize: () => undefined,
        end: () => printRaw(screen, this.#filter.end()),
        reset: async () => {
          this.#filter = createFilter();
          await printRaw(screen, `${TERMINAL_RESET}\x1b[2J\x1b[H`);
        },
      },
      loadFrame: () => Promise.reject(new Error('there are no keyframes')),
      onChange: () => this.#settle(),
    });
    this.#playback.speed = speed;
    this.#playback.skipsIdle = skipsIdle;
  }

  async run(): Promise<void> {
    const { keys, screen, signal, from } = this.#options;
    let last = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      this.#playback.tick((now - last) / 1000);
      last = now;
    }, TICK_MS);
    const onKeys = (data: Buffer | string): void => {
      for (const [key] of data.toString().matchAll(KEY)) this.#key(key);
    };
    const stop = (): void => this.#over.resolve();
    keys.setRawMode?.(true);
    keys.on('data', onKeys);
    keys.once('end', stop);
    signal.addEventListener('abort', stop);
    try {
      if (from > 0) await this.#playback.seek(from);
      this.#playback.play();
      await this.#over.promise;
    } finally {
      clearInterval(timer);
      this.#playback.dispose();
      signal.removeEventListener('abort', stop);
      keys.off('data', onKeys);
      keys.off('end', stop);
      keys.setRawMode?.(false);
      keys.pause();
      await printRaw(screen, `${TERMINAL_RESET}\r\n${await this.#hiddenNotice()}`);
    }
  }

  /**
   * Returns the notice about invisible characters. The notice is empty for a long recording without a loaded
   * transcript, because the check would read the recording a second time.
   */
  async #hiddenNotice(): Promise<string> {
    if (this.#transcript === undefined && this.#options.cast.bytes > MAX_NOTICE_BYTES) return '';
    const { hidden } = await this.#readTranscript();
    return hidden.characters === 0 ? '' : `${hiddenText(hidden.characters)}\r\n`;
  }

  #key(key: string): void {
    if (key === '\x03') this.#over.resolve();
    else if (this.#typing === undefined) this.#command(key);
    else this.#type(this.#typing, key);
  }

  #command(key: string): void {
    const { position, seconds } = this.#playback.state;
    const step = STEPS.get(key);
    if (step !== undefined) void this.#go(position + step);
    else if (/^[0-9]$/.test(key)) void this.#go((seconds * Number(key)) / 10);
    else this.#commands.get(key)?.();
  }

  readonly #commands: ReadonlyMap<string, () => void> = new Map([
    ['q', () => this.#over.resolve()],
    [' ', () => this.#toggle()],
    ['.', () => void this.#playback.step()],
    ['<', () => this.#faster(-1)],
    ['>', () => this.#faster(1)],
    ['g', () => this.#ask('g')],
    ['/', () => this.#ask('/')],
    [':', () => void this.#listCommands()],
    ['[', () => void this.#stepCommand(-1)],
    [']', () => void this.#stepCommand(1)],
    ['n', () => void this.#find(1)],
    ['N', () => void this.#find(-1)],
  ]);

  #toggle(): void {
    if (this.#playback.state.playing) this.#playback.pause();
    else void this.#resume();
  }

  /** Lists the commands. The user selects a command by its number. */
  async #listCommands(): Promise<void> {
    this.#notify('reading the commands…');
    await this.#readTranscript();
    this.#note = this.#entries.length === 0 ? 'no commands found' : '';
    if (this.#entries.length > 0) this.#ask(':');
    else this.#settle();
  }

  async #stepCommand(by: 1 | -1): Promise<void> {
    await this.#readTranscript();
    const { position } = this.#playback.state;
    const next =
      by === 1
        ? this.#entries.find(({ at }) => at > position + AFTER_SECONDS)
        : this.#entries.findLast(({ at }) => at < position - 1);
    if (next !== undefined) await this.#go(next.at);
  }

  /** Returns the rows of the command list around the current command. */
  #commandRows(): readonly string[] {
    const { position } = this.#playback.state;
    const current = this.#entries.findLastIndex(({ at }) => at <= position + AFTER_SECONDS);
    const first = Math.max(0, Math.min(current - 5, this.#entries.length - MAX_LISTED));
    return this.#entries.slice(first, first + MAX_LISTED).map(({ at, text }, index) => {
      const number = first + index;
      const place = `${number === current ? '>' : ' '}${String(number + 1).padStart(4)}`;
      return `${place}  ${clockText(at)}  ${text.slice(0, 100)}`;
    });
  }

  #ask(kind: Typing['kind']): void {
    this.#playback.pause();
    this.#typing = { kind, text: '' };
    this.#settle();
  }

  #type(typing: Typing, key: string): void {
    if (key === '\r' || key === '\n') {
      this.#typing = undefined;
      if (typing.kind === 'g') this.#goTo(typing.text);
      else if (typing.kind === ':') {
        const at = this.#entries[Number(typing.text) - 1]?.at ?? this.#playback.state.position;
        void this.#go(at);
      } else {
        this.#wanted = typing.text.trim().toLowerCase();
        void this.#find(1);
      }
    } else if (key === '\x1b') {
      this.#typing = undefined;
      if (typing.kind === ':') void this.#go(this.#playback.state.position);
    } else if (key === '\x7f' || key === '\b') typing.text = typing.text.slice(0, -1);
    else if (key >= ' ') typing.text += key;
    this.#settle();
  }

  #goTo(text: string): void {
    const seconds = parseClock(text);
    if (seconds === undefined) this.#notify(`${text} is not a time`);
    else void this.#go(seconds);
  }

  #faster(by: 1 | -1): void {
    const at = SPEEDS.findIndex((speed) => speed >= this.#playback.speed);
    this.#playback.speed = SPEEDS[at + by] ?? this.#playback.speed;
    this.#notify('');
  }

  /** Redraws the screen without the status row, and continues playback. */
  async #resume(): Promise<void> {
    const { position, ended } = this.#playback.state;
    if (!ended) await this.#drawAt(position);
    this.#playback.play();
  }

  async #go(seconds: number): Promise<void> {
    const { playing } = this.#playback.state;
    if (playing) await this.#playback.seek(seconds);
    else await this.#drawAt(seconds);
    this.#settle();
  }

  /** Draws the output from the start of the recording up to a time. */
  async #drawAt(seconds: number): Promise<void> {
    this.#isDrawing = true;
    await this.#playback.seek(0);
    await this.#playback.seek(seconds);
    this.#isDrawing = false;
  }

  async #find(direction: 1 | -1): Promise<void> {
    if (this.#wanted === '') return;
    this.#notify('looking…');
    const { rows, stoppedAt } = await this.#readTranscript();
    const { position } = this.#playback.state;
    const matches = ([at, text]: readonly [number, string]): boolean =>
      (direction === 1 ? at > position : at < position - 2 * AFTER_SECONDS) &&
      text.toLowerCase().includes(this.#wanted);
    const found = direction === 1 ? rows.find(matches) : rows.findLast(matches);
    if (found === undefined) {
      const stopped = stoppedAt === undefined ? '' : `. ${stoppedText(stoppedAt)}`;
      this.#notify(`${this.#wanted} is not ${direction === 1 ? 'after' : 'before'} this${stopped}`);
      return;
    }
    this.#playback.pause();
    this.#note = '';
    await this.#go(found[0] + AFTER_SECONDS);
  }

  #readTranscript(): Promise<TranscriptDocument> {
    this.#transcript ??= this.#makeTranscript();
    return this.#transcript;
  }

  async #makeTranscript(): Promise<TranscriptDocument> {
    this.#entries.length = 0;
    const transcript = new Transcript({
      ...FIND_LIMITS,
      onCommand: (command) => {
        if (this.#entries.length < FIND_LIMITS.maxRows) this.#entries.push(command);
      },
    });
    const lines = readCastLines(this.#options.cast, 0);
    for (let batch = await lines.next(); batch !== undefined; batch = await lines.next())
      for (const line of batch) transcript.line(line);
    return transcript.end();
  }

  #notify(note: string): void {
    this.#note = note;
    this.#settle();
  }

  /** Shows the position in the last row while playback is paused. */
  #settle(): void {
    const { position, seconds, playing, waiting, ended, problem } = this.#playback.state;
    if (playing || waiting || this.#isDrawing) return;
    const { screen } = this.#options;
    const typing = this.#typing;
    const state = `${clockText(position, true)} / ${clockText(seconds)} ${this.#playback.speed}x`;
    const text =
      typing === undefined
        ? [
            state,
            problem ?? (this.#note === '' && ended ? 'end of the recording' : this.#note),
            'space play, : commands, / find, g go to, q quit',
          ].join('  ')
        : `${PROMPTS[typing.kind]}${typing.text}`;
    const rows = typing?.kind === ':' ? this.#commandRows() : [];
    const last = screen.rows ?? 24;
    const list = rows.map(
      (row, index) => `\x1b[${Math.max(1, last - rows.length + index)};1H\x1b[0m ${plain(row)}\x1b[K`,
    );
    void printRaw(
      screen,
      `\x1b7\x1b[r${list.join('')}\x1b[${last};1H\x1b[0;7m ${plain(text)} \x1b[0m\x1b[K\x1b8`,
    );
  }
}

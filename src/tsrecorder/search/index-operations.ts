/** Operations of an index process. */
import { isAscii } from 'node:buffer';
import { CastText } from '../../search/cast-text.ts';
import { createWatches, type RuleMatch, type RuleWatch } from '../../search/match.ts';
import { Moments } from '../../search/moments.ts';
import type { Moment, SessionDoc, SessionNames } from '../../search/search-index.ts';
import type { ReadingEngine, WritingEngine } from './engine.ts';
import { WorkBudget, type WorkLimits } from '../../work-budget.ts';
import type { PatternLine } from '../../search/patterns.ts';
import type { Answer, Ask, Effort, IndexOperation, WorkDone } from './messages.ts';

/** Maximum length of a line of a cast, in bytes. Longer lines are skipped. */
const MAX_LINE = 16 * 1024 ** 2;
/** Work limit of a quick reading. Sessions of shells and most full-screen programs need at most half of this limit. */
const QUICK: WorkLimits = { free: 1e6, perCharacter: 24 };

/** Header of a cast without a terminal, so that output is read as plain lines. */
const WITHOUT_TERMINAL = '{"version":2,"width":0,"height":0}';

/** Handlers of all operations. Calls never overlap. */
export type IndexHandlers = {
  readonly [Name in IndexOperation]: (ask: Ask<Name>) => Answer<Name> | Promise<Answer<Name>>;
};

/** Creates the handlers of an index process. */
export function createIndexHandlers(): IndexHandlers {
  let writer: WritingEngine | undefined;
  let reader: ReadingEngine | undefined;
  let close = (): void => undefined;
  const fed = new Map<number, FedRecording>();
  let createWatch = createWatches([], cpuMs);
  const written = (): WritingEngine => writer ?? fail('the index is not open for writing');
  const read = (): ReadingEngine => reader ?? fail('the index is not open');
  const recording = (key: number): FedRecording => fed.get(key) ?? fail('there is no such recording');
  return {
    async open(ask) {
      ({ writer, reader, close } = await openEngine(ask));
      return null;
    },
    watch(watched) {
      createWatch = createWatches(watched, cpuMs);
      return null;
    },
    put: (docs) => put(docs, written(), createWatch),
    async begin({ key, doc, isLive, effort }) {
      if (!isLive && (await written().version(doc.names.id)) === doc.version) return 'same';
      fed.set(key, new FedRecording(doc, createWatch(), effort, isLive));
      return 'begun';
    },
    feed({ key, bytes }) {
      const current = recording(key);
      current.feed(bytes);
      current.matchLate();
      return current.workDone();
    },
    async commit({ key, names: known, bytes }) {
      const live = recording(key);
      const moments = live.takeNew(bytes);
      const names = live.describe(known);
      await written().append(names, moments, live.isFirst, live.isPartial);
      live.isFirst = false;
      return { ...live.workDone(), matches: live.match(names, moments) };
    },
    async finish({ key, bytes }) {
      const whole = recording(key);
      fed.delete(key);
      return finish(whole, written(), bytes);
    },
    async flush() {
      await written().flush();
      return null;
    },
    drop({ key }) {
      fed.delete(key);
      return null;
    },
    async remove({ ids, compact }) {
      for (const id of ids) await written().remove(id);
      if (compact) await written().compact();
      return null;
    },
    tidy: () => written().tidy(),
    ids: ({ after, limit }) => written().ids(after, limit),
    versions: ({ after, limit }) => read().versions(after, limit),
    version: ({ id }) => read().version(id),
    status: () => written().status(),
    async check() {
      await written().check();
      return null;
    },
    close() {
      close();
      return null;
    },
    find: ({ query, may, page }) => read().find(query, may, page),
    within: ({ id, query, may, limit }) => read().within(id, query, may, limit),
    list: (ask) => read().list(ask),
    facets: ({ query, may }) => read().facets(query, may),
  };
}

async function put(
  docs: Ask<'put'>,
  writer: WritingEngine,
  createWatch: () => RuleWatch,
): Promise<Answer<'put'>> {
  const results: (readonly RuleMatch[] | 'same')[] = [];
  for (const doc of docs) {
    if ((await writer.version(doc.names.id)) === doc.version) results.push('same');
    else {
      const session = new FedRecording(doc, createWatch(), 'full', false);
      results.push((await finish(session, writer, undefined)).matches);
    }
  }
  return results;
}

async function finish(
  whole: FedRecording,
  writer: WritingEngine,
  bytes: Uint8Array | undefined,
): Promise<Answer<'finish'>> {
  const moments = whole.end(bytes);
  const done = whole.workDone();
  if (done.isStopped && whole.effort === 'quick') return { ...done, matches: [] };
  const { stoppedAt } = whole;
  const names = whole.describe(whole.doc.names);
  const doc = { ...whole.doc, names, ...(stoppedAt === undefined ? {} : { stoppedAt }) };
  await writer.add({ doc, moments, partial: whole.isPartial });
  return { ...done, matches: whole.match(doc.names, moments) };
}

interface OpenEngine {
  readonly writer: WritingEngine | undefined;
  readonly reader: ReadingEngine | undefined;
  readonly close: () => void;
}

/** Opens the configured engine. Loads only this engine, because some builds of Node.js do not include node:sqlite. */
async function openEngine(ask: Ask<'open'>): Promise<OpenEngine> {
  if ('server' in ask) {
    const { openServerEngine } = await import('./opensearch/engine.ts');
    return { ...(await openServerEngine(ask.server, ask.mayWrite)), close: () => undefined };
  }
  const { openFileEngine } = await import('./sqlite/engine.ts');
  return openFileEngine(ask.directory, ask.mayWrite);
}

/** A recording whose cast arrives in pieces. */
class FedRecording {
  readonly doc: SessionDoc;
  readonly watch: RuleWatch;
  readonly effort: Effort;
  isFirst = true;
  readonly #budget: WorkBudget;
  /**
   * Reader of the output for alert rules, used after the budget of the index is exhausted. This reader has its own
   * budget.
   */
  #lines: CastText | undefined;
  readonly #unrendered = new WorkBudget();
  readonly #cast: CastText;
  readonly #cut: Moments;
  #moments: Moment[] = [];
  /**
   * Late moments: the index gets them late or never. Alert rules are applied to them without waiting for the index.
   */
  #late: Moment[] = [];
  #lateMatches: readonly RuleMatch[] = [];
  readonly #isLive: boolean;
  #rest: Uint8Array[] = [];
  #restBytes = 0;
  #skipped = false;
  #workBefore = 0;

  constructor(doc: SessionDoc, watch: RuleWatch, effort: Effort, isLive: boolean) {
    this.doc = doc;
    this.#isLive = isLive;
    this.effort = effort;
    this.#budget = new WorkBudget(effort === 'quick' ? QUICK : undefined);
    this.watch = watch;
    this.#cut = new Moments({
      text: doc.text,
      onMoment: (moment) => this.#moments.push(moment),
      onLate: (moment) => this.#late.push(moment),
    });
    this.#cast = new CastText({
      onRow: (row) => {
        this.#cut.row(row);
        watch.output(row);
      },
      onCommand: (command) => {
        this.#cut.command(command);
        watch.command(command);
      },
      onWritten: (row) => {
        this.#cut.written(row);
        watch.output(row);
      },
      onOutput: (characters) => this.#cut.printed(characters),
      budget: this.#budget,
    });
  }

  get stoppedAt(): number | undefined {
    return this.#cast.stoppedAt;
  }

  workDone(): WorkDone {
    const spent = this.#budget.spent + this.#unrendered.spent;
    const work = spent - this.#workBefore;
    this.#workBefore = spent;
    const isDone = this.#cast.isExhausted && !this.watch.readsOutput;
    return { work, isStopped: this.#cast.stoppedAt !== undefined, isDone };
  }

  get isPartial(): boolean {
    return this.#cast.isPartial || this.#cut.isPartial || this.#skipped;
  }

  /** Adds the number of hidden characters, which is known only after the text was read. */
  describe(names: SessionNames): SessionNames {
    return this.doc.text === 'off' ? names : { ...names, hidden: this.#cast.hidden };
  }

  feed(bytes: Uint8Array): void {
    let start = 0;
    if (bytes.length <= MAX_LINE && isAscii(bytes)) start = this.#asciiLines(bytes);
    for (let end = bytes.indexOf(0x0a, start); end >= 0; end = bytes.indexOf(0x0a, start)) {
      this.#line(bytes.subarray(start, end));
      start = end + 1;
    }
    this.#keep(bytes.subarray(start));
  }

  /**
   * Decodes all complete lines at once if they are ASCII. Nearly all casts are ASCII. @returns offset of the remaining
   * bytes
   */
  #asciiLines(bytes: Uint8Array): number {
    let start = 0;
    if (this.#restBytes > 0) {
      start = bytes.indexOf(0x0a) + 1;
      if (start === 0) return 0;
      this.#line(bytes.subarray(0, start - 1));
    }
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1', start);
    let from = 0;
    for (let to = text.indexOf('\n'); to >= 0; to = text.indexOf('\n', from)) {
      this.#readLine(text.slice(from, to));
      from = to + 1;
    }
    return start + from;
  }

  /** Applies the alert rules to `moments`, which are new in the index, and to all late moments. */
  match(names: SessionNames, moments: readonly Moment[]): readonly RuleMatch[] {
    const late = this.#late;
    this.#late = [];
    const matches = [...this.#lateMatches, ...this.watch.match(names, [...late, ...moments], !this.#isLive)];
    this.#lateMatches = [];
    return matches;
  }

  /**
   * Applies the alert rules to the late moments now, and frees the memory of these moments. The next `match` returns
   * the result.
   */
  matchLate(): void {
    if (this.#late.length > 0) this.#lateMatches = this.match(this.doc.names, []);
  }

  /**
   * Reads the bytes, if any, and returns the moments (rows that were on the screen together) that were completed since
   * the last call.
   */
  takeNew(bytes?: Uint8Array): readonly Moment[] {
    if (bytes !== undefined) this.feed(bytes);
    this.#cast.flush();
    this.#lines?.flush();
    // Apply the alert rules to unfinished control strings of the terminal too. Otherwise, a program could hide text
    // from the rules in a control string without an end.
    const { pendingString } = this.#lines ?? this.#cast;
    if (pendingString.text !== '') this.watch.output(pendingString);
    this.#cut.flush();
    const moments = this.#moments;
    this.#moments = [];
    return moments;
  }

  end(bytes?: Uint8Array): readonly Moment[] {
    if (bytes !== undefined) this.feed(bytes);
    if (this.#restBytes > 0) this.#line(new Uint8Array(0));
    this.#cast.end();
    this.#lines?.end();
    this.#cut.end();
    return this.#moments;
  }

  #keep(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#restBytes += bytes.length;
    if (this.#restBytes <= MAX_LINE) this.#rest.push(bytes);
    else this.#rest = [];
  }

  #line(bytes: Uint8Array): void {
    const isTooLong = this.#restBytes + bytes.length > MAX_LINE;
    const whole =
      this.#rest.length === 0
        ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
        : Buffer.concat([...this.#rest, bytes]);
    this.#rest = [];
    this.#restBytes = 0;
    if (isTooLong) this.#skipped = true;
    else this.#readLine(whole.toString());
  }

  #readLine(line: string): void {
    if (!this.#cast.isExhausted) this.#cast.line(line);
    if (this.#cast.isExhausted && this.watch.readsOutput) this.#readUnrendered(line);
  }

  /** Reads output as plain lines for the patterns of alert rules, after the budget of the index is exhausted. */
  #readUnrendered(line: string): void {
    if (this.#lines === undefined) {
      const onLine = (row: PatternLine): void => this.watch.output(row);
      this.#lines = new CastText({ onRow: onLine, onWritten: onLine, budget: this.#unrendered });
      this.#lines.line(WITHOUT_TERMINAL);
    }
    this.#lines.line(line);
  }
}

function fail(sentence: string): never {
  throw new Error(sentence);
}

/** CPU time of this thread, in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

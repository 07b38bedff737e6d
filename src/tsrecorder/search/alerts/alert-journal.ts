/**
 * Durable state of alerts: the name of this recorder, the rules with their start times, and all alerts with their
 * outcomes. The journal is one file with one line per fact. The journal is rewritten if most lines are obsolete, or if
 * text must be removed.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { createSequence } from '../../../async/sequence.ts';
import { jsonOrUndefined } from '../../../wire/json-value.ts';
import { AppendFile } from '../../files/append-file.ts';
import { replaceFile } from '../../../directories.ts';
import { keepDamaged, makeDirectory } from '../../files/durable-files.ts';
import { ALERT, type Alert } from './alert.ts';
import { ifPresent } from '../../../errors.ts';

const LINE = z.union([
  /** Name of this recorder. */
  z.object({ recorder: z.string().regex(/^[0-9a-f]{16}$/) }),
  z.object({ rule: z.string(), sinceMs: z.number() }),
  z.object({ alert: ALERT }),
  /** A settled alert. `session` is the id of the session that the alert is about. */
  z.object({ settled: z.string(), session: z.string() }),
]);
type Line = z.infer<typeof LINE>;

/** Maximum number of settled alerts that are remembered to prevent duplicates. The oldest are dropped. */
const MAX_SETTLED = 100_000;
/** Minimum number of obsolete lines before a rewrite. The obsolete lines must also outnumber the other lines. */
const MIN_OVER = 4096;

export interface AlertJournalOptions {
  readonly directory: string;
  /** Ids of all rules. A rule that the journal does not contain yet starts at `nowMs`. */
  readonly rules: readonly string[];
  /** Current time in milliseconds since the epoch. */
  readonly nowMs: number;
}

/** The journal of the alerts of one recorder. */
export class AlertJournal {
  readonly #directory: string;
  readonly #inTurn = createSequence();
  readonly #since = new Map<string, number>();
  readonly #pending = new Map<string, Alert>();
  /** Session of each settled alert, oldest alert first. */
  readonly #settled = new Map<string, string>();
  #recorder = randomBytes(8).toString('hex');
  #file: AppendFile | undefined;
  #lines = 0;
  #damaged = 0;
  #isClosed = false;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Opens the journal, and adds the rules that it does not contain yet. @throws a system error */
  static async open({ directory, rules, nowMs }: AlertJournalOptions): Promise<AlertJournal> {
    const journal = new AlertJournal(directory);
    await makeDirectory(directory);
    await journal.#read();
    const known = new Map(journal.#since);
    journal.#since.clear();
    for (const rule of rules) journal.#since.set(rule, known.get(rule) ?? nowMs);
    await journal.#inTurn(() => journal.#writeAnew());
    return journal;
  }

  /** Number of unreadable lines in the opened file. */
  get damaged(): number {
    return this.#damaged;
  }

  /** Name of this recorder among the recorders of one store. The name never changes while the journal exists. */
  get recorder(): string {
    return this.#recorder;
  }

  /** Pending alerts, oldest first. */
  get pending(): readonly Alert[] {
    return [...this.#pending.values()];
  }

  sinceMs(rule: string): number {
    return this.#since.get(rule) ?? Infinity;
  }

  /** Adds alerts. Resolves when the new alerts are durable. @returns the new alerts */
  add(alerts: readonly Alert[]): Promise<readonly Alert[]> {
    return this.#inTurn(async () => {
      const fresh = alerts.filter(({ id }) => !this.#pending.has(id) && !this.#settled.has(id));
      if (fresh.length === 0) return fresh;
      await this.#append(fresh.map((alert) => ({ alert })));
      for (const alert of fresh) this.#pending.set(alert.id, alert);
      return fresh;
    });
  }

  /** Settles an alert after its delivery or expiry. @returns true if the alert was pending */
  settle({ id, session }: Alert): Promise<boolean> {
    return this.#inTurn(async () => {
      if (!this.#pending.has(id)) return false;
      await this.#append([{ settled: id, session }]);
      this.#markSettled(id, session);
      const needed = this.#since.size + this.#settled.size + this.#pending.size;
      if (this.#lines > MIN_OVER + 2 * needed) await this.#writeAnew();
      return true;
    });
  }

  /** Removes all text and settled alerts of removed sessions. */
  forget(sessions: ReadonlySet<string>): Promise<void> {
    return this.#inTurn(async () => {
      let changed = false;
      for (const [id, session] of this.#settled) {
        if (sessions.has(session)) changed = this.#settled.delete(id);
      }
      for (const [id, alert] of this.#pending) {
        if (!sessions.has(alert.session)) continue;
        const { hit: _hit, ...without } = alert;
        this.#pending.set(id, without);
        changed = true;
      }
      if (changed) await this.#writeAnew();
    });
  }

  async close(): Promise<void> {
    await this.#inTurn(() => {
      this.#isClosed = true;
      return this.#file?.close();
    });
  }

  get #path(): string {
    return join(this.#directory, 'alerts.journal');
  }

  async #read(): Promise<void> {
    const text = (await ifPresent(readFile(this.#path, 'utf8'))) ?? '';
    // Drop an incomplete last line. A crash interrupted its write, so it was never reported as durable.
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    // A file without a complete first line is damaged, because the file is created together with its first line.
    if (whole === '' && text !== '') this.#damaged += 1;
    for (const line of whole.split('\n')) {
      if (line === '') continue;
      const parsed = LINE.safeParse(jsonOrUndefined(line));
      if (parsed.success) this.#apply(parsed.data);
      else this.#damaged += 1;
    }
    if (this.#damaged > 0) await keepDamaged(this.#path);
  }

  #apply(line: Line): void {
    if ('recorder' in line) this.#recorder = line.recorder;
    else if ('rule' in line) this.#since.set(line.rule, line.sinceMs);
    else if ('alert' in line) this.#pending.set(line.alert.id, line.alert);
    else this.#markSettled(line.settled, line.session);
  }

  #markSettled(id: string, session: string): void {
    this.#pending.delete(id);
    this.#settled.set(id, session);
    const [oldest] = this.#settled.keys();
    if (this.#settled.size > MAX_SETTLED && oldest !== undefined) this.#settled.delete(oldest);
  }

  #needed(): readonly Line[] {
    return [
      { recorder: this.#recorder },
      ...Array.from(this.#since, ([rule, sinceMs]) => ({ rule, sinceMs })),
      ...Array.from(this.#settled, ([settled, session]) => ({ settled, session })),
      ...Array.from(this.#pending.values(), (alert) => ({ alert })),
    ];
  }

  async #append(lines: readonly Line[]): Promise<void> {
    if (this.#isClosed) throw new Error('the journal of alerts is closed');
    // No file is open if the previous rewrite could not open the new file.
    if (this.#file === undefined) await this.#writeAnew();
    await this.#file?.append([encodeLines(lines)]);
    this.#lines += lines.length;
  }

  /** Rewrites the file. After a crash, either the old file or the new file exists. */
  async #writeAnew(): Promise<void> {
    const lines = this.#needed();
    const content = encodeLines(lines);
    await replaceFile(this.#path, content);
    // Forget the old file. The old file has no name any more, so later lines must not be written to it.
    const old = this.#file;
    this.#file = undefined;
    await old?.close();
    this.#file = await AppendFile.open(this.#path, content.length);
    this.#lines = lines.length;
  }
}

function encodeLines(lines: readonly Line[]): Uint8Array {
  return Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

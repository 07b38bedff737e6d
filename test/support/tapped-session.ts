import type { TappedSession } from '../../src/recording/tap.ts';
import type { ExitStatus } from '../../src/wire/remotecommand/exit-status.ts';

/**
 * A session that records the calls of a tap, one entry for each call. Consecutive output of the same stream is joined.
 */
export class SeenSession implements TappedSession {
  readonly seen: string[] = [];
  inputBytes = 0;
  flushes = 0;
  room: Promise<void> | undefined;
  readonly #parts: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] };
  /** False for large output: then only the bytes are stored. */
  detailed = true;

  get outputs(): Record<'stdout' | 'stderr', Buffer> {
    return { stdout: Buffer.concat(this.#parts.stdout), stderr: Buffer.concat(this.#parts.stderr) };
  }

  output(stream: 'stdout' | 'stderr', bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#parts[stream].push(Buffer.from(bytes));
    if (!this.detailed) return;
    const hex = Buffer.from(bytes).toString('hex');
    const last = this.seen.at(-1);
    if (last?.startsWith(`${stream} `) === true) this.seen[this.seen.length - 1] = last + hex;
    else this.seen.push(`${stream} ${hex}`);
  }

  input(count: number): void {
    this.inputBytes += count;
  }

  resize({ columns, rows }: { readonly columns: number; readonly rows: number }): void {
    this.seen.push(`resize ${columns}x${rows}`);
  }

  exit(status: ExitStatus): void {
    this.seen.push(`exit ${status.kind === 'exit' ? status.code : status.kind}`);
  }

  flush(): void | Promise<void> {
    this.flushes += 1;
    return this.room;
  }
}

export const hex = (text: string): Buffer => Buffer.from(text.replaceAll(/\s/g, ''), 'hex');

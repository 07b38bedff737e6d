import type { Readable } from 'node:stream';

/** Collects the data of a stream, and lets tests wait for data. */
export class ByteReader {
  readonly stream: Readable;
  ended = false;
  closed = false;
  #parts: Buffer[] = [];
  #size = 0;
  readonly #waiters = new Set<() => void>();

  constructor(stream: Readable, head: Uint8Array = new Uint8Array(0)) {
    this.stream = stream;
    this.#take(Buffer.from(head));
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.once('end', () => {
      this.ended = true;
      this.#wake();
    });
    stream.once('close', () => {
      this.closed = true;
      this.#wake();
    });
    stream.on('error', () => {});
  }

  get bytes(): Buffer {
    const all = Buffer.concat(this.#parts);
    this.#parts = [all];
    return all;
  }

  get size(): number {
    return this.#size;
  }

  /** Removes the first `count` bytes, and waits for them if needed. */
  async take(count: number): Promise<Buffer> {
    await this.until(() => this.#size >= count);
    const all = this.bytes;
    this.#parts = [all.subarray(count)];
    this.#size -= count;
    return all.subarray(0, count);
  }

  /** Removes all bytes up to and including `mark`. */
  async takeThrough(mark: string): Promise<string> {
    await this.until(() => this.bytes.includes(mark));
    return (await this.take(this.bytes.indexOf(mark) + mark.length)).toString('latin1');
  }

  /** Resolves when `test` returns true; rejects if the stream closes first. */
  async until(test: () => boolean): Promise<void> {
    while (!test()) {
      if (this.closed) throw new Error(`the stream closed after ${this.#size} bytes`);
      await this.#change();
    }
  }

  async untilClosed(): Promise<void> {
    while (!this.closed) await this.#change();
  }

  #change(): Promise<void> {
    const changed = Promise.withResolvers<void>();
    this.#waiters.add(changed.resolve);
    return changed.promise;
  }

  #take(chunk: Buffer): void {
    this.#parts.push(chunk);
    this.#size += chunk.length;
    this.#wake();
  }

  #wake(): void {
    for (const waiter of this.#waiters) waiter();
    this.#waiters.clear();
  }
}

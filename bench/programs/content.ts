/** Payload of benchmarks: deterministic blocks, so that each process can compare every byte. */
export type Content = 'json' | 'ascii' | 'utf8' | 'binary';

/** Size of one response of `GET /small`. */
export const SMALL_BYTES = 2048;
/** Size of one block. Longer content repeats the block. */
export const BLOCK_BYTES = 1024 * 1024;
/** Number of blocks in a LIST response of 50 MiB. */
export const LIST_BLOCKS = 50;
/** Size of one POST body. */
export const POST_BYTES = 1024 * 1024;
/** Size of one event of a watch. */
export const EVENT_BYTES = 500;

/** Returns the block for a kind of content. Each call returns the same bytes. */
export function createBlock(content: Content): Buffer {
  const random = createRandom(content.length);
  if (content === 'binary')
    return Buffer.from(Uint8Array.from({ length: BLOCK_BYTES }, () => random() >>> 24));
  const line = LINES[content];
  let text = '';
  for (let index = 0; Buffer.byteLength(text) < BLOCK_BYTES; index += 1000) {
    text += Array.from({ length: 1000 }, (_, offset) => line(index + offset, random)).join('');
  }
  const bytes = Buffer.from(text);
  // the rest of the block is filled with dots, so that the block does not end inside a character
  let end = BLOCK_BYTES;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return Buffer.concat([bytes.subarray(0, end), Buffer.alloc(BLOCK_BYTES - end, '.')]);
}

const hex = (value: number): string => value.toString(16).padStart(8, '0');

const LINES = {
  json: (index: number, random: () => number) =>
    `{"metadata":{"name":"web-${hex(random())}","namespace":"default","uid":"${hex(random())}-${hex(random())}",` +
    `"resourceVersion":"${index}"},"status":{"phase":"Running","podIP":"10.${index & 255}.7.9"}},`,
  // output of a build: colours, times, paths
  ascii: (index: number, random: () => number) =>
    `\u001b[32m${(index / 100).toFixed(2)}\u001b[0m compiling module/${hex(random())}/file.ts "ok" in ` +
    `${random() & 1023} ms\n`,
  utf8: (index: number, random: () => number) =>
    `\u001b[32m✓\u001b[0m ${(index / 100).toFixed(2)} s │ prüfe Modul ${hex(random())} … fertig ─ ` +
    `${random() & 1023} ms\n`,
} as const satisfies Record<Exclude<Content, 'binary'>, (index: number, random: () => number) => string>;

/** Returns the response body of `GET /small`. */
export function createSmall(): Buffer {
  return createBlock('json').subarray(0, SMALL_BYTES);
}

/** Returns a random generator (Marsaglia's xorshift) that yields the same numbers in every process. */
function createRandom(seed: number): () => number {
  let state = 0x9e37_79b9 ^ seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/** Compares a stream with its expected content, byte by byte. */
export class ContentCheck {
  readonly #block: Buffer;
  readonly #total: number;
  #received = 0;

  /** @param total expected number of bytes: `block` repeated */
  constructor(block: Buffer, total: number) {
    this.#block = block;
    this.#total = total;
  }

  get received(): number {
    return this.#received;
  }

  get complete(): boolean {
    return this.#received === this.#total;
  }

  /** @throws Error for a wrong or an additional byte */
  push(bytes: Uint8Array, start = 0, end = bytes.length): void {
    if (this.#received + end - start > this.#total) throw new Error(`more than ${this.#total} bytes`);
    for (let at = start; at < end;) {
      const from = this.#received % this.#block.length;
      const length = Math.min(end - at, this.#block.length - from);
      if (this.#block.compare(bytes, at, at + length, from, from + length) !== 0)
        throw new Error(`a wrong byte between ${this.#received} and ${this.#received + length}`);
      this.#received += length;
      at += length;
    }
  }
}

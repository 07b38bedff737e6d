/**
 * Output of one stream that a recording leaves out because it was told to: counted and hashed, so that whoever has the bytes can show that
 * they are the ones. A mark for what was left out is made before anything that came later is written down:
 *
 * ```
 *   {"kind":"gap","bytes":262144,"reason":"left out, as the gateway was told: sha256 0f9c…"}
 *   {"kind":"raw","base64":""}                 the program did not write the next line
 *   [3.5,"o","[left out: 262144 B]\r\n"]
 * ```
 */
import { createHash } from 'node:crypto';
import { encodeCastEvent } from '../wire/asciicast/event.ts';
import { encodeAnnotation } from '../wire/recorder-api/annotation.ts';

export class LeftOut {
  /** Of all output of the stream, whether it is kept or not. */
  readonly #all = createHash('sha256');
  #allBytes = 0;
  #part = createHash('sha256');
  #partBytes = 0;
  #bytes = 0;

  /** Bytes that were left out so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Output is there, in its order. @param isKept false: it is left out */
  see(output: Uint8Array, isKept: boolean): void {
    this.#all.update(output);
    this.#allBytes += output.length;
    if (isKept) return;
    this.#part.update(output);
    this.#partBytes += output.length;
    this.#bytes += output.length;
  }

  /** Whole lines for what was left out since the last mark; undefined where nothing was. */
  mark(seconds: number): string | undefined {
    if (this.#partBytes === 0) return undefined;
    const bytes = this.#partBytes;
    const reason = `left out, as the gateway was told: sha256 ${this.#part.digest('hex')}`;
    this.#part = createHash('sha256');
    this.#partBytes = 0;
    return encodeAnnotation({ kind: 'gap', bytes, reason }) + said(seconds, `left out: ${bytes} B`);
  }

  /** Whole lines for the end, with the hash of all output of the stream; undefined where all of it is kept. */
  sum(seconds: number, stream: string): string | undefined {
    if (this.#bytes === 0) return undefined;
    return said(seconds, `${stream}: ${this.#allBytes} B, sha256 ${this.#all.digest('hex')}`);
  }
}

/** A line that people see and the program did not write. */
function said(seconds: number, text: string): string {
  return encodeAnnotation({ kind: 'raw', base64: '' }) + encodeCastEvent(seconds, 'o', `[${text}]\r\n`);
}

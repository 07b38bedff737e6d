/**
 * A connection to the API server as a stream, for what switches protocols. What it emits are pieces of `read-buffers`: whoever has
 * copied one gives it back, and what is never given back is left to the garbage collector. As a stream of Node's own it made a buffer for each TLS
 * record: ten times as many collections, and 1.1x of the CPU, of a flood that nobody records.
 */
import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { take } from '../../memory/read-buffers.ts';

type Done = (error?: Error | null) => void;

export class UpstreamStream extends Duplex {
  #socket: TLSSocket | undefined;
  /** The API server has said all. */
  #ended = false;

  constructor() {
    super({ allowHalfOpen: false });
  }

  /** Takes over the connection, as soon as there is one: it is opened with `allowHalfOpen`, and its `onRead` calls `received`. */
  attach(socket: TLSSocket): this {
    this.#socket = socket;
    // over a tunnel Node reads as it always does
    socket.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) socket.pause();
    });
    socket.on('end', () => {
      this.#ended = true;
      this.push(null);
    });
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => {
      // what came before its end is read first; then this stream ends by itself
      if (!this.#ended) this.destroy();
    });
    return this;
  }

  /** So many bytes for this connection are in the shared read buffer. @returns whether more is to be read */
  received(length: number): boolean {
    return this.push(take(length));
  }

  override _read(): void {
    this.#socket?.resume();
  }

  override _write(chunk: Uint8Array, _encoding: BufferEncoding, done: Done): void {
    this.#socket?.write(chunk, done);
  }

  override _writev(chunks: readonly { readonly chunk: Uint8Array }[], done: Done): void {
    const socket = this.#socket;
    socket?.cork();
    for (const [index, { chunk }] of chunks.entries())
      socket?.write(chunk, index === chunks.length - 1 ? done : undefined);
    socket?.uncork();
  }

  override _final(done: Done): void {
    // whether that succeeds does not matter any more
    this.#socket?.end(() => done());
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#socket?.destroy();
    done(error);
  }
}

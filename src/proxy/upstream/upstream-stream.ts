/**
 * A connection to the API server as a stream, for upgrades. Emits pieces of `read-buffers`: the receiver releases
 * a copied piece; the garbage collector frees the others. Node's own stream allocates a buffer per TLS record,
 * which causes ten times as many collections and 1.1x the CPU for an unrecorded flood.
 */
import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { take } from '../../memory/read-buffers.ts';

type Done = (error?: Error | null) => void;

export class UpstreamStream extends Duplex {
  #socket: TLSSocket | undefined;
  /** True after the API server has ended its side. */
  #ended = false;

  constructor() {
    super({ allowHalfOpen: false });
  }

  /** Takes over the connection, which is opened with `allowHalfOpen`; its `onRead` calls `received`. */
  attach(socket: TLSSocket): this {
    this.#socket = socket;
    // over a tunnel Node ignores `onread`
    socket.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) socket.pause();
    });
    socket.on('end', () => {
      this.#ended = true;
      this.push(null);
    });
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => {
      // pending bytes are read first; then this stream ends automatically
      if (!this.#ended) this.destroy();
    });
    return this;
  }

  /** The first `length` bytes of the shared read buffer are for this connection. @returns true to continue reading */
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
    // failures no longer matter
    this.#socket?.end(() => done());
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#socket?.destroy();
    done(error);
  }
}

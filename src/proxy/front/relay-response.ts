/**
 * Node's `ServerResponse`, used only for its place in the response queue: it knows its turn on the connection and
 * the next request, while head and body are written to the socket as the API server sent them. `writeHead` would
 * take a fifth of the throughput of small requests.
 *
 * This file sets two undocumented fields of `OutgoingMessage`. With a header marked as sent, `end()` adds no bytes,
 * and Node handles the rest (keep-alive timer, next pipelined request, `finish`). The tests of `plain.ts` fail if a
 * Node version changes this.
 */
import { OutgoingMessage, ServerResponse, type IncomingMessage } from 'node:http';

/**
 * Maximum unsent bytes for which `end()` does not wait: waiting needs a separate system call per response. For
 * slow clients `end()` waits, so that pipelined responses do not accumulate.
 */
const MAX_UNSENT_BYTES = 64 * 1024;

export class RelayResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ServerResponse<Request> {
  declare _header: string | null;
  declare _headerSent: boolean;
  /** True if the caller writes head and body. */
  relayed = false;

  /**
   * The caller writes to `socket` from now on, which must not be null. `headersSent` is true; `end()` ends the
   * turn.
   */
  takeOver(): void {
    this._header = 'relayed';
    this._headerSent = true;
    this.relayed = true;
  }
}

// a property in Node's types, an accessor in Node
Object.defineProperty(RelayResponse.prototype, 'writableLength', {
  get(this: RelayResponse): number {
    const bytes = Number(Reflect.get(OutgoingMessage.prototype, 'writableLength', this));
    return this.relayed && bytes <= MAX_UNSENT_BYTES ? 0 : bytes;
  },
});

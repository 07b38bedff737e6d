/**
 * Node's `ServerResponse`, used only to keep responses in order on a connection. The caller writes head and
 * body to the socket as the API server sent them. Writing the head with Node's `writeHead` would reduce the
 * throughput of small requests by a fifth.
 *
 * This file sets two undocumented fields of `OutgoingMessage`. With a header marked as sent, `end()` adds no bytes,
 * and Node handles the rest (keep-alive timer, next pipelined request, `finish`). The tests of `plain.ts` fail if a
 * Node version changes this.
 */
import { OutgoingMessage, ServerResponse, type IncomingMessage } from 'node:http';

/**
 * Maximum number of unsent bytes for which `end()` does not wait, because waiting needs a separate system call per
 * response. With more unsent bytes `end()` waits, so that pipelined responses for a slow client do not accumulate.
 */
const MAX_UNSENT_BYTES = 64 * 1024;

export class RelayResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ServerResponse<Request> {
  declare _header: string | null;
  declare _headerSent: boolean;
  /** True after {@link takeOver} was called. Then the caller writes head and body. */
  relayed = false;

  /**
   * Lets the caller write the response to `socket`, which must not be null. After this call, `headersSent` is true, and
   * `end()` lets the next response start.
   */
  takeOver(): void {
    this._header = 'relayed';
    this._headerSent = true;
    this.relayed = true;
  }
}

// `writableLength` is a property in Node's types but an accessor in Node, so a class member cannot override
// it
Object.defineProperty(RelayResponse.prototype, 'writableLength', {
  get(this: RelayResponse): number {
    const bytes = Number(Reflect.get(OutgoingMessage.prototype, 'writableLength', this));
    return this.relayed && bytes <= MAX_UNSENT_BYTES ? 0 : bytes;
  },
});

/**
 * The `ServerResponse` of Node.js, used only to keep responses in order on a connection. The caller writes head and
 * body to the socket as the API server sent them. Writing the head with `writeHead` would reduce the throughput of
 * small requests by a fifth.
 *
 * This file sets two undocumented fields of `OutgoingMessage`. These fields mark the header as sent. `end()` then adds
 * no bytes, and Node.js does everything else (keep-alive timer, next pipelined request, `finish`). The tests of
 * `plain.ts` fail if a version of Node.js changes the effect of these fields.
 */
import { OutgoingMessage, ServerResponse, type IncomingMessage } from 'node:http';

/**
 * With at most this number of unsent bytes, `end()` finishes the response immediately, because waiting for the bytes
 * needs a separate system call per response. With more unsent bytes, `end()` waits, so that pipelined responses for a
 * slow client do not accumulate.
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

// `writableLength` is a property in the types of Node.js but an accessor at run time, so a class member cannot override
// it
Object.defineProperty(RelayResponse.prototype, 'writableLength', {
  get(this: RelayResponse): number {
    const bytes = Number(Reflect.get(OutgoingMessage.prototype, 'writableLength', this));
    return this.relayed && bytes <= MAX_UNSENT_BYTES ? 0 : bytes;
  },
});

/**
 * Node's `ServerResponse`, of which only the place in the queue is used: it knows when it is this response's turn on the
 * connection and what comes next, while head and body are written to the socket as the API server sent them. Building
 * the head through `writeHead` costs a fifth of the throughput of small requests.
 *
 * Two fields of `OutgoingMessage` that Node does not document are set here and nowhere else: with a header in place and
 * marked as sent, `end()` adds no bytes, and everything after it (keep-alive timer, next pipelined request, `finish`) is
 * Node's own. The tests of `plain.ts` fail if a Node version changes that.
 */
import { OutgoingMessage, ServerResponse, type IncomingMessage } from 'node:http';

/**
 * While the socket has anything to send, `end()` writes nothing behind it to hear when it is gone: a system call of its own for each answer.
 * Up to here that is not waited for; of a client that takes its answers slowly it is, so that pipelined ones do not pile up.
 */
const MAX_UNSENT_BYTES = 64 * 1024;

export class RelayResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ServerResponse<Request> {
  declare _header: string | null;
  declare _headerSent: boolean;
  /** Head and body are written by the caller. */
  relayed = false;

  /** From now on the caller writes to `socket`, which must not be null. `headersSent` is true; `end()` ends the turn. */
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

/**
 * Node's `ServerResponse`, of which only the place in the queue is used: it knows when it is this response's turn on the
 * connection and what comes next, while head and body are written to the socket as the API server sent them. Building
 * the head through `writeHead` costs a fifth of the throughput of small requests.
 *
 * Two fields of `OutgoingMessage` that Node does not document are set here and nowhere else: with a header in place and
 * marked as sent, `end()` adds no bytes, and everything after it (keep-alive timer, next pipelined request, `finish`) is
 * Node's own. The tests of `plain.ts` fail if a Node version changes that.
 */
import { ServerResponse, type IncomingMessage } from 'node:http';

export class RelayResponse<
  Request extends IncomingMessage = IncomingMessage,
> extends ServerResponse<Request> {
  declare _header: string | null;
  declare _headerSent: boolean;

  /** From now on the caller writes to `socket`, which must not be null. `headersSent` is true; `end()` ends the turn. */
  takeOver(): void {
    this._header = 'relayed';
    this._headerSent = true;
  }
}

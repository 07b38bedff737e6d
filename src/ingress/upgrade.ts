/** Upgraded requests: after the Service switches protocols, bytes are relayed in both directions. */
import { STATUS_CODES, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fieldsForClient, isFinalStatus, type FieldList } from './fields.ts';

export interface Switch {
  readonly client: Duplex;
  /** Bytes that the client sent directly after its request. */
  readonly head: Buffer;
  /** Upgrade request for the Service. The request has not been sent yet. */
  readonly request: ClientRequest;
  readonly unreachable: (error: unknown) => void;
  readonly onEnd: (outcome: 'served' | 'broken') => void;
}

/**
 * Sends the upgrade request, and then relays bytes between client and Service. If the Service refuses the upgrade, the
 * client gets the response of the Service.
 */
export function switchProtocols({ client, head, request, unreachable, onEnd }: Switch): void {
  let answered = false;
  client.once('close', () => request.destroy());
  request.on('error', (error) => {
    if (answered) client.destroy();
    else if (!client.destroyed) unreachable(error);
  });
  request.once('upgrade', (answer, service, first) => {
    if (answer.headers.upgrade?.toLowerCase() !== 'websocket') {
      service.destroy();
      return unreachable(new Error('it switched to another protocol'));
    }
    answered = true;
    client.write(headOf(answer, ['connection', 'Upgrade', 'upgrade', 'websocket']), 'latin1');
    if (first.length > 0) client.write(first);
    if (head.length > 0) service.write(head);
    relay(client, service, onEnd);
  });
  request.once('response', (answer) => {
    if (!isFinalStatus(answer.statusCode)) {
      request.destroy();
      return unreachable(new Error(`status ${answer.statusCode}`));
    }
    answered = true;
    const isFramed = answer.headers['content-length'] !== undefined;
    client.write(
      headOf(answer, ['connection', 'close', ...(isFramed ? [] : ['transfer-encoding', 'chunked'])]),
      'latin1',
    );
    pipeline(isFramed ? answer : inChunks(answer), client).then(
      () => onEnd('served'),
      () => {
        client.destroy();
        onEnd('broken');
      },
    );
  });
  request.end();
}

/** Relays bytes in both directions. If one side ends its direction, the other side may still send. */
function relay(client: Duplex, service: Duplex, onEnd: Switch['onEnd']): void {
  client.pipe(service);
  service.pipe(client);
  service.on('error', () => client.destroy());
  client.on('error', () => service.destroy());
  service.once('close', () => {
    if (!service.readableEnded) client.destroy();
  });
  client.once('close', () => {
    onEnd(client.readableEnded && service.readableEnded ? 'served' : 'broken');
    service.destroy();
  });
}

/** Returns the body in chunked encoding. The last chunk is missing if the body is incomplete. */
async function* inChunks(body: IncomingMessage): AsyncGenerator<Buffer> {
  const pieces: AsyncIterable<Buffer> = body;
  for await (const piece of pieces)
    yield Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]);
  yield Buffer.from('0\r\n\r\n');
}

function headOf({ statusCode = 502, rawHeaders }: IncomingMessage, more: FieldList): string {
  const fields = [...fieldsForClient(statusCode, rawHeaders), ...more];
  const lines = [`HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode] ?? ''}`];
  for (let index = 0; index < fields.length; index += 2) lines.push(`${fields[index]}: ${fields[index + 1]}`);
  return `${lines.join('\r\n')}\r\n\r\n`;
}

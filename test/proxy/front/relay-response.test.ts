import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { RelayResponse } from '../../../src/proxy/front/relay-response.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/**
 * Creates a connection with one request that records its writes. Each write completes one event-loop turn later, as on
 * a TLS socket.
 */
function connection(written: string[]): Duplex {
  return new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, callback) {
      written.push(chunk.toString('latin1'));
      setImmediate(callback);
    },
  });
}

/** Responds to a request with `answer`. Returns the writes until the next request. */
async function writesFor(answer: string): Promise<readonly string[]> {
  const server = createServer({ ServerResponse: RelayResponse });
  servers.push(server);
  const written: string[] = [];
  const client = connection(written);
  server.emit('connection', client);
  const asked = once(server, 'request') as Promise<[IncomingMessage, RelayResponse]>;
  client.push('GET /one HTTP/1.1\r\nHost: a\r\n\r\n');
  const [, response] = await asked;
  response.takeOver();
  client.write(answer, 'latin1');
  const finished = once(response, 'finish');
  response.end();
  await finished;
  const again = once(server, 'request') as Promise<[IncomingMessage]>;
  client.push('GET /two HTTP/1.1\r\nHost: a\r\n\r\n');
  const [next] = await again;
  expect(next.url).toBe('/two');
  return written;
}

describe('a response that is written to the socket', () => {
  it('ends in the same write if it is small', async () => {
    const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
    expect(await writesFor(answer)).toEqual([answer]);
  });

  it('ends after a wait for the socket if it is large', async () => {
    const answer = `HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(100_000)}`;
    expect(await writesFor(answer)).toEqual([answer, '']);
  });
});

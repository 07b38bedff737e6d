/**
 * The OpenSearch client with servers that are slow, disconnect, send too much data, or return errors that must not be
 * retried.
 */
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { mkdtemp, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  createSearchServer,
  ServerError,
  type SearchServer,
} from '../../../../src/tsrecorder/search/opensearch/client.ts';
import { readServerAccess } from '../../../../src/tsrecorder/search/opensearch/server-index.ts';
import { createTestAuthority } from '../../../support/issued-certificates.ts';
import { listenOn } from '../../../support/listen.ts';

async function listen(server: Server): Promise<number> {
  await listenOn(server);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

async function asking(answer: RequestListener, maxAnswer?: number): Promise<SearchServer> {
  const port = await listen(createServer(answer));
  const client = createSearchServer({ url: `http://127.0.0.1:${port}` }, maxAnswer);
  onTestFinished(() => client.close());
  return client;
}

const ROOT = { method: 'GET', path: '/' } as const;

describe('the client of OpenSearch', () => {
  it('sends JSON and lines, below the path of the URL, and returns JSON', async () => {
    const seen: unknown[] = [];
    const port = await listen(
      createServer((request, response) => {
        const { 'content-type': type, authorization } = request.headers;
        void text(request).then((body) => {
          seen.push([request.method, request.url, type, authorization, body]);
          response.end('{"a":1}');
        });
      }),
    );
    const client = createSearchServer({
      url: `http://127.0.0.1:${port}/under/`,
      authorization: 'Bearer secret',
    });
    onTestFinished(() => client.close());
    expect(await client.ask(ROOT)).toEqual({ a: 1 });
    await client.ask({ method: 'POST', path: '/x%23/_search?q', body: { é: 1 } });
    await client.ask({ method: 'POST', path: '/_bulk', body: '{}\n{}\n' });
    expect(seen).toEqual([
      ['GET', '/under/', undefined, 'Bearer secret', ''],
      ['POST', '/under/x%23/_search?q', 'application/json', 'Bearer secret', '{"é":1}'],
      ['POST', '/under/_bulk', 'application/x-ndjson', 'Bearer secret', '{}\n{}\n'],
    ]);
  });

  it('reports that a response was incomplete, invalid or too long', async () => {
    const half = await asking((_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{"a":');
      setImmediate(() => response.destroy());
    });
    await expect(half.ask(ROOT)).rejects.toThrow(/aborted|ECONNRESET|hang up/);
    const chunked = await asking((_request, response) => {
      response.write('{"hits":[');
      setImmediate(() => response.destroy());
    });
    await expect(chunked.ask(ROOT)).rejects.toThrow(/aborted|ECONNRESET|hang up/);
    const page = await asking((_request, response) => response.end('<html>'));
    await expect(page.ask(ROOT)).rejects.toThrow('what is no JSON');
    let sent = 0;
    const closed = Promise.withResolvers<void>();
    const endless = await asking((_request, response) => {
      response.once('close', closed.resolve);
      const more = (): void => {
        while (!response.destroyed && response.write('x'.repeat(65_536))) sent += 65_536;
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    }, 1_000_000);
    await expect(endless.ask(ROOT)).rejects.toThrow('more than 1000000 bytes');
    await closed.promise;
    expect(sent).toBeLessThan(64 * 1024 ** 2);
  });

  it('waits a limited time for a server that sends nothing, or single bytes', async () => {
    const closed = Promise.withResolvers<void>();
    const silent = await asking((request) => void request.socket.once('close', closed.resolve));
    await expect(silent.ask({ ...ROOT, timeoutMs: 30 })).rejects.toThrow('took longer than 30 ms');
    await closed.promise;
    const dripping = await asking((_request, response) => {
      const timer = setInterval(() => response.write(' '), 5);
      response.once('close', () => clearInterval(timer));
    });
    await expect(dripping.ask({ ...ROOT, timeoutMs: 50 })).rejects.toThrow('took longer than 50 ms');
  });

  it('repeats a request if a keep-alive connection was closed, and not if a new one was', async () => {
    let asked = 0;
    const client = await asking((request, response) => {
      asked += 1;
      if (asked === 2) request.socket.resetAndDestroy();
      else response.end('{}');
    });
    await client.ask(ROOT);
    expect(await client.ask(ROOT)).toEqual({});
    expect(asked).toBe(3);
    const broken = await asking((request) => void request.socket.resetAndDestroy());
    await expect(broken.ask(ROOT)).rejects.toThrow(/ECONNRESET|hang up/);
  });

  it('does not follow redirects', async () => {
    let asked: IncomingMessage | undefined;
    const port = await listen(
      createServer((request, response) => {
        asked = request;
        response.end('{}');
      }),
    );
    const client = await asking((_request, response) => {
      response.writeHead(302, { location: `http://127.0.0.1:${port}/` }).end();
    });
    await expect(client.ask(ROOT)).rejects.toMatchObject({ status: 302 });
    expect(asked).toBe(undefined);
  });

  it('reports of an error response only its status and the types of its errors', async () => {
    const error = {
      type: 'mapper_parsing_exception',
      reason: 'Preview: canaryword',
      root_cause: [{ type: 'a canaryword of a type', reason: 'canaryword' }],
      caused_by: { type: 'illegal_argument_exception', caused_by: { type: 'too_many_clauses', reason: 'x' } },
    };
    const client = await asking((_request, response) => {
      response.writeHead(400).end(JSON.stringify({ error, status: 400 }));
    });
    const refused = await client.ask(ROOT).catch((reason: unknown) => reason);
    expect(refused).toBeInstanceOf(ServerError);
    expect(refused).toMatchObject({
      status: 400,
      isBusy: false,
      kinds: ['mapper_parsing_exception', 'illegal_argument_exception', 'too_many_clauses'],
      message: expect.not.stringContaining('canaryword'),
    });
    for (const [status, isBusy] of [
      [429, true],
      [503, true],
      [401, false],
      [500, false],
    ] as const) {
      const busy = await asking((_request, response) => response.writeHead(status).end('no'));
      await expect(busy.ask(ROOT)).rejects.toMatchObject({ status, isBusy, kinds: [] });
    }
  });

  it('trusts the named CA, and no other', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tailcast-ca-'));
    const authority = await createTestAuthority();
    const { keyPem: key, certificatePem: cert } = await authority.issue(['localhost']);
    const caFile = join(folder, 'ca.pem');
    await writeFile(caFile, authority.caPem);
    const tls = createTlsServer({ key, cert }, (_request, response) => response.end('{"tls":true}'));
    const url = `https://localhost:${await listen(tls)}`;
    const trusting = createSearchServer(await readServerAccess({ url, caFile }));
    onTestFinished(() => trusting.close());
    expect(await trusting.ask(ROOT)).toEqual({ tls: true });
    const other = createSearchServer({ url });
    await expect(other.ask(ROOT)).rejects.toThrow(/self.signed|unable to (verify|get)/i);
    other.close();
  });

  it('reads credentials from a file, and reveals nothing of an invalid file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tailcast-credentials-'));
    const credentialsFile = join(folder, 'credentials');
    const read = async (content: string): Promise<string | undefined> => {
      await writeFile(credentialsFile, content);
      return (await readServerAccess({ url: 'https://x', credentialsFile })).authorization;
    };
    const basic = (pair: string): string => `Basic ${Buffer.from(pair).toString('base64')}`;
    expect(await read('alice:p:ß "\n')).toBe(basic('alice:p:ß "'));
    expect(await read('ey.J0-_=\r\n')).toBe('Bearer ey.J0-_=');
    for (const content of [
      '',
      '\n',
      ':secret',
      'alice:',
      'two secret words',
      'a:secret\nb:c',
      'secret\u0000x',
    ]) {
      const said = await read(content).catch((error: unknown) => String(error));
      expect(said, content).toContain('has no credentials in it');
      expect(said, content).not.toContain('secret');
    }
    await expect(readServerAccess({ url: 'https://x', caFile: credentialsFile })).rejects.toThrow(
      'contains no certificate',
    );
    await expect(readServerAccess({ url: 'https://x', caFile: join(folder, 'none') })).rejects.toThrow(
      'cannot be read',
    );
  });
});

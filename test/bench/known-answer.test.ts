import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import {
  createServer as createHttp2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { tmpdir } from 'node:os';
import { describe, expect, it, onTestFinished } from 'vitest';
import { loadHttp1 } from '../../bench/programs/load-http1.ts';
import { loadHttp2 } from '../../bench/programs/load-http2.ts';
import type { LoadResult } from '../../bench/programs/plan.ts';

/** Runs the load generator against a server that sends `answer`. The load generator expects `known`. */
async function load(known: string, answer: (request: IncomingMessage) => string): Promise<LoadResult> {
  const server = createServer((request, response) => {
    // sends the response in two pieces, and splits it inside the expected text
    const text = answer(request);
    response.write(text.slice(0, 5));
    response.end(text.slice(5));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const body = join(mkdtempSync(join(tmpdir(), 'tc-known-')), 'body');
  writeFileSync(body, known);
  return loadHttp1(
    { port: (server.address() as AddressInfo).port, token: 'secret' },
    {
      kind: 'requests',
      protocol: 'h1',
      answer: { path: '/api/v1/configmaps', body },
      connections: 1,
      durationMs: 20,
    },
    () => {},
  );
}

describe('an answer that is known', () => {
  it('is asked for with the token, and compared whole', async () => {
    let credential: string | undefined;
    const answer = (text: string) => (request: IncomingMessage) => {
      credential = request.headers.authorization;
      return text;
    };
    const { units, p50Ms } = await load('{"kind":"Pod"}\n', answer('{"kind":"Pod"}\n'));
    expect(credential).toBe('Bearer secret');
    expect(units).toBeGreaterThan(0);
    expect(p50Ms).toBeGreaterThan(0);
    await expect(load('{"kind":"Pod"}\n', answer('{"kind":"Pid"}\n'))).rejects.toThrow(/wrong byte/);
  });
});

describe('an answer that is known, over HTTP/2', () => {
  const known = '{"kind":"Pod"}\n';

  async function loadStreams(
    answer: string,
  ): Promise<{ readonly result: LoadResult; readonly asked: Set<string> }> {
    const asked = new Set<string>();
    const sessions: ServerHttp2Session[] = [];
    const server = createHttp2Server();
    server.on('session', (session) => sessions.push(session));
    server.on('stream', (stream: ServerHttp2Stream, headers) => {
      asked.add(`${headers[':path']} ${headers.authorization?.length}`);
      stream.respond({ ':status': 200 });
      stream.end(answer);
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    onTestFinished(() => {
      for (const session of sessions) session.destroy();
      server.close();
    });
    const body = join(mkdtempSync(join(tmpdir(), 'tc-known-')), 'body');
    writeFileSync(body, known);
    const result = await loadHttp2(
      // this token is as long as that of a service account, so HPACK needs more than one byte for its length
      { port: (server.address() as AddressInfo).port, token: 'x'.repeat(900) },
      {
        kind: 'requests',
        protocol: 'h2',
        answer: { path: '/api/v1/pods/shell', body },
        connections: 2,
        streams: 4,
        durationMs: 20,
      },
      () => {},
    );
    return { result, asked };
  }

  it('is asked for with the token, and compared whole', async () => {
    const { result, asked } = await loadStreams(known);
    expect(result.units).toBeGreaterThan(0);
    expect([...asked]).toEqual([`/api/v1/pods/shell ${'Bearer '.length + 900}`]);
    await expect(loadStreams('{"kind":"Pid"}\n')).rejects.toThrow(/wrong byte/);
  });
});

import { once } from 'node:events';
import { createServer as createPlain } from 'node:http';
import { createServer as createHttp2 } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createUpstreams, type ServiceQuestion } from '../../src/ingress/upstreams.ts';

it.each([
  ['HTTP/1.1', false],
  ['HTTP/2', true],
])(
  'a Service that says nothing for so long is given up, by %s, before its answer and in it',
  async (_what, http2) => {
    const server = http2
      ? createHttp2((request, response) => {
          if (request.url === '/begun') response.write('begun');
        })
      : createPlain((request, response) => {
          if (request.url === '/begun') response.write('begun');
        });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const upstreams = createUpstreams({ idleMs: 200 });
    const { signal } = new AbortController();
    const { port } = server.address() as AddressInfo;
    const question = (path: string): ServiceQuestion => ({
      upstream: `http://127.0.0.1:${port}`,
      method: 'GET',
      path,
      fields: ['host', 'shop.example.org'],
      body: undefined,
      http2,
    });
    try {
      await expect(upstreams.ask(question('/silent'), signal)).rejects.toThrow('silent for 200 ms');
      const { status, body } = await upstreams.ask(question('/begun'), signal);
      expect(status).toBe(200);
      await expect(body.setEncoding('utf8').toArray()).rejects.toThrow(/silent for 200 ms|aborted/);
    } finally {
      upstreams.close();
      server.close();
    }
  },
);

/** A webhook on loopback that checks the HMAC of requests. */
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'vitest';
import { parseQuery } from '../../../../src/search/query.ts';
import type { AlertSettings } from '../../../../src/tsrecorder/search/alerts/alerts.ts';
import type { AlertWebhook } from '../../../../src/tsrecorder/search/alerts/webhook-sender.ts';

export const KEY = Buffer.alloc(32, 7);

export interface Received {
  readonly id: string;
  readonly type: string;
  readonly raw: string;
  /** Signed time: seconds since the epoch. */
  readonly sentAt: number;
  readonly data: {
    readonly id: string;
    readonly rule: string;
    readonly recording: Readonly<Record<string, unknown>>;
    readonly at?: number;
    readonly hit?: { readonly text: string };
    readonly link?: string;
  };
}

export interface Receiver extends AsyncDisposable {
  readonly url: string;
  /** Received requests with a valid signature, independent of the response. */
  readonly received: readonly Received[];
  /** Status of the next responses. */
  answer: number;
  retryAfter: string | undefined;
}

export async function openReceiver(
  tls?: { readonly cert: string; readonly key: string },
  port = 0,
): Promise<Receiver> {
  const received: Received[] = [];
  const receiver = { received, answer: 204, retryAfter: undefined as string | undefined };
  const listener: RequestListener = (request, response) => {
    void read(request).then((message) => {
      received.push(message);
      if (receiver.retryAfter !== undefined) response.setHeader('retry-after', receiver.retryAfter);
      response.writeHead(receiver.answer).end('thank you');
    });
  };
  const server: Server =
    tls === undefined ? createServer(listener) : createTlsServer({ cert: tls.cert, key: tls.key }, listener);
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  return Object.assign(receiver, {
    url: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${address.port}/hook`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  });
}

async function read(request: IncomingMessage): Promise<Received> {
  const raw = await text(request);
  const { headers } = request;
  const signed = [headers['webhook-id'], headers['webhook-timestamp'], raw].map(String).join('.');
  expect(headers['webhook-signature']).toBe(
    `v1,${createHmac('sha256', KEY).update(signed).digest('base64')}`,
  );
  const { type, data } = JSON.parse(raw) as Pick<Received, 'type' | 'data'>;
  return { id: String(headers['webhook-id']), type, data, raw, sentAt: Number(headers['webhook-timestamp']) };
}

/** Returns alert settings with one rule and one webhook. */
export function alertsFor(
  url: string,
  query = 'needle',
  more: Partial<AlertWebhook> = {},
): AlertSettings & { readonly retry: { readonly baseMs: number; readonly maxMs: number } } {
  return {
    rules: [{ name: 'found', query: parseQuery(query, 0), webhook: 'hook' }],
    webhooks: new Map([
      ['hook', { target: { url, keys: [KEY] }, scope: 'everything', format: 'json', text: false, ...more }],
    ]),
    giveUpMs: 3_600_000,
    retry: { baseMs: 5, maxMs: 50 },
  };
}

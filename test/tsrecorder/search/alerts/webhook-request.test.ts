import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { isDelivered, sendToWebhook } from '../../../../src/tsrecorder/search/alerts/webhook-request.ts';
import { KEY, openReceiver } from './webhook-receiver.ts';
import { listenOn } from '../../../support/listen.ts';

const message = { id: 'alert_1', body: '{"type":"tailcast.alert","data":{}}' };
const never = new AbortController().signal;

describe('the response of a webhook', () => {
  it.each([
    [undefined, { status: 503 }],
    ['7', { status: 503, retryAfterSeconds: 7 }],
    ['0', { status: 503, retryAfterSeconds: 0 }],
    ['3600', { status: 503, retryAfterSeconds: 3600 }],
    ['86400', { status: 503, retryAfterSeconds: 3600 }],
    ['-1', { status: 503 }],
    ['Wed, 21 Oct 2026 07:28:00 GMT', { status: 503 }],
  ])('with Retry-After %j is parsed as %j', async (retryAfter, answer) => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    receiver.retryAfter = retryAfter;
    expect(await sendToWebhook({ url: receiver.url, keys: [KEY] }, message, Date.now(), never)).toEqual(
      answer,
    );
    expect(receiver.received.map(({ id }) => id)).toEqual(['alert_1']);
  });

  it.each([
    [199, false],
    [200, true],
    [299, true],
    [300, false],
    [404, false],
  ])('%i means that the message was accepted: %j', (status, taken) => {
    expect(isDelivered({ status })).toBe(taken);
  });
});

it('a message has a signature of each key, so that keys can be replaced', async () => {
  const server = createServer((_request, response) => response.end());
  await listenOn(server);
  const asked = once(server, 'request') as Promise<[IncomingMessage]>;
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const keys = [KEY, Buffer.alloc(32, 8)];
  await sendToWebhook({ url, keys }, message, 5000, never);
  const [{ headers }] = await asked;
  const signed = `alert_1.5.${message.body}`;
  expect(headers['webhook-signature']).toBe(
    keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' '),
  );
  server.close();
});

/** Sends a signed message to a webhook: one request, as https://www.standardwebhooks.com has it. */
import { createHmac } from 'node:crypto';
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { within } from '../../../async/within.ts';

export interface WebhookTarget {
  readonly url: string;
  /** What messages are signed with; while keys change, more than one. */
  readonly keys: readonly Uint8Array[];
  /** PEM of authorities beside which no other is trusted. */
  readonly ca?: string;
}

export interface WebhookMessage {
  /** The same for every try. */
  readonly id: string;
  readonly body: string;
}

/** What a receiver said. */
export interface WebhookAnswer {
  readonly status: number;
  /** Seconds after which it wants to be asked again. */
  readonly retryAfterSeconds?: number;
}

const TIMEOUT_MS = 10_000;
const MAX_RETRY_AFTER = 3600;

/** `v1,<base64>` of HMAC-SHA256 over `<id>.<timestamp>.<body>`, one for each key, with spaces between. */
function signatureOf(keys: readonly Uint8Array[], { id, body }: WebhookMessage, timestamp: number): string {
  return keys
    .map((key) => `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`)
    .join(' ');
}

/**
 * Follows no redirect: a message goes where it is configured to go.
 *
 * @param nowMs milliseconds since the epoch
 * @throws Error when nothing was answered in time
 */
export async function sendToWebhook(
  { url, keys, ca }: WebhookTarget,
  message: WebhookMessage,
  nowMs: number,
  signal: AbortSignal,
): Promise<WebhookAnswer> {
  const timestamp = Math.floor(nowMs / 1000);
  const body = Buffer.from(message.body);
  const headers = {
    'content-type': 'application/json',
    'content-length': String(body.length),
    'user-agent': 'tailcast',
    'webhook-id': message.id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signatureOf(keys, message, timestamp),
  };
  return within(TIMEOUT_MS, 'the webhook', signal, async (stop) => {
    const answered = Promise.withResolvers<IncomingMessage>();
    const options = { method: 'POST', headers, signal: stop, agent: false };
    const sent = url.startsWith('https:')
      ? requestHttps(url, { ...options, ...(ca === undefined ? {} : { ca }) })
      : requestHttp(url, options);
    sent.once('response', answered.resolve);
    // a receiver may answer before it has read all, and close then: what it said counts
    sent.on('error', answered.reject);
    sent.end(body);
    const response = await answered.promise;
    // what it says beside its status is not read
    response.on('error', () => undefined);
    response.destroy();
    const status = response.statusCode ?? 0;
    const wait = Number(response.headers['retry-after'] ?? Number.NaN);
    return Number.isFinite(wait) && wait >= 0
      ? { status, retryAfterSeconds: Math.min(wait, MAX_RETRY_AFTER) }
      : { status };
  });
}

/** Whether the receiver has taken it. */
export function isDelivered({ status }: WebhookAnswer): boolean {
  return status >= 200 && status < 300;
}

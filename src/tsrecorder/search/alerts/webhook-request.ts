/** Sends a signed message to a webhook in one request, according to https://www.standardwebhooks.com. */
import { createHmac } from 'node:crypto';
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { withTimeout } from '../../../async/with-timeout.ts';

/** Address and keys of a webhook. */
export interface WebhookTarget {
  readonly url: string;
  /**
   * Signing keys. During a key rotation, there are several keys. A webhook of a chat service has no keys, because chat
   * services do not check signatures.
   */
  readonly keys: readonly Uint8Array[];
  /** CA certificates in PEM. If set, no other CA is trusted. */
  readonly ca?: string;
}

export interface WebhookMessage {
  /** Id of the message, equal for all attempts. */
  readonly id: string;
  readonly body: string;
}

/** Response of a receiver. */
export interface WebhookAnswer {
  readonly status: number;
  /** Requested pause before the next attempt, in seconds. */
  readonly retryAfterSeconds?: number;
}

const TIMEOUT_MS = 10_000;
const MAX_RETRY_AFTER = 3600;

/** Returns `v1,<base64>` of the HMAC-SHA256 over `<id>.<timestamp>.<body>` for each key, separated by spaces. */
function signatureOf(keys: readonly Uint8Array[], { id, body }: WebhookMessage, timestamp: number): string {
  return keys
    .map((key) => `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`)
    .join(' ');
}

/**
 * Sends a message. Redirects are not followed, so that messages reach only the configured address.
 *
 * @param nowMs milliseconds since the epoch
 * @throws Error if no response arrives in time
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
    ...(keys.length === 0 ? {} : { 'webhook-signature': signatureOf(keys, message, timestamp) }),
  };
  return withTimeout(TIMEOUT_MS, 'the webhook', signal, async (stop) => {
    const answered = Promise.withResolvers<IncomingMessage>();
    const options = { method: 'POST', headers, signal: stop, agent: false };
    const sent = url.startsWith('https:')
      ? requestHttps(url, { ...options, ...(ca === undefined ? {} : { ca }) })
      : requestHttp(url, options);
    sent.once('response', answered.resolve);
    // A receiver may respond and close the connection before it has read the complete message. The response then
    // counts, and the error has no effect.
    sent.on('error', answered.reject);
    sent.end(body);
    const response = await answered.promise;
    // The body of the response is ignored.
    response.on('error', () => undefined);
    response.destroy();
    const status = response.statusCode ?? 0;
    const wait = Number(response.headers['retry-after'] ?? Number.NaN);
    return Number.isFinite(wait) && wait >= 0
      ? { status, retryAfterSeconds: Math.min(wait, MAX_RETRY_AFTER) }
      : { status };
  });
}

/** True if the receiver accepted the message. */
export function isDelivered({ status }: WebhookAnswer): boolean {
  return status >= 200 && status < 300;
}

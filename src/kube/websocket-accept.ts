import { createHash } from 'node:crypto';

const ACCEPT_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'; // RFC 6455 §1.3

/** Returns the value of `Sec-WebSocket-Accept` for a client's key. RFC 6455 §4.2.2. */
export function acceptKey(key: string): string {
  return createHash('sha1').update(`${key}${ACCEPT_GUID}`).digest('base64');
}

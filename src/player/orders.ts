/** Requests of the page that end, pause and resume sessions. */
import type { OrderAction } from '../wire/recorder-api/session-order.ts';
import { bytesAt, failureOf, readJson, isRecord } from './archive.ts';
import type { Ask } from './recorder-context.ts';

/** Returns true if the viewer may end, pause and resume this session. */
export async function mayOrder(ask: Ask, id: string, signal: AbortSignal): Promise<boolean> {
  const orders = await readJson(ask, bytesAt(id, 'orders'), signal);
  return isRecord(orders) && orders['isPossible'] === true && orders['mayGive'] === true;
}

/** Resolves when the gateway of the session confirmed the order. */
export async function giveOrder(ask: Ask, id: string, action: OrderAction, reason: string): Promise<void> {
  const { signal } = new AbortController();
  const path = bytesAt(id, `orders/${action}?${new URLSearchParams({ reason }).toString()}`);
  const response = await ask(path, { signal, method: 'POST', headers: { accept: 'application/json' } });
  if (!response.ok) throw await failureOf(response);
}

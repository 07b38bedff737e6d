/** Requests of the page that control running sessions. */
import type { OrderAction } from '../wire/recorder-api/session-order.ts';
import { isRecord } from '../wire/is-record.ts';
import { bytesAt } from './addresses.ts';
import { readJson } from './archive.ts';
import { failureOf } from './archive-error.ts';
import type { Ask } from './recorder-context.ts';

/** Permissions of a viewer for a running session. */
export interface Control {
  /** True if the viewer may end, pause and resume the session. */
  readonly mayGive: boolean;
  /** True if the session runs only while a moderator watches it. */
  readonly isModerated: boolean;
}

export async function readControl(ask: Ask, id: string, signal: AbortSignal): Promise<Control> {
  const orders = await readJson(ask, bytesAt(id, 'orders'), signal);
  const found = isRecord(orders) && orders['isPossible'] === true ? orders : {};
  return { mayGive: found['mayGive'] === true, isModerated: found['isModerated'] === true };
}

/** Sends an order. Resolves after the gateway of the session has confirmed the order. */
export async function giveOrder(ask: Ask, id: string, action: OrderAction, reason: string): Promise<void> {
  const { signal } = new AbortController();
  const path = bytesAt(id, `orders/${action}?${new URLSearchParams({ reason }).toString()}`);
  const response = await ask(path, { signal, method: 'POST', headers: { accept: 'application/json' } });
  if (!response.ok) throw await failureOf(response);
}

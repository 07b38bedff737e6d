/**
 * Orders of a recorder to the gateway of a running session: end it, pause or resume its output. An order is a field of
 * an acknowledgement, so a recorder sends orders only to a gateway that offers to follow them (`upload-headers.ts`).
 * The gateway confirms an order with an annotation in the upload, which is part of the recording.
 */
import { jsonField, type JsonObject } from '../json-value.ts';
import { WireError } from '../wire-error.ts';

export const ORDER_ACTIONS = ['end', 'pause', 'resume'] as const;
export type OrderAction = (typeof ORDER_ACTIONS)[number];

export interface SessionOrder {
  /** Name of the order, for its confirmation. */
  readonly id: string;
  readonly action: OrderAction;
  /** The viewer or the rule that gave the order. */
  readonly by: string;
  readonly reason: string;
}

/** Maximum length of a reason, in UTF-16 code units. */
export const MAX_REASON_LENGTH = 200;
const MAX_BY_LENGTH = 300;
const ID = /^[a-z0-9-]{1,64}$/;

/** @throws WireError `malformed` */
export function parseOrder(value: JsonObject): SessionOrder {
  const id = jsonField(value, 'id');
  const action = ORDER_ACTIONS.find((known) => known === jsonField(value, 'action'));
  const by = jsonField(value, 'by');
  const reason = jsonField(value, 'reason');
  const isOrder =
    typeof id === 'string' &&
    ID.test(id) &&
    action !== undefined &&
    isText(by, MAX_BY_LENGTH) &&
    isText(reason, MAX_REASON_LENGTH);
  if (!isOrder) throw new WireError('malformed', 'an order is not complete');
  return { id, action, by, reason };
}

function isText(value: unknown, most: number): value is string {
  return typeof value === 'string' && value.length <= most;
}

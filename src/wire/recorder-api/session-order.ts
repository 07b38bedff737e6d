/**
 * Orders of a recorder to the gateway of a running session: end it, pause or resume its output. An order is a field of
 * an acknowledgement, so a recorder sends orders only to a gateway that offers to follow them (`upload-headers.ts`).
 * The gateway confirms an order with an annotation in the upload, which is part of the recording.
 */

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

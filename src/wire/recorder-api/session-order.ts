/**
 * Orders of a recorder to the gateway of a running session: end it, pause or resume its output, or let a moderated
 * session run because a viewer watches it. An order is a field of an acknowledgement, so a recorder sends orders only
 * to a gateway that offers to follow them (`upload-headers.ts`). The gateway confirms an order with an annotation in
 * the upload, which is part of the recording.
 */

export const CONTROL_ACTIONS = ['end', 'pause', 'resume'] as const;
export type ControlAction = (typeof CONTROL_ACTIONS)[number];

/** Actions of viewers. `watch` is repeated every {@link WATCH_INTERVAL_MS} with the same id. */
export const VIEWER_ACTIONS = [...CONTROL_ACTIONS, 'watch'] as const;

/** `hold` is an order of a rule: a pause that ends the session unless a viewer resumes it. */
export const ORDER_ACTIONS = [...VIEWER_ACTIONS, 'hold'] as const;
export type OrderAction = (typeof ORDER_ACTIONS)[number];

/**
 * Actions in annotations. `leave`: the viewer watches no more, or may not moderate the session. `reason`: the user gave
 * a reason for the session.
 */
export const CONFIRMED_ACTIONS = [...ORDER_ACTIONS, 'leave', 'reason'] as const;

/** Interval in which a watching viewer repeats its order. */
export const WATCH_INTERVAL_MS = 3_000;

/** A viewer of a moderated session, as the recorder identified it. */
export interface SessionWatcher {
  readonly nodeId: string;
  /** Login; absent for a tagged node. */
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface SessionOrder {
  /** Name of the order, for its confirmation. */
  readonly id: string;
  readonly action: OrderAction;
  /** The viewer or the rule that gave the order. */
  readonly by: string;
  readonly reason: string;
  /** Viewer who watches. Present only if `action` is `watch`. */
  readonly watcher?: SessionWatcher;
}

/** Maximum length of a reason, in UTF-16 code units. */
export const MAX_REASON_LENGTH = 200;

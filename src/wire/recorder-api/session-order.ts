/**
 * Session orders: messages of a recorder to the gateway of a running session. A session order ends, pauses or resumes
 * the session, or reports that a moderator watches it. A session order is a field of an acknowledgement. The recorder
 * sends session orders only to gateways that announce support for them (`upload-headers.ts`). The gateway confirms each
 * session order with an annotation, which becomes part of the recording.
 */

export const CONTROL_ACTIONS = ['end', 'pause', 'resume'] as const;
export type ControlAction = (typeof CONTROL_ACTIONS)[number];

/** Actions of viewers. The recorder repeats `watch` every {@link WATCH_INTERVAL_MS} with the same id. */
export const VIEWER_ACTIONS = [...CONTROL_ACTIONS, 'watch'] as const;

/**
 * `hold` is the session order of an alert rule: it pauses the session, and the gateway ends the session unless a viewer
 * resumes it in time.
 */
export const ORDER_ACTIONS = [...VIEWER_ACTIONS, 'hold'] as const;
export type OrderAction = (typeof ORDER_ACTIONS)[number];

/**
 * Actions in annotations. With them, the gateway confirms session orders and reports changes. `leave`: the viewer has
 * stopped watching, or is not allowed to moderate the session. `reason`: the user typed a reason for the session.
 */
export const CONFIRMED_ACTIONS = [...ORDER_ACTIONS, 'leave', 'reason'] as const;

/** Interval at which the recorder repeats the action `watch` for a watching viewer, in milliseconds. */
export const WATCH_INTERVAL_MS = 3_000;

/** A viewer of a moderated session, as the recorder identified it. */
export interface SessionWatcher {
  readonly nodeId: string;
  /** Login; absent for a tagged node. */
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface SessionOrder {
  /** Id of the session order, which the confirmation repeats. */
  readonly id: string;
  readonly action: OrderAction;
  /** The viewer or the alert rule that gave the session order. */
  readonly by: string;
  readonly reason: string;
  /** The watching viewer. Present only if `action` is `watch`. */
  readonly watcher?: SessionWatcher;
}

/** Maximum length of a reason, in UTF-16 code units. */
export const MAX_REASON_LENGTH = 200;

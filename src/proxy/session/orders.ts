/**
 * Executes the orders of a recorder. An order does one of three things. It ends the session and tells the user the
 * reason. It pauses, holds or resumes the output and input of the session. Or it reports a watcher to the moderation of
 * the session. After the maximum duration, a paused session continues and a held session ends, so that a lost recorder
 * cannot block a session.
 */
import { TailcastError } from '../../errors.ts';
import type { RecorderUpload } from '../../recording/recorder-upload.ts';
import type { RecordingSession } from '../../recording/session.ts';
import { safeLine } from '../../safe-text.ts';
import type { OrderAnnotation } from '../../wire/recorder-api/annotation.ts';
import type { SessionOrder } from '../../wire/recorder-api/session-order.ts';
import type { Moderation } from './moderation.ts';
import type { Relay } from './relay.ts';

/** Maximum duration of one pause or hold. */
const MAX_PAUSE_MS = 5 * 60_000;
/**
 * Maximum number of orders of one session; an order to end the session is always executed. The number is limited
 * because each confirmation stays in memory until the recorder has acknowledged it. Refused watchers count separately,
 * because any viewer can cause them.
 */
const MAX_ORDERS = 256;

export interface OrderedSession {
  readonly session: Pick<RecordingSession, 'order'>;
  readonly upload: Pick<RecorderUpload, 'onOrder' | 'lost'>;
  /** Moderation of the session; undefined if the session is not moderated. */
  readonly moderation?: Pick<Moderation, 'watch' | 'repeat' | 'accepts'> | undefined;
}

/**
 * @param end called to end the session; the error contains the text for the user
 * @returns a function that stops following orders
 */
export function followOrders(
  { session, upload, moderation }: OrderedSession,
  relay: Pick<Relay, 'setPaused'>,
  end: (error: TailcastError) => void,
  maxPauseMs: number = MAX_PAUSE_MS,
): () => void {
  let isStopped = false;
  const isWithinLimit = limitOrders(moderation);
  let pause: NodeJS.Timeout | undefined;
  let hold: NodeJS.Timeout | undefined;
  const resume = (): void => {
    clearTimeout(pause);
    clearTimeout(hold);
    pause = undefined;
    hold = undefined;
    relay.setPaused(false);
  };
  const limitPause = (order: SessionOrder): void => {
    pause = undefined;
    if (hold !== undefined) return;
    session.order({ ...order, action: 'resume', by: 'gateway', reason: 'the maximum duration of a pause' });
    resume();
  };
  const endHeld = ({ by }: SessionOrder): void =>
    end(new TailcastError('SESSION_ENDED', `${by}: no viewer resumed it in time`));
  upload.onOrder((given) => {
    if (given.action === 'watch' && moderation?.repeat(given) === true) return;
    if (isStopped || !isWithinLimit(given)) return;
    // The texts are sanitized because the user sees them and the recorder may be compromised.
    const order = { ...given, by: safeLine(given.by), reason: safeLine(given.reason) };
    if (order.action === 'watch') {
      if (moderation !== undefined) return moderation.watch(order);
      return session.order(notModerated(order));
    }
    session.order(order);
    switch (order.action) {
      case 'end':
        return end(new TailcastError('SESSION_ENDED', [order.by, order.reason].filter(Boolean).join(': ')));
      case 'pause':
        relay.setPaused(true);
        pause ??= setTimeout(() => limitPause(order), maxPauseMs);
        return;
      case 'hold':
        relay.setPaused(true);
        hold ??= setTimeout(() => endHeld(order), maxPauseMs);
        return;
      case 'resume':
        return resume();
    }
  });
  void upload.lost.then(() => {
    if (isStopped) return;
    if (hold === undefined) resume();
    else end(new TailcastError('SESSION_ENDED', 'the recorder was lost while a rule held it'));
  });
  return () => {
    isStopped = true;
    clearTimeout(pause);
    clearTimeout(hold);
  };
}

/** Returns a function that counts orders. The function returns false if the order must be ignored. */
function limitOrders(moderation: OrderedSession['moderation']): (order: SessionOrder) => boolean {
  const counts = { accepted: 0, refused: 0 };
  return (order) => {
    const isRefused = order.action === 'watch' && moderation?.accepts(order) !== true;
    const count = (counts[isRefused ? 'refused' : 'accepted'] += 1);
    return count <= MAX_ORDERS || order.action === 'end';
  };
}

/** Returns the confirmation that refuses a watcher, because the session is not moderated. */
function notModerated({ id, by }: SessionOrder): Omit<OrderAnnotation, 'kind'> {
  return { id, action: 'leave', by, reason: 'this session is not moderated' };
}

/**
 * Sends alerts to one webhook. Retries each alert until the webhook accepts the alert, another recorder delivers the
 * alert, or the alert expires.
 */
import { createBackoff, type Backoff } from '../../../async/backoff.ts';
import { pause } from '../../../async/pause.ts';
import { errorText } from '../../../errors.ts';
import type { Logger } from '../../../observe/logger.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import type { Catalog } from '../../library/catalog.ts';
import { includesMarks, isWithin, type Scope } from '../../library/scope.ts';
import type { Alert } from './alert.ts';
import { AlertClaim, type AlertClaimOptions } from './alert-claim.ts';
import type { AlertJournal } from './alert-journal.ts';
import { alertMessage, type AlertWebhookView } from './alert-message.ts';
import type { AlertMetrics } from './alert-metrics.ts';
import { isDelivered, sendToWebhook, type WebhookTarget } from './webhook-request.ts';

export interface AlertWebhook extends AlertWebhookView {
  readonly target: WebhookTarget;
  /** Recordings that the webhook may see. */
  readonly scope: Scope;
}

/** Steps from a match to the settled alert, in order. A crash is possible between any two steps. */
export type AlertStep = 'matched' | 'recorded' | 'claiming' | 'sending' | 'taken' | 'marked' | 'settled';

/** Options that are the same for all webhooks. */
export interface SendingOptions extends Pick<AlertClaimOptions, 'store' | 'leaseMs' | 'now' | 'signer'> {
  readonly catalog: Pick<Catalog, 'find'>;
  /** Maximum age of an undelivered alert, in milliseconds. */
  readonly giveUpMs: number;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly log: Logger;
  /** Called at each step where a crash is possible. For tests. */
  readonly onStep?: (step: AlertStep) => void;
  readonly retry?: { readonly baseMs: number; readonly maxMs: number };
}

export interface SenderOptions extends SendingOptions {
  readonly name: string;
  readonly webhook: AlertWebhook;
  readonly journal: AlertJournal;
  readonly metrics: AlertMetrics;
  readonly signal: AbortSignal;
}

interface WaitingAlert {
  alert: Alert;
  readonly claim: AlertClaim;
  readonly backoff: Backoff;
  /** Delays between two checks of the claim of another recorder. */
  readonly claimChecks: Backoff;
  /** Time of the next attempt, by the monotonic clock, in milliseconds. */
  dueAt: number;
  /** True if the last attempt did not find the recording. */
  wasMissing: boolean;
  /** True if the webhook has accepted the alert and the delivery mark is still missing. */
  isAccepted: boolean;
}

/**
 * Maximum number of pending alerts per rule. The source of an alert is a gateway, a user or a set of tags. Above the
 * maximum, the source with the most pending alerts loses its oldest alert, so that it cannot displace the alerts of
 * other sources.
 */
export const MAX_WAITING = 1000;
const RETRY = { baseMs: 1000, maxMs: 600_000 };

/** Sends alerts to one webhook sequentially. The alert with the earliest due time comes first. */
export class WebhookSender {
  readonly #options: SenderOptions;
  readonly #waiting = new Map<string, WaitingAlert>();
  /**
   * Delay before the next request to the webhook, for any alert. The delay grows with each connection failure, status
   * 429 or status 5xx. The server of the webhook can request a longer delay with `Retry-After`.
   */
  readonly #backoff: Backoff;
  #notBefore = 0;
  /** Time since which all claims have failed; undefined if the last claim succeeded. */
  #storeFailsSince: number | undefined;
  #wake = new AbortController();
  readonly closed: Promise<void>;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#backoff = createBackoff(options.retry ?? RETRY, Math.random);
    this.closed = this.#run();
  }

  /** Adds an alert. @returns the dropped alert if too many alerts of the rule are pending, otherwise undefined */
  add(alert: Alert): Alert | undefined {
    const { retry = RETRY, now, leaseMs, journal, log, name } = this.#options;
    const reported = new Set<string>();
    const onUnproven = (document: string, problem: string): void => {
      if (reported.has(document)) return;
      reported.add(document);
      log.warn(
        { webhook: name, alert: alert.id, document, problem },
        'a document about an alert is ignored: no trusted recorder signed it',
      );
    };
    this.#waiting.set(alert.id, {
      alert,
      claim: new AlertClaim({ ...this.#options, recorder: journal.recorder, onUnproven }, alert),
      backoff: createBackoff(retry, Math.random),
      claimChecks: createBackoff({ baseMs: Math.min(1000, leaseMs / 8), maxMs: leaseMs / 4 }, Math.random),
      dueAt: now(),
      wasMissing: false,
      isAccepted: false,
    });
    this.#wake.abort();
    if (this.#waiting.size <= MAX_WAITING) return undefined;
    const ofRule = [...this.#waiting.values()].filter((waiting) => waiting.alert.rule === alert.rule);
    if (ofRule.length <= MAX_WAITING) return undefined;
    const sources = [...Map.groupBy(ofRule, (waiting) => sourceOf(waiting.alert)).values()];
    const oldest = sources.toSorted((one, other) => other.length - one.length)[0]?.[0];
    if (oldest === undefined) return undefined;
    this.#waiting.delete(oldest.alert.id);
    return oldest.alert;
  }

  forgetText(sessions: ReadonlySet<string>): void {
    for (const waiting of this.#waiting.values()) {
      const { hit: _hit, ...without } = waiting.alert;
      if (sessions.has(without.session)) waiting.alert = without;
    }
  }

  async #run(): Promise<void> {
    const { signal, now, log, name } = this.#options;
    while (!signal.aborted) {
      this.#wake = new AbortController();
      const next = this.#next();
      const waitMs = next === undefined ? IDLE_MS : Math.max(next.dueAt, this.#notBefore) - now();
      if (next === undefined || waitMs > 0) {
        await pause(waitMs, AbortSignal.any([signal, this.#wake.signal]));
        continue;
      }
      try {
        await this.#handle(next);
      } catch (error) {
        if (signal.aborted) return;
        // An error means that the disk or the store failed.
        next.dueAt = now() + next.backoff.next();
        log.error({ webhook: name, alert: next.alert.id, error: errorText(error) }, 'an alert has to wait');
      }
    }
  }

  #next(): WaitingAlert | undefined {
    let first: WaitingAlert | undefined;
    for (const waiting of this.#waiting.values())
      if (first === undefined || waiting.dueAt < first.dueAt) first = waiting;
    return first;
  }

  async #handle(waiting: WaitingAlert): Promise<void> {
    const { journal, metrics, nowMs, now, giveUpMs, log, name } = this.#options;
    const { alert } = waiting;
    const isOld = nowMs() - alert.firedAtMs > giveUpMs;
    if (waiting.isAccepted && !isOld) {
      await this.#finish(waiting);
      return;
    }
    if (isOld) {
      await this.#endOld(waiting);
      return;
    }
    const recording = await this.#describe(alert);
    if (recording === 'withheld') {
      this.#waiting.delete(alert.id);
      await journal.settle(alert);
      metrics.alerts.inc({ outcome: 'withheld' });
      log.warn(
        { webhook: name, alert: alert.id },
        'an alert is withheld: its viewer may not see the session',
      );
      return;
    }
    // The recording may be moving into the store. Try a second time before the recording counts as removed.
    if (recording === undefined && alert.access === undefined && !waiting.wasMissing) {
      waiting.wasMissing = true;
      waiting.dueAt = now() + waiting.backoff.next();
      return;
    }
    const claimed = await this.#claim(waiting);
    if (claimed === 'mine') await this.#deliver(waiting, recording);
    else if (claimed === 'told') await this.#settleDelivered(waiting);
    else waiting.dueAt = now() + waiting.claimChecks.next();
  }

  /**
   * Returns the recording of an alert. `changed`: the viewer of the webhook could see the recording when the rule
   * matched, but not with its current description. `withheld`: the viewer must not see the alert.
   */
  async #describe({
    access,
    session,
    marks,
  }: Alert): Promise<Recording | 'changed' | 'withheld' | undefined> {
    const { catalog, webhook } = this.#options;
    const isWithheld = !includesMarks(webhook.scope, marks);
    if (access !== undefined) return isWithheld ? 'withheld' : undefined;
    const found = (await catalog.find(session))?.recording;
    if (found === undefined || isWithin(webhook.scope, found)) return found;
    // Recorders never change the access marks of a recording, so `changed` means that another program changed them.
    return isWithheld ? 'withheld' : 'changed';
  }

  /** Settles an expired alert. An alert that another recorder has delivered does not count as lost. */
  async #endOld(waiting: WaitingAlert): Promise<void> {
    const { alert, claim } = waiting;
    if (await claim.isDelivered().catch(() => false)) await this.#settleDelivered(waiting);
    else await giveUp(alert, 'no webhook accepted it in time', this.#options);
    this.#waiting.delete(alert.id);
  }

  /** Settles an alert that another recorder, or an earlier process, has delivered. */
  async #settleDelivered({ alert }: WaitingAlert): Promise<void> {
    const { journal, metrics, log, name, onStep } = this.#options;
    if (await journal.settle(alert)) metrics.alerts.inc({ outcome: 'elsewhere' });
    this.#waiting.delete(alert.id);
    log.info({ webhook: name, alert: alert.id }, 'an alert was already delivered');
    onStep?.('settled');
  }

  /**
   * Takes the claim. If the store fails for longer than a lease, the alert is sent without a claim: a duplicate is
   * better than a delay.
   * @throws the error of the store if the failures have lasted less than a lease
   */
  async #claim({ alert, claim }: WaitingAlert): Promise<'mine' | 'told' | 'claimed'> {
    const { now, leaseMs, log, name, onStep } = this.#options;
    onStep?.('claiming');
    try {
      const claimed = await claim.take();
      this.#storeFailsSince = undefined;
      return claimed;
    } catch (error) {
      this.#storeFailsSince ??= now();
      if (now() - this.#storeFailsSince < leaseMs) throw error;
      log.warn(
        { webhook: name, alert: alert.id, error: errorText(error) },
        'the store does not respond, so other recorders may send the alert as well',
      );
      return 'mine';
    }
  }

  async #deliver(waiting: WaitingAlert, recording: Recording | 'changed' | undefined): Promise<void> {
    const { webhook, nowMs, log, name, onStep, signal } = this.#options;
    // Read the alert again: its text may have been removed while the claim was created, and must not be sent then.
    const { alert } = waiting;
    if (recording === 'changed')
      log.error(
        { webhook: name, alert: alert.id, recording: alert.session },
        'an alert is sent without its recording: the description of the recording was changed after the match',
      );
    onStep?.('sending');
    const answer = await sendToWebhook(
      webhook.target,
      alertMessage(alert, recording, webhook),
      nowMs(),
      signal,
    ).catch((error: unknown) => {
      signal.throwIfAborted();
      return { status: 0, error: errorText(error) };
    });
    if (!isDelivered(answer)) {
      this.#failed(waiting, answer);
      // Release the claim, because another recorder may be able to reach the webhook. If the release fails, the claim
      // expires.
      await waiting.claim.release().catch(() => undefined);
      return;
    }
    onStep?.('taken');
    this.#backoff.reset();
    waiting.isAccepted = true;
    log.info({ webhook: name, alert: alert.id, status: answer.status }, 'an alert was delivered');
    await this.#finish(waiting);
  }

  /**
   * Marks an accepted alert in the store and in the journal. Rejects if one of the two writes fails. The caller then
   * retries.
   */
  async #finish({ alert, claim }: WaitingAlert): Promise<void> {
    const { journal, metrics, onStep } = this.#options;
    const marked = await claim.markDelivered().then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    onStep?.('marked');
    if (await journal.settle(alert)) metrics.alerts.inc({ outcome: 'delivered' });
    onStep?.('settled');
    if (marked !== undefined) throw marked.error;
    this.#waiting.delete(alert.id);
    await claim.release().catch(() => undefined);
  }

  #failed(
    waiting: WaitingAlert,
    answer: { readonly status: number; readonly error?: string; readonly retryAfterSeconds?: number },
  ): void {
    const { metrics, now, log, name } = this.#options;
    const { status, error, retryAfterSeconds = 0 } = answer;
    waiting.dueAt = now() + waiting.backoff.next();
    // These failures may affect all messages to the webhook, so delay all alerts of the webhook.
    if (status === 0 || status === 429 || status >= 500)
      this.#notBefore = now() + Math.max(this.#backoff.next(), retryAfterSeconds * 1000);
    metrics.failures.inc();
    log.warn(
      { webhook: name, alert: waiting.alert.id, ...(status === 0 ? { error } : { status }) },
      'an alert could not be delivered and will be tried again',
    );
  }
}

const IDLE_MS = 3_600_000;

/** Returns the gateway that uploaded a notice, or the user or the tags of a session. */
function sourceOf({ access, marks }: Alert): string {
  return access?.gateway ?? marks.filter((mark) => /^(?:user|tag):/.test(mark)).join(' ');
}

/** Settles an alert that is not delivered. */
export async function giveUp(
  alert: Alert,
  reason: string,
  { journal, metrics, log }: Pick<SenderOptions, 'journal' | 'metrics' | 'log'>,
): Promise<void> {
  if (!(await journal.settle(alert))) return;
  metrics.alerts.inc({ outcome: 'givenUp' });
  const { id, rule, session, webhook } = alert;
  log.error({ alert: id, rule, recording: session, webhook, reason }, 'an alert was given up');
}

/**
 * Alerts of a recorder: what rules were found true of is written down, and webhooks are told until they have taken it. A
 * process that is killed at any step tells them again, with the same id: none is lost, and a receiver knows one that it has.
 */
import { createBackoff, type Backoff } from '../../../async/backoff.ts';
import { pause } from '../../../async/pause.ts';
import { errorText } from '../../../errors.ts';
import type { Logger } from '../../../observe/logger.ts';
import type { RuleMatch, WatchedRule } from '../../../search/match.ts';
import { printQuery, type Query } from '../../../search/query.ts';
import type { Hit } from '../../../search/search-index.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import type { Catalog } from '../../library/catalog.ts';
import { termsOf } from '../../library/indexed-list.ts';
import { isWithin, type Scope } from '../../library/scope.ts';
import { alertIdOf, ruleIdOf, type Alert } from './alert.ts';
import { AlertJournal } from './alert-journal.ts';
import { alertMessage, type AlertWebhookView } from './alert-message.ts';
import type { AlertMetrics, AlertStatus } from './alert-metrics.ts';
import { isDelivered, sendToWebhook, type WebhookTarget } from './webhook-request.ts';

export interface AlertRule {
  readonly name: string;
  readonly query: Query;
  /** Name of the webhook that is told. */
  readonly webhook: string;
}

export interface AlertWebhook extends AlertWebhookView {
  readonly target: WebhookTarget;
  /** What of the recordings it may be told of. */
  readonly scope: Scope;
}

/** What is watched for, and who is told. */
export interface AlertSettings {
  readonly rules: readonly AlertRule[];
  readonly webhooks: ReadonlyMap<string, AlertWebhook>;
  /** How old an alert becomes at most before it is given up. */
  readonly giveUpMs: number;
}

export interface AlertsOptions extends AlertSettings {
  /** A directory of the spool. */
  readonly directory: string;
  readonly catalog: Pick<Catalog, 'find'>;
  /** Milliseconds since the epoch, and of a monotonic clock. */
  readonly nowMs: () => number;
  readonly now: () => number;
  readonly metrics: (status: () => AlertStatus) => AlertMetrics;
  readonly log: Logger;
  /** Called at each step that a kill may come at; tests use it. */
  readonly onStep?: (step: AlertStep) => void;
  readonly retry?: { readonly baseMs: number; readonly maxMs: number };
}

export type AlertStep = 'matched' | 'recorded' | 'sending' | 'taken' | 'settled';

/** What the index is given to do. */
export interface SessionWatch {
  readonly rules: readonly WatchedRule[];
  /** Resolves when it is durable that rules were true of a session. */
  matched(recording: Recording, matches: readonly RuleMatch[]): Promise<void>;
}

export interface Alerts extends SessionWatch {
  /** Recordings have left the store. */
  removed(ids: readonly string[]): void;
  status(): AlertStatus;
  close(): Promise<void>;
}

/** Alerts of one rule that may wait; of more the oldest are given up. */
const MAX_WAITING = 1000;
const RETRY = { baseMs: 1000, maxMs: 600_000 };

/** Reads what an earlier process has left, and goes on telling webhooks of it. @throws a system error */
export async function openAlerts(options: AlertsOptions): Promise<Alerts> {
  const journal = await AlertJournal.open({
    directory: options.directory,
    rules: options.rules.map(({ name, query }) => ruleIdOf(name, query)),
    nowMs: options.nowMs(),
  });
  if (journal.damaged > 0)
    options.log.error({ lines: journal.damaged }, 'lines of the journal of alerts cannot be read');
  return new RecorderAlerts(options, journal);
}

class RecorderAlerts implements Alerts {
  readonly rules: readonly WatchedRule[];
  readonly #options: AlertsOptions;
  readonly #journal: AlertJournal;
  readonly #metrics: AlertMetrics;
  readonly #byId: ReadonlyMap<string, AlertRule>;
  readonly #senders: ReadonlyMap<string, WebhookSender>;
  readonly #closing = new AbortController();
  #background: Promise<void> = Promise.resolve();

  constructor(options: AlertsOptions, journal: AlertJournal) {
    const { rules, webhooks } = options;
    this.#options = options;
    this.#journal = journal;
    this.#byId = new Map(rules.map((rule) => [ruleIdOf(rule.name, rule.query), rule]));
    this.rules = Array.from(this.#byId, ([id, { query, webhook }]) => ({
      id,
      query,
      may: termsOf(webhooks.get(webhook)?.scope ?? []),
      sinceMs: journal.sinceMs(id) - CLOCKS_MS,
    }));
    this.#metrics = options.metrics(() => this.status());
    const { signal } = this.#closing;
    this.#senders = new Map(
      Array.from(webhooks, ([name, webhook]) => [
        name,
        new WebhookSender({ ...options, name, webhook, journal, metrics: this.#metrics, signal }),
      ]),
    );
    this.#take(journal.pending);
  }

  async matched(recording: Recording, matches: readonly RuleMatch[]): Promise<void> {
    if (matches.length === 0) return;
    const { onStep, log } = this.#options;
    onStep?.('matched');
    const fresh = await this.#journal.add(matches.flatMap((match) => this.#alertOf(recording, match) ?? []));
    onStep?.('recorded');
    for (const { id, rule, session, webhook } of fresh) {
      this.#metrics.alerts.inc({ outcome: 'made' });
      log.info({ alert: id, rule, recording: session, webhook }, 'a rule is true of a session');
    }
    this.#take(fresh);
  }

  removed(ids: readonly string[]): void {
    const sessions = new Set(ids);
    for (const sender of this.#senders.values()) sender.forgetText(sessions);
    this.#afterwards(() => this.#journal.forget(sessions), 'text of removed recordings stays in alerts');
  }

  status(): AlertStatus {
    const { pending } = this.#journal;
    const [oldest] = pending;
    const ageMs = oldest === undefined ? 0 : this.#options.nowMs() - oldest.firedAtMs;
    return { waiting: pending.length, oldestSeconds: Math.max(0, ageMs / 1000) };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(Array.from(this.#senders.values(), (sender) => sender.closed));
    await this.#background;
    await this.#journal.close();
  }

  #alertOf(recording: Recording, { rule: ruleId, hit }: RuleMatch): Alert | undefined {
    const rule = this.#byId.get(ruleId);
    const webhook = rule === undefined ? undefined : this.#options.webhooks.get(rule.webhook);
    // the index has narrowed by names; what the recording says of itself decides
    if (rule === undefined || webhook === undefined || !isWithin(webhook.scope, recording)) return undefined;
    return {
      id: alertIdOf(ruleId, recording.id),
      rule: rule.name,
      query: printQuery(rule.query),
      webhook: rule.webhook,
      session: recording.id,
      firedAtMs: Math.floor(this.#options.nowMs()),
      ...(hit === undefined ? {} : { at: hit.at }),
      ...(hit === undefined || !webhook.text ? {} : { hit: shownOf(hit) }),
    };
  }

  #take(alerts: readonly Alert[]): void {
    for (const alert of alerts) {
      const sender = this.#senders.get(alert.webhook);
      if (sender === undefined) {
        this.#giveUp(alert, 'there is no such webhook any more');
        continue;
      }
      const tooMany = sender.add(alert);
      if (tooMany !== undefined) this.#giveUp(tooMany, `more than ${MAX_WAITING} of its rule wait`);
    }
  }

  #giveUp(alert: Alert, reason: string): void {
    this.#afterwards(
      () => giveUp(alert, reason, { ...this.#options, journal: this.#journal, metrics: this.#metrics }),
      'an alert that nobody is told of any more stays on disk',
    );
  }

  #afterwards(act: () => Promise<void>, otherwise: string): void {
    this.#background = this.#background
      .then(act)
      .catch((error: unknown) => this.#options.log.error({ error: errorText(error) }, otherwise));
  }
}

function shownOf({ text, marks, isCommand }: Hit): Omit<Hit, 'at'> {
  return { text, marks, isCommand };
}

/** By how much clocks of a gateway and a recorder may differ: a rule looks so far back at what ended before it. */
const CLOCKS_MS = 300_000;

interface SenderOptions extends Pick<
  AlertsOptions,
  'catalog' | 'nowMs' | 'now' | 'log' | 'onStep' | 'retry' | 'giveUpMs'
> {
  readonly name: string;
  readonly webhook: AlertWebhook;
  readonly journal: AlertJournal;
  readonly metrics: AlertMetrics;
  readonly signal: AbortSignal;
}

interface WaitingAlert {
  alert: Alert;
  readonly backoff: Backoff;
  /** By the monotonic clock. */
  dueAt: number;
  /** Its recording was not found the last time. */
  wasMissing: boolean;
}

/** Tells one webhook, one alert at a time, the oldest that is due first. */
class WebhookSender {
  readonly #options: SenderOptions;
  readonly #waiting = new Map<string, WaitingAlert>();
  /** Of the webhook as a whole: it could not be reached, or wants to be left alone. */
  readonly #backoff: Backoff;
  #notBefore = 0;
  #wake = new AbortController();
  readonly closed: Promise<void>;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#backoff = createBackoff(options.retry ?? RETRY, Math.random);
    this.closed = this.#run();
  }

  /** @returns the oldest of its rule, which is not told any more, when too many wait */
  add(alert: Alert): Alert | undefined {
    const { retry = RETRY, now } = this.#options;
    const backoff = createBackoff(retry, Math.random);
    this.#waiting.set(alert.id, { alert, backoff, dueAt: now(), wasMissing: false });
    this.#wake.abort();
    if (this.#waiting.size <= MAX_WAITING) return undefined;
    const ofRule = [...this.#waiting.values()].filter((waiting) => waiting.alert.rule === alert.rule);
    const [oldest] = ofRule;
    if (ofRule.length <= MAX_WAITING || oldest === undefined) return undefined;
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
        // the disk, or the store
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
    const { catalog, webhook, journal, metrics, nowMs, now, giveUpMs, log, name } = this.#options;
    const { alert } = waiting;
    if (nowMs() - alert.firedAtMs > giveUpMs) {
      await giveUp(alert, 'nobody took it for too long', this.#options);
      this.#waiting.delete(alert.id);
      return;
    }
    const recording = (await catalog.find(alert.session))?.recording;
    if (recording !== undefined && !isWithin(webhook.scope, recording)) {
      this.#waiting.delete(alert.id);
      await journal.settle(alert);
      metrics.alerts.inc({ outcome: 'withheld' });
      log.warn(
        { webhook: name, alert: alert.id },
        'an alert is withheld: its viewer may not see the session',
      );
      return;
    }
    // it may be on its way into the store, and is looked for again before it is said to be gone
    if (recording === undefined && !waiting.wasMissing) {
      waiting.wasMissing = true;
      waiting.dueAt = now() + waiting.backoff.next();
      return;
    }
    await this.#deliver(waiting, recording);
  }

  async #deliver(waiting: WaitingAlert, recording: Recording | undefined): Promise<void> {
    const { webhook, journal, metrics, nowMs, log, name, onStep, signal } = this.#options;
    // what was forgotten meanwhile is not told
    const { alert } = waiting;
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
      return;
    }
    onStep?.('taken');
    this.#backoff.reset();
    if (await journal.settle(alert)) metrics.alerts.inc({ outcome: 'delivered' });
    this.#waiting.delete(alert.id);
    log.info({ webhook: name, alert: alert.id, status: answer.status }, 'an alert was delivered');
    onStep?.('settled');
  }

  #failed(
    waiting: WaitingAlert,
    answer: { readonly status: number; readonly error?: string; readonly retryAfterSeconds?: number },
  ): void {
    const { metrics, now, log, name } = this.#options;
    const { status, error, retryAfterSeconds = 0 } = answer;
    waiting.dueAt = now() + waiting.backoff.next();
    // it is not this alert that the receiver does not want
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

async function giveUp(
  alert: Alert,
  reason: string,
  { journal, metrics, log }: Pick<SenderOptions, 'journal' | 'metrics' | 'log'>,
): Promise<void> {
  if (!(await journal.settle(alert))) return;
  metrics.alerts.inc({ outcome: 'givenUp' });
  const { id, rule, session, webhook } = alert;
  log.error({ alert: id, rule, recording: session, webhook, reason }, 'an alert was given up');
}

/**
 * Alerts of a recorder. Matches of alert rules are written to the alert journal. The recorder retries the delivery of
 * each alert to its webhook until the delivery succeeds or `giveUpMs` is over. After a crash, the recorder repeats
 * deliveries with the same id. Thus a crash loses no alert, and receivers can drop duplicates. The recorders that share
 * a store agree which of them sends an alert: see `alert-claim.ts`.
 */
import { errorText } from '../../../errors.ts';
import type { RuleMatch, WatchedRule } from '../../../search/match.ts';
import type { Hit } from '../../../search/search-index.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import { termsOf } from '../../library/index-rows.ts';
import { isWithin, marksOf } from '../../library/scope.ts';
import { parseAccessNotice } from './access-notice.ts';
import { alertIdOf, printTerms, ruleIdOf, type Alert } from './alert.ts';
import type { AlertRule } from './alert-file.ts';
import { AlertJournal } from './alert-journal.ts';
import type { AlertMetrics, AlertStatus } from './alert-metrics.ts';
import {
  giveUp,
  MAX_WAITING,
  WebhookSender,
  type AlertWebhook,
  type SendingOptions,
} from './webhook-sender.ts';

/** Rules and their webhooks. */
export interface AlertSettings {
  readonly rules: readonly AlertRule[];
  readonly webhooks: ReadonlyMap<string, AlertWebhook>;
  /** Maximum age of an undelivered alert, in milliseconds. */
  readonly giveUpMs: number;
}

export interface AlertsOptions extends AlertSettings, SendingOptions {
  /** Directory in the spool. */
  readonly directory: string;
  readonly metrics: (status: () => AlertStatus) => AlertMetrics;
  /** Writes a comment and a tag of a rule into a recording. Repeated calls for the same rule have no effect. */
  readonly mark?: (recording: Recording, rule: string, seconds: number | undefined) => Promise<void>;
  /** Writes a comment into a recording for which a rule is too slow. Repeated calls have no effect. */
  readonly markSlow?: (recording: Recording, rule: string) => Promise<void>;
  /**
   * Pauses (for the action `hold`) or ends a running session. Resolves with false if another recorder receives the
   * session.
   */
  readonly order?: (recording: Recording, rule: string, action: 'hold' | 'end') => Promise<boolean>;
}

const OUTCOMES = { mark: 'marked', hold: 'held', end: 'ended' } as const;

/** Interface of alerts for the indexer. */
export interface SessionWatch {
  readonly rules: readonly WatchedRule[];
  /** True if a rule can pause or end sessions. Running sessions are then read more often. */
  readonly isUrgent: boolean;
  /** Called when rules matched a session. Resolves when the alerts are durable. */
  matched(recording: Recording, matches: readonly RuleMatch[]): Promise<void>;
}

/**
 * Maximum clock difference between a gateway and a recorder, in milliseconds. A rule also applies to sessions that
 * ended at most this time before the rule started.
 */
const CLOCKS_MS = 300_000;

/** Opens the journal, and resumes pending deliveries. @throws a system error */
export async function openAlerts(options: AlertsOptions): Promise<Alerts> {
  const journal = await AlertJournal.open({
    directory: options.directory,
    rules: options.rules.map(ruleIdOf),
    nowMs: options.nowMs(),
  });
  if (journal.damaged > 0)
    options.log.error(
      { lines: journal.damaged, directory: options.directory },
      'lines of the journal of alerts cannot be read; a copy is kept next to it',
    );
  return new Alerts(options, journal);
}

/** Alerts of a recorder. */
export class Alerts implements SessionWatch {
  readonly rules: readonly WatchedRule[];
  readonly isUrgent: boolean;
  readonly #options: AlertsOptions;
  readonly #journal: AlertJournal;
  readonly #metrics: AlertMetrics;
  readonly #byId: ReadonlyMap<string, AlertRule>;
  /** Rules about access requests. Map keys: id of the rule. */
  readonly #accessRules: readonly (readonly [id: string, rule: AlertRule])[];
  readonly #senders: ReadonlyMap<string, WebhookSender>;
  /** Names of the rules that were switched off for at least one session because they were too slow. */
  readonly #slow = new Set<string>();
  readonly #closing = new AbortController();
  #background: Promise<void> = Promise.resolve();

  constructor(options: AlertsOptions, journal: AlertJournal) {
    const { rules, webhooks } = options;
    this.#options = options;
    this.isUrgent = rules.some(({ action }) => action === 'end' || action === 'hold');
    this.#journal = journal;
    this.#byId = new Map(rules.map((rule) => [ruleIdOf(rule), rule]));
    this.#accessRules = [...this.#byId].filter(([, { query }]) => query === undefined);
    this.rules = [...this.#byId].flatMap(([id, { query, pattern, webhook }]) =>
      query === undefined
        ? []
        : {
            id,
            query,
            ...(pattern === undefined ? {} : { pattern }),
            may: webhook === undefined ? 'everything' : termsOf(webhooks.get(webhook)?.scope ?? []),
            sinceMs: journal.sinceMs(id) - CLOCKS_MS,
          },
    );
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
    const acted = matches.map((match) => this.#act(recording, match));
    await this.#add(matches.flatMap((match) => this.#alertOf(recording, match) ?? []));
    // Do not await the action: a gateway may take seconds to confirm it, and other sessions must not wait.
    this.#background = Promise.all([this.#background, ...acted]).then(() => undefined);
  }

  /** Runs the action of a rule. A failed action is logged and counted. Never rejects. */
  async #act(recording: Recording, { rule: id, hit, isSlow }: RuleMatch): Promise<void> {
    const rule = this.#byId.get(id);
    if (rule === undefined) return;
    if (isSlow === true) return this.#reportSlow(rule.name, recording);
    const { log, mark, order } = this.#options;
    const { name, action = 'notify' } = rule;
    if (action === 'notify') return;
    try {
      if (action === 'mark') await mark?.(recording, name, hit?.at);
      else if (recording.state !== 'running' || (await order?.(recording, name, action)) !== true) return;
      this.#metrics.actions.inc({ outcome: OUTCOMES[action] });
      log.info({ rule: name, action, recording: recording.id }, 'a rule acted on a session');
    } catch (error) {
      this.#metrics.actions.inc({ outcome: 'failed' });
      const fields = { rule: name, action, recording: recording.id, error: errorText(error) };
      log.error(fields, 'the action of a rule failed');
    }
  }

  async #reportSlow(rule: string, recording: Recording): Promise<void> {
    const { log, markSlow } = this.#options;
    const fields = { rule, recording: recording.id };
    this.#slow.add(rule);
    log.error(fields, 'a rule is too slow and was switched off for this session');
    await markSlow?.(recording, rule).catch((error: unknown) =>
      log.error({ ...fields, error: errorText(error) }, 'the comment about a slow rule cannot be written'),
    );
  }

  /** Called with each stored event. Resolves when its alerts are durable. Never rejects. */
  async eventStored(event: string): Promise<void> {
    const firedAtMs = Math.floor(this.#options.nowMs());
    const named = this.#accessRules.length === 0 ? undefined : parseAccessNotice(event, firedAtMs);
    if (named === undefined) return;
    const { notice, key, session } = named;
    const alerts = this.#accessRules.map(([ruleId, { name: rule, webhook = '' }]) => {
      const id = alertIdOf(ruleId, key);
      return { id, rule, query: '', webhook, session, firedAtMs, marks: [], access: notice };
    });
    await this.#add(alerts).catch((error: unknown) =>
      this.#options.log.error(
        { request: notice.request, step: notice.step, error: errorText(error) },
        'a notification about an access request is lost, because the journal of alerts cannot be written',
      ),
    );
  }

  async #add(alerts: readonly Alert[]): Promise<void> {
    const { onStep, log } = this.#options;
    onStep?.('matched');
    const fresh = await this.#journal.add(alerts);
    onStep?.('recorded');
    for (const { id, rule, session, webhook, access } of fresh) {
      this.#metrics.alerts.inc({ outcome: 'made' });
      if (access === undefined)
        log.info({ alert: id, rule, recording: session, webhook }, 'a rule matches a session');
      else
        log.info(
          { alert: id, rule, request: access.request, step: access.step },
          'an access request changed',
        );
    }
    this.#take(fresh);
  }

  /** Called when recordings were removed from the store. */
  removed(ids: readonly string[]): void {
    const sessions = new Set(ids);
    for (const sender of this.#senders.values()) sender.forgetText(sessions);
    this.#afterwards(() => this.#journal.forget(sessions), 'text of removed recordings stays in alerts');
  }

  status(): AlertStatus {
    const { pending } = this.#journal;
    const [oldest] = pending;
    const ageMs = oldest === undefined ? 0 : this.#options.nowMs() - oldest.firedAtMs;
    return { waiting: pending.length, oldestSeconds: Math.max(0, ageMs / 1000), slowRules: this.#slow.size };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(Array.from(this.#senders.values(), (sender) => sender.closed));
    await this.#background;
    await this.#journal.close();
  }

  #alertOf(recording: Recording, { rule: ruleId, hit, isSlow }: RuleMatch): Alert | undefined {
    const rule = this.#byId.get(ruleId);
    const { webhook: name = '' } = rule ?? {};
    const webhook = this.#options.webhooks.get(name);
    // The rule matched the indexed description of the recording. The description may have changed since then, so check
    // access with the current description.
    if (rule?.query === undefined || webhook === undefined || !isWithin(webhook.scope, recording))
      return undefined;
    if (isSlow === true) return undefined;
    return {
      id: alertIdOf(ruleId, recording.id),
      rule: rule.name,
      query: printTerms(rule),
      webhook: name,
      session: recording.id,
      firedAtMs: Math.floor(this.#options.nowMs()),
      marks: marksOf(recording),
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
      'an abandoned alert stays on disk',
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

/**
 * Access requests of one gateway. The gateways of a cluster share the requests as AccessRequest objects.
 *
 * If an access request cannot be checked, the access counts as not granted.
 */
import { callAfter } from '../async/deadline.ts';
import { errorText, TailcastError } from '../errors.ts';
import type { Elevation, Elevations, Petition, Petitioner } from '../proxy/gate/elevation.ts';
import type { AccessRule } from '../tailnet/access-rules.ts';
import type { Identity } from '../tailnet/identity.ts';
import { decided } from './decided.ts';
import { elevationOf } from './granted.ts';
import { Expiries, SKEW_MS } from './expiries.ts';
import {
  blocked,
  checkReason,
  describeRequest,
  ended,
  flagsOf,
  isRefusal,
  pending,
  accessRefused,
} from './messages.ts';
import {
  isRequester,
  mayBeSamePerson,
  newRequestId,
  personOf,
  type AccessRecord,
  type AccessDecision,
  type Person,
} from './record.ts';
import { RequestStore, type RequestStoreDeps } from './request-store.ts';
import {
  askKey,
  decidedMs,
  accessOf,
  describeAsk,
  describeWindows,
  isBlocking,
  isImmediate,
  isInNamespaces,
  isSameAccess,
  isOpenAt,
  mayDecide,
  meetsLimits,
  grantingRuleOf,
  rulesFor,
  stateAt,
} from './rules.ts';
import type { AccessEvent } from '../wire/recorder-api/access-event.ts';

/** A step of an access request. It is stored as evidence at the recorder, and used for notifications. */
export interface AccessStep {
  readonly step: AccessEvent['step'];
  readonly record: AccessRecord;
  /** The caller who caused the step. For an expiry, this is the requester. */
  readonly by: Person;
}

export interface AccessRequestsDeps extends RequestStoreDeps {
  /** Stores the evidence of a step. Throws if the grant contains recorders but no recorder stored the event. */
  readonly record: (step: AccessStep) => Promise<void>;
  /** Interval between checks for expired requests, in milliseconds. */
  readonly expiryMs?: number;
}

/** A caller who decides about a request. */
export interface Decider {
  readonly identity: Identity;
  /**
   * Returns the groups of the caller's grants in a cluster. `cluster` is `''` if the gateway serves only one cluster.
   */
  readonly groupsIn: (cluster: string) => readonly string[];
}

/** Data of a new request. */
export interface NewRequest extends Petitioner {
  readonly groups: readonly string[];
  readonly user: string | undefined;
  readonly writes: boolean;
  readonly reason: string;
  /** Requested duration; undefined for the default. */
  readonly durationMs: number | undefined;
}

type WantedAccess = Pick<Petition, 'identity' | 'ask' | 'cluster'>;
export type AccessVerdict = AccessDecision['verdict'];

const DEFAULT_DURATION_MS = 3_600_000;
/** Time for which approvers can decide about a new request, in milliseconds. */
const PENDING_MS = 86_400_000;
/** Maximum number of pending AccessRequest objects of one person. */
const MAX_PENDING_PER_PERSON = 20;
/** Maximum number of AccessRequest objects of one person, including ended requests that are still stored. */
const MAX_KEPT_PER_PERSON = 500;
const MAX_ATTEMPTS = 5;
const EXPIRY_MS = 15_000;

/** The access requests of one gateway. Starts the watch at the first use. */
export class AccessRequests implements Elevations {
  readonly #deps: AccessRequestsDeps;
  readonly #store: RequestStore;
  readonly #creating = new Map<string, Promise<AccessRecord>>();
  /** New records that the store does not contain yet. */
  readonly #unstored = new Set<AccessRecord>();

  constructor(deps: AccessRequestsDeps) {
    this.#deps = deps;
    this.#store = new RequestStore(deps);
    const expiries = new Expiries({
      ...deps,
      store: this.#store,
      record: (record) => this.#recordLater({ step: 'expired', record, by: record.requester }),
    });
    let isExpiring = false;
    const timer = setInterval(() => {
      if (isExpiring) return;
      isExpiring = true;
      const written = Promise.all([expiries.write(), this.#store.maintain()]);
      void written.finally(() => (isExpiring = false));
    }, deps.expiryMs ?? EXPIRY_MS);
    timer.unref();
    deps.signal.addEventListener('abort', () => clearInterval(timer), { once: true });
  }

  /** Current time, in milliseconds since 1970. */
  get nowMs(): number {
    return this.#deps.unixMs();
  }

  async elevate(petition: Petition, signal: AbortSignal): Promise<Elevation> {
    await this.#store.ready(signal);
    const rules = this.#usableRules(petition);
    const found = this.#find(petition, rules);
    if (found?.state === 'granted') {
      const rule = this.#grantingRule(found, rules, petition);
      if (rule !== undefined) {
        await this.#store.refresh(found.id, signal);
        const record = this.#store.find(found.id);
        if (record === undefined || stateAt(record, this.#deps.unixMs()) !== 'granted')
          throw ended(record, found.id);
        return elevationOf(petition, record, rule);
      }
    }
    if (found?.state === 'pending' && !rules.some(isImmediate)) throw pending(found, petition.host);
    const record = await this.#create(petition, rules, found);
    const rule = this.#grantingRule(record, rules, petition);
    if (record.state !== 'granted' || rule === undefined) throw pending(record, petition.host);
    return elevationOf(petition, record, rule);
  }

  async confirm(
    { id, petition }: Elevation,
    now: Petitioner,
    isRecorded: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#store.ready(signal);
    await this.#store.refresh(id, signal);
    const record = this.#store.find(id);
    if (record === undefined || stateAt(record, this.#deps.unixMs()) !== 'granted') throw ended(record, id);
    const current = { ...petition, ...now };
    const rule =
      record.cluster === (now.cluster ?? '') && isRequester(record, now.identity)
        ? this.#grantingRule(record, this.#usableRules(current), current)
        : undefined;
    if (rule?.enforceRecorder === true && !isRecorded)
      throw new TailcastError('ACCESS_ENDED', `access of request ${id} must be recorded now`);
    if (rule !== undefined) return;
    const revoked = this.#revokedFor(current);
    if (revoked !== undefined) throw ended(revoked, revoked.id);
    throw new TailcastError('ACCESS_ENDED', `your grant no longer allows the access of request ${id}`);
  }

  watch(id: string, end: (error: TailcastError) => void): () => void {
    const leftMs = (this.#store.find(id)?.expiresMs ?? 0) - this.#deps.unixMs();
    const expire = (): void => end(ended(this.#store.find(id), id));
    const cancel = callAfter(leftMs, expire);
    const unwatch = this.#store.watch(id, end);
    return () => {
      cancel();
      unwatch();
    };
  }

  /** Creates a request. @throws TailcastError `ACCESS_REQUEST_REFUSED`, `ACCESS_REQUEST_UNAVAILABLE` */
  async request(wanted: NewRequest, signal: AbortSignal): Promise<AccessRecord> {
    await this.#store.ready(signal);
    const ask = { groups: [...new Set(wanted.groups)].toSorted(), user: wanted.user, writes: wanted.writes };
    const rules = rulesFor(wanted.rules, ask, wanted.cluster);
    const open = rules.filter((rule) => isOpenAt(rule, this.#deps.unixMs()));
    const rule = open.find(isImmediate) ?? open[0] ?? rules[0];
    if (rule === undefined)
      throw accessRefused(`no rule of your grant allows you to request ${describeAsk(ask)}`);
    this.#refuseRevoked({ ...wanted, ask }, rule);
    return this.#write({ ...wanted, ...ask }, rule, signal);
  }

  /** Decides about a request. @throws TailcastError `ACCESS_REQUEST_REFUSED`, `ACCESS_REQUEST_UNKNOWN`, … */
  async decide(
    id: string,
    verdict: AccessVerdict,
    { identity, groupsIn, reason }: Decider & { readonly reason: string },
    signal: AbortSignal,
  ): Promise<AccessRecord> {
    await this.#store.ready(signal);
    const tags = identity.kind === 'tagged' ? identity.tags : [];
    const atMs = this.#deps.unixMs();
    const about = { verdict, by: personOf(identity), tags, atMs, reason: checkReason(reason) };
    const { by } = about;
    let known: AccessRecord | undefined;
    let isRecorded = false;
    let isWriting = false;
    try {
      for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
        const { record, ...object } = await this.#store.read(id, signal);
        known = record;
        const decision: AccessDecision = { ...about, groups: groupsIn(record.cluster) };
        const next = decided(record, decision, this.#deps.unixMs(), this.#store.all);
        // an approval fails if its evidence cannot be stored; a denial or revocation always takes effect
        if (verdict === 'approved' && !isRecorded) await this.#record({ step: verdict, record: next, by });
        isRecorded = true;
        isWriting = true;
        const isStored = await this.#store.replace(object, next, signal);
        isWriting = false;
        if (!isStored) continue;
        if (verdict !== 'approved') await this.#recordLater({ step: verdict, record: next, by });
        else if (next.state === 'granted') await this.#recordLater({ step: 'granted', record: next, by });
        return next;
      }
      throw new TailcastError('ACCESS_REQUEST_CONFLICT', id);
    } catch (error) {
      // without a clear refusal, the API server may have stored the approval
      const isFailed = isRecorded && (!isWriting || isRefusal(error));
      if (verdict === 'approved' && isFailed && known !== undefined)
        await this.#recordLater({ step: 'approvalFailed', record: known, by });
      throw error;
    }
  }

  /**
   * Returns the requests that a caller may see, newest first: the requests of the caller, and requests that the caller
   * may decide.
   */
  async list(viewer: Decider, signal: AbortSignal): Promise<readonly AccessRecord[]> {
    await this.#store.ready(signal);
    return this.#store.all
      .filter((record) => isRequester(record, viewer.identity) || mayDecideAbout(record, viewer))
      .toSorted((left, right) => right.createdMs - left.createdMs);
  }

  /** Returns the rules that apply now to a request in this namespace. */
  #usableRules({ rules, ask, info, cluster }: Petition): readonly AccessRule[] {
    const named = rulesFor(rules, ask, cluster);
    const [first] = named;
    if (first === undefined) throw accessRefused(`no rule of your grant allows ${describeAsk(ask)}`);
    const inside = named.filter((rule) => isInNamespaces(rule.namespaces, info));
    if (inside.length === 0)
      throw accessRefused(`${describeAsk(ask)} is only for requests in ${first.namespaces.join(', ')}`);
    const open = inside.filter((rule) => isOpenAt(rule, this.#deps.unixMs()));
    if (open.length === 0)
      throw accessRefused(`${describeAsk(ask)} can be used ${inside.map(describeWindows).join('; ')}`);
    return open;
  }

  /**
   * Returns the existing access request of a caller for this access: a granted request that these rules allow, a
   * pending request, or a recently denied or revoked request.
   */
  #find(petition: Petition, rules: readonly AccessRule[]): AccessRecord | undefined {
    const now = this.#deps.unixMs();
    const key = askKey(petition.ask);
    let best: AccessRecord | undefined;
    for (const record of this.#store.ofNode(petition.identity.nodeId)) {
      if (record.cluster !== (petition.cluster ?? '') || askKey(accessOf(record)) !== key) continue;
      if (!isInNamespaces(record.namespaces, petition.info)) continue;
      const state = stateAt(record, now);
      if (!isBlocking(record, now) && state !== 'granted' && state !== 'pending') continue;
      if (!isRequester(record, petition.identity)) {
        if (state !== 'granted') continue;
        throw accessRefused(
          `request ${record.id} belongs to ${record.requester.name}; ` +
            `this node belongs to ${personOf(petition.identity).name} now`,
        );
      }
      if (record.createdMs > now + SKEW_MS)
        throw accessRefused(`request ${record.id} is from the future: compare the clocks of the gateways`);
      if (this.#isUnusable(record, rules, petition)) continue;
      if (best === undefined || RANK[record.state] > RANK[best.state]) best = record;
    }
    return best;
  }

  /**
   * True if the record is granted but no rule allows it, or if the record is pending and no rule would allow it after
   * an approval.
   */
  #isUnusable(record: AccessRecord, rules: readonly AccessRule[], petition: Petition): boolean {
    if (record.state === 'granted') return this.#grantingRule(record, rules, petition) === undefined;
    return record.state === 'pending' && !rules.some((rule) => meetsLimits(record, rule));
  }

  /**
   * Creates an access request for an ordinary kubectl call. Concurrent kubectl calls for the same access share one
   * access request.
   */
  async #create(
    petition: Petition,
    rules: readonly AccessRule[],
    last: AccessRecord | undefined,
  ): Promise<AccessRecord> {
    const { ask, identity } = petition;
    const rule = rules.find(isImmediate) ?? rules[0];
    if (rule === undefined) throw accessRefused('no rule of your grant allows it');
    if (last?.state === 'denied') throw blocked(last);
    this.#refuseRevoked(petition, rule);
    if (rule.requireReason)
      throw accessRefused(
        `a reason is required; request it with: kubectl tailcast request ${flagsOf(petition)} --reason "…"`,
      );
    const key = `${identity.nodeId} ${petition.cluster ?? ''} ${askKey(ask)}`;
    const running = this.#creating.get(key);
    if (running !== undefined) return running;
    const call = ask.writes ? describeRequest(petition) : '';
    const wanted = { ...petition, ...ask, reason: '', durationMs: undefined };
    // the signal of the caller is not used, because other calls may wait for the same access request
    const creating = this.#write(wanted, rule, this.#deps.signal, call).finally(() =>
      this.#creating.delete(key),
    );
    this.#creating.set(key, creating);
    return creating;
  }

  #refuseRevoked(who: WantedAccess, rule: AccessRule): void {
    const revoked = isImmediate(rule) ? this.#revokedFor(who) : undefined;
    if (revoked !== undefined) throw blocked(revoked);
  }

  /**
   * Returns the last revoked record for this access, or undefined. With such a record, the access needs a later
   * approval, even if a rule requires none. The revocation also applies to other nodes of the requester, and to access
   * with additional groups.
   */
  #revokedFor({ identity, ask, cluster = '' }: WantedAccess): AccessRecord | undefined {
    const access = { ...ask, user: ask.user ?? '', requester: personOf(identity), cluster };
    const now = this.#deps.unixMs();
    let last: AccessRecord | undefined;
    for (const one of this.#store.all)
      if (one.state === 'revoked' && isBlocking(one, now) && isSameAccess(one, access))
        if (last === undefined || decidedMs(one) > decidedMs(last)) last = one;
    return last;
  }

  /**
   * Returns the rule under which a granted record allows a request. After a revocation of this access, only later
   * approvals count.
   */
  #grantingRule(
    record: AccessRecord,
    rules: readonly AccessRule[],
    petition: Petition,
  ): AccessRule | undefined {
    const revoked = this.#revokedFor(petition);
    if (revoked === undefined) return grantingRuleOf(record, rules, petition);
    if (decidedMs(record) <= decidedMs(revoked)) return undefined;
    const approved = rules.filter((one) => !isImmediate(one));
    return grantingRuleOf(record, approved, petition);
  }

  async #write(wanted: NewRequest, rule: AccessRule, signal: AbortSignal, call = ''): Promise<AccessRecord> {
    const record = { ...this.#recordFor(wanted, rule), call };
    const step = record.state === 'granted' ? 'granted' : 'requested';
    this.#unstored.add(record);
    const by = record.requester;
    const evidence = {
      store: () => this.#record({ step, record, by }),
      cancel: () => this.#recordLater({ step: 'requestFailed', record, by }),
    };
    await this.#store.create(record, evidence, signal).finally(() => this.#unstored.delete(record));
    return record;
  }

  /** Returns the record of a new request. @throws TailcastError for a request that the rule does not allow */
  #recordFor(wanted: NewRequest, rule: AccessRule): Omit<AccessRecord, 'call'> {
    const { durationMs = Math.min(DEFAULT_DURATION_MS, rule.maxDurationMs) } = wanted;
    const createdMs = this.#deps.unixMs();
    const reason = checkReason(wanted.reason);
    if (durationMs > rule.maxDurationMs)
      throw accessRefused(`the access may last at most ${Math.round(rule.maxDurationMs / 60_000)} minutes`);
    if (rule.requireReason && reason === '') throw accessRefused('a reason is required');
    const requester = personOf(wanted.identity);
    const all = [...this.#store.all, ...this.#unstored];
    const own = all.filter((one) => mayBeSamePerson(one.requester, requester));
    if (own.filter((one) => stateAt(one, createdMs) === 'pending').length >= MAX_PENDING_PER_PERSON)
      throw accessRefused(`${MAX_PENDING_PER_PERSON} of your requests wait for a decision`);
    if (own.length >= MAX_KEPT_PER_PERSON)
      throw accessRefused(`you sent ${MAX_KEPT_PER_PERSON} requests; the oldest are removed after 7 days`);
    const isGranted = isImmediate(rule);
    return {
      id: newRequestId(),
      revision: 1,
      state: isGranted ? 'granted' : 'pending',
      requester,
      groups: wanted.groups,
      user: wanted.user ?? '',
      writes: wanted.writes,
      cluster: wanted.cluster ?? '',
      namespaces: rule.namespaces,
      reason,
      durationMs,
      maxDurationMs: Math.max(
        ...rulesFor(wanted.rules, wanted, wanted.cluster).map((one) => one.maxDurationMs),
      ),
      approvers: rule.approvers ?? null,
      createdMs,
      expiresMs: createdMs + (isGranted ? durationMs : PENDING_MS),
      decisions: [],
      recording: wanted.recording,
    };
  }

  #record(step: AccessStep): Promise<void> {
    this.#log(step);
    return this.#deps.record(step);
  }

  /**
   * Stores evidence about a step. If no recorder stores the evidence, the step takes effect anyway.
   * @returns true if a recorder stored the evidence
   */
  async #recordLater(step: AccessStep): Promise<boolean> {
    try {
      await this.#record(step);
      return true;
    } catch (error) {
      this.#deps.log.error(
        { request: step.record.id, step: step.step, error: errorText(error) },
        'no recorder stored the evidence about an access request',
      );
      return false;
    }
  }

  #log({ step, record, by }: AccessStep): void {
    this.#deps.log.info(
      {
        request: record.id,
        step,
        by: by.name,
        requester: record.requester.name,
        access: describeAsk(accessOf(record)),
      },
      'access request',
    );
  }
}

const RANK: Readonly<Record<AccessRecord['state'], number>> = {
  granted: 4,
  pending: 3,
  denied: 2,
  revoked: 1,
  expired: 0,
};

/** True if this caller is an approver of a request. Approvers may approve, deny or revoke the request. */
export function mayDecideAbout(
  { requester, approvers, cluster }: AccessRecord,
  { identity, groupsIn }: Decider,
): boolean {
  const tags = identity.kind === 'tagged' ? identity.tags : [];
  const decider = { by: personOf(identity), groups: groupsIn(cluster), tags };
  return approvers !== null && mayDecide(approvers, requester, decider);
}

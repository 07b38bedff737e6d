/** The checks of access on request, moderated sessions and recorders of sessions. */
import { inFile, type Mutation } from './mutation.ts';

export const ACCESS: readonly Mutation[] = [
  ...inFile(
    'src/proxy/session/upgrade-recorder.ts',
    [
      'no recorder, no session',
      "if (mode === 'failClosed') {",
      "if (mode === 'failClosed' && recording.recorders.length === 0) {",
    ],
    [
      'WebSocket extensions agreed',
      ".some((value) => value.trim() !== '')",
      '.some((value) => value === "never")',
    ],
  ),
  ...inFile(
    'src/proxy/session/moderation.ts',
    ['the user as moderator', 'return !isOwner && users.includes(user);', 'return users.includes(user);'],
    ['moderators of every rule', 'return rules.every((rule)', 'return rules.some((rule)'],
    [
      'the last moderator',
      "if (this.#state === 'running' && !this.#isWatched)",
      "if (this.#state === 'over')",
    ],
  ),
  ...inFile(
    'src/proxy/gate/moderation.ts',
    ['requests without a recording', 'UNWATCHABLE.has(requestClass)', "requestClass === 'never'"],
    ['recordings of moderated sessions', "mode: 'failClosed'", 'mode: recording.mode'],
  ),
  ...inFile(
    'src/access/record.ts',
    [
      'signature',
      'if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;',
      '',
    ],
    ['uid in the signature', '`${uid.length}\\n${uid}\\n${text}`', 'text'],
    ['name of the object', 'parsed.success && parsed.data.id === name', 'parsed.success'],
    ['requester: node', 'requester.nodeId === nodeId &&', ''],
    ['requester: user id', 'requester.userId === userId &&', ''],
    ['requester: name', '&&\n    requester.name === name', ''],
    ['same person: node', 'left.nodeId === right.nodeId ||', ''],
    ['same person: login', '|| left.name.toLowerCase() === right.name.toLowerCase()', ''],
    ['same person: user id', "return left.userId !== '' && left.userId === right.userId;", 'return false;'],
  ),
  ...inFile(
    'src/access/rules.ts',
    ['deciders: not oneself', 'if (mayBeSamePerson(requester, decider.by)) return false;', ''],
    [
      'approvals of one person',
      'if (!valid.some(({ by }) => mayBeSamePerson(by, decision.by))) valid.push(decision);',
      'valid.push(decision);',
    ],
    ['number of approvals', '>= approvers.count', '>= 1'],
    ['namespaces', 'namespaces.length === 0 || (', 'namespaces.length !== -1 || ('],
    ['windows', 'windows.length === 0 ||', 'windows.length !== -1 ||'],
    ['expiry', '&& unixMs >= expiresMs', '&& unixMs >= Infinity'],
    ['time of a denial', '?? 0) + DENIED_MS', '?? 0) + Infinity'],
    ['requests after a revocation', "if (state === 'revoked') return nowMs < expiresMs;", ''],
  ),
  ...inFile(
    'src/access/request-store.ts',
    ['rollback', 'if (record.revision >= newest) return record;', 'if (newest >= 0) return record;'],
    ['new object', 'if (isRefused(record)) await this.#renew(uid, record);', ''],
    ['objects in deletion', 'metadata.deletionTimestamp !== undefined && !isRefused(record)', 'false'],
    ['removed refusals', 'if (isRefused(known.record)) setTimeout', 'if (RENEWAL_MS < 0) setTimeout'],
    ['version of a write', 'metadata: { resourceVersion: version }', 'metadata: {}'],
    ['confirmation by the API server', '< FRESH_MS) return;', '< 1e12) return;'],
    ['sessions of revoked access', "if (record.state !== 'granted') this.#endAll(id, record);", ''],
    ['sessions of removed access', 'this.#endAll(id, undefined);', ''],
    ['record after its evidence', 'await evidence();', 'void evidence();'],
  ),
  ...inFile(
    'src/access/requests.ts',
    ['own decisions', "if (isOwn && verdict !== 'revoked')", 'if (isOwn && verdict === undefined)'],
    ['open requests', 'if (!isOpen)', 'if (verdict === undefined)'],
    ['clock skew', 'record.createdMs > now + SKEW_MS', 'record.createdMs > Infinity'],
    ['pending requests of a person', '>= MAX_PENDING_PER_PERSON)', '>= 1e9)'],
    ['kept requests of a person', '>= MAX_KEPT_PER_PERSON)', '>= 1e9)'],
    [
      'access that expired before its use',
      "stateAt(record, this.#deps.unixMs()) !== 'granted') throw ended",
      "record.state !== 'granted') throw ended",
    ],
    ['access that expires in a session', 'setTimeout(expire, Math.min(', 'setTimeout(() => {}, Math.min('],
    ['access that is revoked in a session', 'this.#store.watch(id, end);', '() => {};'],
    ['revoked access', 'overlaps(accessOf(record), ask)', 'askKey(accessOf(record)) === askKey(ask)'],
    ['required reason', "if (rule.requireReason && reason === '')", "if (reason === 'never')"],
    ['maximum duration', 'if (durationMs > rule.maxDurationMs)', 'if (durationMs > Infinity)'],
    [
      'evidence of approvals',
      "if (verdict === 'approved' && !isRecorded)",
      "if (verdict === 'revoked' && !isRecorded)",
    ],
  ),
  ...inFile(
    'src/access/expiries.ts',
    ['expiry claimed by another gateway', 'return expiry.claimedBy === this.#gateway;', 'return true;'],
    ['claims of stopped gateways', 'now < expiry.untilMs', 'now < Infinity'],
    ['evidence of an expiry', 'if (isRecorded || unixMs()', 'if (!isRecorded || unixMs()'],
    ['expiry without a recorder', '|| unixMs() > record.expiresMs + EVIDENCE_MS', ''],
    ['expiry stored once', 'this.#recorded.has(id) ||', ''],
  ),
  ...inFile(
    'src/proxy/gate/elevation.ts',
    ['rules', 'if (!rules.some((rule) => covers(rule, ask))) return OWN;', ''],
    ['writes', 'isRead(info, requestClass) || !rules.some((rule) => rule.writes)', 'true'],
    ['reads by class', 'if (!READ_CLASSES.has(requestClass)) return false;', ''],
    ['every group', 'groups.every((group) => rule.groups', 'groups.some((group) => rule.groups'],
    ['unknown headers', 'checkImpersonation(name);', ''],
  ),
];

const ACCESS_TESTS = ['test/access/requests.test.ts', 'test/attack/access.test.ts'];
export const ACCESS_SUITES: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(ACCESS.map(({ file }) => [file, ACCESS_TESTS])),
  'src/proxy/session/moderation.ts': ['test/proxy/session/moderation.test.ts'],
  'src/proxy/gate/moderation.ts': ['test/proxy/gate/moderation.test.ts'],
};

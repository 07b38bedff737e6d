/** The checks of notifications: which steps are notified, signatures, the journal on disk, and retries. */
import { inFile, type Mutation } from './mutation.ts';

const FOLDER = 'src/tsrecorder/search/alerts';

export const NOTIFICATIONS: readonly Mutation[] = [
  ...inFile(
    `${FOLDER}/access-notice.ts`,
    ['type of the event', 'type: z.literal(ACCESS_EVENT_TYPE)', 'type: text'],
    ['id of the request', '.regex(/^[a-z0-9]{10}$/)', ''],
    ['length of a text', 'z.string().max(1024)', 'z.string()'],
    ['number of texts', 'z.array(text).max(100)', 'z.array(text)'],
    [
      'complete approval',
      "access.step === 'approved' && access.approvalsMissing === 0",
      'access.approvalsMissing < 0',
    ],
    ['notice of each step', 'access.request, access.step, by]', 'access.request, by]'],
    ['notice of each person', 'access.step, by].join', 'access.step].join'],
    ['notice of each request', '[stableID, access.request,', '[stableID,'],
  ),
  ...inFile(
    `${FOLDER}/webhook-request.ts`,
    ['id in the signature', 'update(`${id}.${timestamp}.${body}`)', 'update(`${timestamp}.${body}`)'],
    ['time in the signature', 'update(`${id}.${timestamp}.${body}`)', 'update(`${id}.${body}`)'],
    ['body in the signature', 'update(`${id}.${timestamp}.${body}`)', 'update(`${id}.${timestamp}`)'],
    ['signature of each key', '    .join(', '    .slice(0, 1)\n    .join('],
    ['own CA only', '...(ca === undefined ? {} : { ca })', 'ca: undefined'],
    ['refused message', 'status >= 200 && status < 300', 'status > 0'],
    ['maximum wait of a receiver', 'Math.min(wait, MAX_RETRY_AFTER)', 'wait'],
  ),
  ...inFile(
    `${FOLDER}/alert-journal.ts`,
    ['alert on disk before it is sent', 'await this.#append(fresh.map((alert) => ({ alert })));', ''],
    ['delivery on disk', 'await this.#append([{ settled: id, session }]);', ''],
    [
      'pending alerts of an earlier process',
      "else if ('alert' in line) this.#pending.set(line.alert.id, line.alert);",
      "else if ('alert' in line) return;",
    ],
    ['alerts once', 'filter(({ id }) => !this.#pending.has(id) && !this.#settled.has(id))', 'slice()'],
    ['text of removed recordings', 'this.#pending.set(id, without);', 'this.#pending.set(id, alert);'],
    ['copy of a damaged file', 'if (this.#damaged > 0) await keepDamaged(this.#path);', ''],
  ),
  ...inFile(
    `${FOLDER}/webhook-sender.ts`,
    ['retry', 'if (!isDelivered(answer)) {', 'if (!isDelivered(answer) && answer.status < 0) {'],
    ['delay of a retry', 'waiting.dueAt = now() + waiting.backoff.next();\n    // These', '// These'],
    ['wait that the receiver requests', 'retryAfterSeconds * 1000)', '0)'],
    ['maximum age', 'nowMs() - alert.firedAtMs > giveUpMs', 'nowMs() - alert.firedAtMs > Infinity'],
    ['pending alerts of a rule', 'if (this.#waiting.size <= MAX_WAITING)', 'if (this.#waiting.size <= 1e9)'],
    ['scope of the webhook', "if (access !== undefined) return isWithheld ? 'withheld' : undefined;", ''],
    [
      'delivery by another recorder',
      "else if (claimed === 'told') await",
      "else if (claimed === 'mine') await",
    ],
  ),
  ...inFile(
    `${FOLDER}/alerts.ts`,
    [
      'a full disk does not refuse events',
      'await this.#add(alerts).catch((error: unknown) =>',
      'await this.#add(alerts);\n    void [].map((error: unknown) =>',
    ],
    ['resumed deliveries', 'this.#take(journal.pending);', ''],
  ),
];

const TESTS = [
  'access-alerts',
  'alerts',
  'webhook-request',
  'alert-journal',
  'alert-waiting',
  'alert-claim',
  'alerts-shared',
].map((name) => `test/tsrecorder/search/alerts/${name}.test.ts`);
export const NOTIFICATION_SUITES: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  [...new Set(NOTIFICATIONS.map(({ file }) => file))].map((file) => [file, TESTS]),
);

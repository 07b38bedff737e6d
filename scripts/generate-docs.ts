/**
 * Generates the pages of errors, settings, metrics and demonstrated attacks from the code.
 *
 *   npm run docs:generate
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Registry } from 'prom-client';
import { STATIC_IDENTITY } from '../src/compose/static-identity-file.ts';
import { DEMO_SETTINGS } from '../src/config/demo.ts';
import { FORWARDER_SETTINGS } from '../src/config/forwarder.ts';
import { INGRESS_SETTINGS } from '../src/config/ingress.ts';
import { GATEWAY_SETTINGS } from '../src/config/gateway.ts';
import { NAMESERVER_SETTINGS } from '../src/config/nameserver.ts';
import { OPERATOR_SETTINGS } from '../src/config/operator.ts';
import { RECORDER_SETTINGS } from '../src/config/recorder.ts';
import { SOCKET_SETTING } from '../src/config/role-settings.ts';
import { flagName, type Setting, type SettingTable } from '../src/config/settings.ts';
import { byTopic, shownDefault } from '../src/config/topics.ts';
import { ERROR_TABLE, type ErrorCode, type ErrorEntry } from '../src/errors.ts';
import { createExceptionCounter } from '../src/observe/fatal-errors.ts';
import { createMetrics } from '../src/observe/metrics.ts';
import { createForwarderMetrics } from '../src/forwarder/metrics.ts';
import { createIngressMetrics } from '../src/ingress/metrics.ts';
import { createNameserverMetrics } from '../src/nameserver/metrics.ts';
import { createOperatorMetrics } from '../src/operator/operator-metrics.ts';
import { createSearchMetrics } from '../src/tsrecorder/search/search-metrics.ts';
import { createAlertMetrics } from '../src/tsrecorder/search/alerts/alert-metrics.ts';
import { createRecorderMetrics, type IntakeStatus } from '../src/tsrecorder/intake/recorder-metrics.ts';
import { ERROR_ADVICE } from '../src/cli/error-advice.ts';
import { DEMONSTRATIONS, NOTICED_LINES, type Demonstration } from '../test/mutants/demonstrations.ts';
import { spoolStatus } from '../src/tsrecorder/intake/spool-status.ts';

const IDLE: IntakeStatus = { ...spoolStatus([], 0, 0), waitingBytes: 0, unpublishedEntries: 0 };

const NOTICE = '<!-- Made by `npm run docs:generate`. Do not edit. -->\n';

const ROLES: readonly (readonly [name: string, table: SettingTable])[] = [
  ['gateway', GATEWAY_SETTINGS],
  ['recorder', RECORDER_SETTINGS],
  ['operator', OPERATOR_SETTINGS],
  ['nameserver', NAMESERVER_SETTINGS],
  ['forwarder', FORWARDER_SETTINGS],
  ['ingress', INGRESS_SETTINGS],
  ['demo', DEMO_SETTINGS],
];

/** Returns the content of each generated page by its path in the repository. */
export function generateDocs(): ReadonlyMap<string, string> {
  return new Map([
    ['docs/errors.md', errorsPage()],
    ['docs/config.md', settingsPage()],
    ['docs/metrics.md', metricsPage()],
    ['test/mutants/demonstrations.md', demonstrationsPage()],
  ]);
}

/**
 * Returns the page with the attacks of the independent review: for each attack, the lines of the defence, and the
 * tests that fail without these lines.
 */
function demonstrationsPage(): string {
  const attacks = DEMONSTRATIONS.map(
    (demonstration) =>
      `${demonstration.number}. **${upperFirst(demonstration.hole)}.** ` +
      `${demonstration.rule}\n${testsOf(demonstration)}`,
  );
  const lines = NOTICED_LINES.map(
    (line, index) =>
      `${index + 1}. **${upperFirst(line.does)}** (\`${line.file}\`).\n${testsOf({ checks: [line] })}`,
  );
  return [
    '# Demonstrated attacks\n',
    NOTICE,
    'An independent review demonstrated these attacks with real sockets and a real browser. Each entry contains ' +
      'the attack, the rule\n' +
      'that now prevents attacks of this kind, and the tests of the rule. `npm run test:demonstrations` removes one ' +
      'line of a fix at a\n' +
      'time and requires that a test fails. Tests in `real` and `faults` need real peers and are not part of that ' +
      'run. Paths are below `test/`.\n',
    ...attacks,
    '\n## Lines without a test\n',
    'The review removed 31 lines by hand. For seven of these lines, no test failed. Now each of the seven lines has ' +
      'a test\n' +
      '(`npm run test:demonstrations -- --only lines`).\n',
    ...lines,
  ]
    .join('\n')
    .concat('\n');
}

function upperFirst(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function testsOf({ checks, also = [] }: Pick<Demonstration, 'checks' | 'also'>): string {
  const named = checks.map(({ testFile, test }) => [testFile, test] as const);
  const byFile = Map.groupBy([...named, ...also], ([file]) => file);
  return [...byFile]
    .map(([file, tests]) => {
      const names = [...new Set(tests.map(([, test]) => test))].filter((name) => name !== '');
      const shown = names.map((name) => `“${name.replaceAll(' > ', ' … ')}”`).join(', ');
      return `    - \`${file.replace(/^test\//, '')}\`${shown === '' ? '' : `: ${shown}`}`;
    })
    .join('\n');
}

function errorsPage(): string {
  const entries = Object.entries<ErrorEntry>(ERROR_TABLE).filter((entry): entry is [ErrorCode, ErrorEntry] =>
    Object.hasOwn(ERROR_ADVICE, entry[0]),
  );
  return [
    '# Errors\n',
    NOTICE,
    'Every error has a code. The gateway returns errors as a Kubernetes `Status`: `code` is the HTTP status, ' +
      '`reason` the Kubernetes\n' +
      'reason and `message` the sentence below with details. The entry of `details.causes` with the reason ' +
      '`TailcastCode` contains the\n' +
      'code. Logs and metrics (label `code`) use the same code.\n',
    list(
      entries.map(
        ([code, { status, reason, message }]) =>
          `\`${code}\` (${status} ${reason}): ${sentence(message)} ${ERROR_ADVICE[code]}`,
      ),
    ),
  ].join('\n');
}

/** Descriptions of settings that several roles have. A description is the same for all of these roles. */
const COMMON: Readonly<Record<string, string>> = {
  listen: 'address to accept connections on',
  proxyProtocol:
    'gateway: with require, every connection must start with a PROXY header, as tailscale serve sends it; recorder: ' +
    'additional loopback address for viewers, where connections must start with this header',
  kubeconfig: 'kubeconfig of the API server; default: account of the pod; the demo uses its own cluster',
  context: 'context of the kubeconfig; default: its current-context',
  socket: SOCKET_SETTING.description,
  opsListen: 'address of /livez, /readyz and /metrics, or off',
  logLevel: 'least important level that is logged',
  drainSeconds: 'maximum time for running sessions and uploads after a stop signal',
};

function settingsPage(): string {
  const sections = ROLES.map(([role, settings]) => {
    const own = Object.fromEntries(Object.entries(settings).filter(([key]) => !Object.hasOwn(COMMON, key)));
    const shared = Object.keys(settings).filter((key) => Object.hasOwn(COMMON, key));
    return [
      `## tailcast ${role}\n`,
      `Also: ${shared.map((key) => `\`${flagName(key)}\``).join(', ')} ([shared settings](#shared-settings)).\n`,
      ...byTopic(own).flatMap(({ topic, entries }) => [
        `### ${topic} (${role})\n`,
        list(entries.map(([key, setting]) => settingItem(key, setting))),
      ]),
      ...(role === 'gateway' ? [staticIdentityFile()] : []),
    ].join('\n');
  });
  return [
    '# Settings\n',
    NOTICE,
    'Each setting is a flag (`--proxy-protocol`), a variable (`TAILCAST_PROXY_PROTOCOL`) and a key ' +
      '(`proxyProtocol`) of the YAML file\n' +
      'that `--config` or `TAILCAST_CONFIG` names. The flag overrides the variable, and the variable overrides ' +
      'the file. Separate\n' +
      'list items by commas, and write sizes as `8MiB`. The operator starts `nameserver`, `forwarder` and ' +
      '`ingress`. Change a setting\n' +
      'under *Advanced* only after a measurement.\n',
    '## Shared settings\n',
    list(Object.entries(COMMON).map(([key, description]) => sharedItem(key, description))),
    ...sections,
  ].join('\n');
}

/** @throws Error if no role has the setting */
function sharedItem(key: string, description: string): string {
  const found = ROLES.flatMap(([role, settings]) => {
    const setting = settings[key];
    return setting === undefined ? [] : [{ role, setting, shown: shownDefault(key, setting) }];
  });
  const [first] = found;
  if (first === undefined) throw new Error(`no role has the setting ${key}`);
  const byDefault = Map.groupBy(found, ({ shown }) => shown ?? '');
  const defaults =
    byDefault.size === 1
      ? first.shown && `\`${first.shown}\``
      : [...byDefault]
          .filter(([shown]) => shown !== '')
          .map(([shown, roles]) => `\`${shown}\` (${roles.map(({ role }) => role).join(', ')})`)
          .join(', ');
  const words = found.flatMap(({ setting }) => setting.placeholder?.slice(1, -1).split('|') ?? []);
  const placeholder = words.length === 0 ? undefined : `<${[...new Set(words)].join('|')}>`;
  return item(key, { ...first.setting, placeholder }, description, defaults);
}

function settingItem(key: string, setting: Setting<unknown>): string {
  const shown = shownDefault(key, setting);
  return item(key, setting, setting.description, shown && `\`${shown}\``);
}

function item(
  key: string,
  { placeholder }: Setting<unknown>,
  description: string,
  standard: string | undefined,
): string {
  const flag = `\`${flagName(key)}${placeholder === undefined ? '' : ` ${placeholder}`}\``;
  return `${flag}: ${sentence(description)}${standard === undefined ? '' : ` Default ${standard}.`}`;
}

/** Returns the documentation of the file that `--static-identity` names. */
function staticIdentityFile(): string {
  const rows = Object.entries(STATIC_IDENTITY.shape).map(([key, field]) => {
    const need = field.safeParse(undefined).success ? '' : ' (required)';
    return `\`${key}\`${need}: ${sentence(field.description ?? '')}`;
  });
  return [
    '### The file of `--static-identity`\n',
    'A JSON file with one identity, which all callers get. ' +
      'The gateway then accepts only connections from this machine.\n',
    list(rows),
  ].join('\n');
}

function metricsPage(): string {
  const recorder = new Registry();
  createRecorderMetrics(recorder, () => IDLE);
  createSearchMetrics(recorder);
  createAlertMetrics(recorder, () => ({ waiting: 0, oldestSeconds: 0, slowRules: 0 }));
  const { registry: operator } = createOperatorMetrics();
  const nameserver = new Registry();
  createNameserverMetrics(nameserver);
  const forwarder = new Registry();
  createForwarderMetrics(forwarder, () => 0);
  const ingress = new Registry();
  createIngressMetrics(ingress, () => 0);
  const gateway = createMetrics().registry;
  const every = new Registry();
  createExceptionCounter(every);
  return [
    '# Metrics\n',
    NOTICE,
    '`/metrics` of each `--ops-listen` returns these metrics and the usual metrics of the process. Labels never ' +
      'contain values that a\n' +
      'client chose.\n',
    '## All roles\n',
    metricsList(every),
    '## tailcast gateway\n',
    metricsList(gateway),
    '## tailcast recorder\n',
    metricsList(recorder),
    '## tailcast operator\n',
    metricsList(operator),
    '## tailcast nameserver\n',
    metricsList(nameserver),
    '## tailcast forwarder\n',
    metricsList(forwarder),
    '## tailcast ingress\n',
    metricsList(ingress),
  ].join('\n');
}

function metricsList(registry: Registry): string {
  return list(
    registry.getMetricsAsArray().map((metric) => {
      const labels: unknown = 'labelNames' in metric ? metric.labelNames : [];
      const names = Array.isArray(labels) ? labels.filter((name) => name !== 'le') : [];
      const labelled = names.length === 0 ? '' : ` by ${names.map((name) => `\`${name}\``).join(', ')}`;
      return `\`${metric.name}\` (${String(metric.type)}${labelled}): ${metric.help}`;
    }),
  );
}

function list(items: readonly string[]): string {
  return items.map((item) => `- ${item}\n`).join('');
}

/**
 * Returns the text as a sentence with a full stop. The first letter becomes a capital, unless the text starts with the
 * name of a program or with `value:`.
 */
function sentence(text: string): string {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return /^(?:tailscaled|tailcast|kubectl|kubeconfig|[\w-]+:) /.test(ended) ? ended : upperFirst(ended);
}

if (import.meta.main) {
  const root = fileURLToPath(new URL('..', import.meta.url));
  for (const [path, content] of generateDocs()) {
    writeFileSync(root + path, content);
    process.stdout.write(`${path}\n`);
  }
}

/**
 * Writes the pages of `docs/` that are made from the code: what can go wrong, and what can be set.
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
import { environmentName, flagName, type SettingTable } from '../src/config/settings.ts';
import { ERROR_TABLE, type ErrorCode, type ErrorEntry } from '../src/errors.ts';
import { createExceptionCounter } from '../src/observe/last-resort.ts';
import { createMetrics } from '../src/observe/metrics.ts';
import { createForwarderMetrics } from '../src/forwarder/metrics.ts';
import { createIngressMetrics } from '../src/ingress/metrics.ts';
import { createNameserverMetrics } from '../src/nameserver/metrics.ts';
import { createOperatorMetrics } from '../src/operator/operator-metrics.ts';
import { createSearchMetrics } from '../src/tsrecorder/search/search-metrics.ts';
import { createAlertMetrics } from '../src/tsrecorder/search/alerts/alert-metrics.ts';
import { createRecorderMetrics, type IntakeStatus } from '../src/tsrecorder/intake/recorder-metrics.ts';
import { ERROR_ADVICE } from '../src/cli/error-advice.ts';
import { SETTING_NEEDS } from './setting-needs.ts';
import { DEMONSTRATIONS, NOTICED_LINES, type Demonstration } from '../test/mutants/demonstrations.ts';

const IDLE: IntakeStatus = {
  sessions: { open: 0, cut: 0, storing: 0, unreadable: 0 },
  spoolBytes: 0,
  waitingBytes: 0,
  oldestStoringSeconds: 0,
  unpublishedEntries: 0,
};

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

/** Path below the repository → content. */
export function generateDocs(): ReadonlyMap<string, string> {
  return new Map([
    ['docs/errors.md', errorsPage()],
    ['docs/config.md', settingsPage()],
    ['docs/metrics.md', metricsPage()],
    ['test/mutants/demonstrations.md', demonstrationsPage()],
  ]);
}

/** The attacks of the independent review and the lines that it removed, with the tests of each. */
function demonstrationsPage(): string {
  const attacks = DEMONSTRATIONS.map(
    (demonstration) =>
      `${demonstration.number}. **${upperFirst(demonstration.hole)}.** ${demonstration.rule}\n${testsOf(demonstration)}`,
  );
  const lines = NOTICED_LINES.map(
    (line, index) =>
      `${index + 1}. **${upperFirst(line.does)}** (\`${line.file}\`).\n${testsOf({ checks: [line] })}`,
  );
  return [
    '# Demonstrated attacks\n',
    NOTICE,
    'An independent review demonstrated these attacks with real sockets and a real browser. Each one has a rule that prevents its\n' +
      'kind, and tests. `npm run test:demonstrations` removes one line of a fix at a time and requires that the test fails. Tests in\n' +
      '`real` and `faults` need real peers and are not part of that run. Paths are below `test/`.\n',
    ...attacks,
    '\n## Lines without a test\n',
    'The review removed 31 lines by hand; no test failed for seven of them. Each has a test now\n' +
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
    'Everything that can go wrong has a code. A client of the gateway gets it in a Kubernetes `Status`: `code` is the HTTP\n' +
      'status, `reason` the Kubernetes reason, `message` the sentence below with details, and `details.causes` has one entry\n' +
      'with reason `TailcastCode` whose message is the code. Logs and metrics (`code` label) name the same code.\n',
    table(
      ['code', 'HTTP', 'reason', 'means', 'what to do'],
      entries.map(([code, { status, reason, message }]) => [
        `\`${code}\``,
        String(status),
        reason,
        message,
        ERROR_ADVICE[code],
      ]),
    ),
  ].join('\n');
}

function settingsPage(): string {
  const sections = ROLES.map(([role, settings]) => {
    const shown = Object.entries(settings);
    return [
      `## tailcast ${role}\n`,
      table(
        ['flag', 'variable', 'default', 'means', 'set by'],
        shown.map(([key, { description, fallback, placeholder }]) => [
          `\`${flagName(key)}${placeholder === undefined ? '' : ` ${placeholder}`}\``,
          `\`${environmentName(key)}\``,
          shownDefault(fallback),
          description,
          SETTING_NEEDS[role]?.[key] ?? '–',
        ]),
      ),
      ...(role === 'gateway' ? [staticIdentityFile()] : []),
    ].join('\n');
  });
  return [
    '# Settings\n',
    NOTICE,
    'Every setting has one name in three places: a flag (`--proxy-protocol`), a variable (`TAILCAST_PROXY_PROTOCOL`) and a\n' +
      'key of the YAML file that `--config` or `TAILCAST_CONFIG` names (`proxyProtocol`). The flag wins over the variable, the\n' +
      'variable over the file. An unknown key or variable is an error, and all mistakes are told at once. Lists are comma\n' +
      'separated; sizes are written `8MiB`. Of most settings the default is right: the last column says whom one is for.\n',
    ...sections,
  ].join('\n');
}

/** The one setting that names a file of ours. */
function staticIdentityFile(): string {
  const rows = Object.entries(STATIC_IDENTITY.shape).map(([key, field]) => [
    `\`${key}\``,
    field.safeParse(undefined).success ? 'no' : 'yes',
    field.description ?? '',
  ]);
  return [
    '### The file of `--static-identity`\n',
    'JSON. It is who everybody is that can connect, so the gateway then listens on this machine alone.\n',
    table(['key', 'needed', 'means'], rows),
  ].join('\n');
}

function metricsPage(): string {
  const recorder = new Registry();
  createRecorderMetrics(recorder, () => IDLE);
  createSearchMetrics(recorder);
  createAlertMetrics(recorder, () => ({ waiting: 0, oldestSeconds: 0 }));
  const { registry: operator } = createOperatorMetrics();
  const nameserver = new Registry();
  createNameserverMetrics(nameserver);
  const forwarder = new Registry();
  createForwarderMetrics(forwarder, () => 0);
  const ingress = new Registry();
  createIngressMetrics(ingress, () => 0);
  const gateway = createMetrics().registry;
  for (const registry of [recorder, operator, nameserver, forwarder, ingress, gateway])
    createExceptionCounter(registry);
  return [
    '# Metrics\n',
    NOTICE,
    'What `/metrics` of the ops listeners has, besides the usual metrics of the process. Labels never carry anything that a\n' +
      'client chose.\n',
    '## tailcast gateway\n',
    metricsTable(gateway),
    '## tailcast recorder\n',
    metricsTable(recorder),
    '## tailcast operator\n',
    metricsTable(operator),
    '## tailcast nameserver\n',
    metricsTable(nameserver),
    '## tailcast forwarder\n',
    metricsTable(forwarder),
    '## tailcast ingress\n',
    metricsTable(ingress),
  ].join('\n');
}

function metricsTable(registry: Registry): string {
  const rows = registry.getMetricsAsArray().map((metric) => {
    const labels: unknown = 'labelNames' in metric ? metric.labelNames : [];
    const names = Array.isArray(labels) ? labels.filter((name) => name !== 'le') : [];
    return [`\`${metric.name}\``, String(metric.type), names.join(', '), metric.help];
  });
  return table(['metric', 'type', 'labels', 'means'], rows);
}

function shownDefault(fallback: unknown): string {
  if (fallback === undefined || (Array.isArray(fallback) && fallback.length === 0)) return '–';
  if (Array.isArray(fallback)) return `\`${fallback.join(',')}\``;
  if (typeof fallback === 'object' && fallback !== null && 'host' in fallback && 'port' in fallback) {
    return `\`${String(fallback.host)}:${String(fallback.port)}\``;
  }
  return `\`${typeof fallback === 'string' ? fallback : JSON.stringify(fallback)}\``;
}

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |\n`;
  return line(header) + line(header.map(() => '---')) + rows.map(line).join('');
}

if (import.meta.main) {
  const root = fileURLToPath(new URL('..', import.meta.url));
  for (const [path, content] of generateDocs()) {
    writeFileSync(root + path, content);
    process.stdout.write(`${path}\n`);
  }
}

/** Compares the Kubernetes grants of a tailnet policy file with the features of tailcast. Pure. */
import { errorText, TailcastError } from '../../errors.ts';
import {
  KUBERNETES_CAPABILITY,
  LEGACY_KUBERNETES_CAPABILITY,
  parseKubernetesRules,
} from '../../tailnet/capabilities.ts';
import type { MigrationFinding, MigrationItem } from './verdict.ts';

const MAX_POLICY_CHARACTERS = 4 * 1024 ** 2;

/**
 * Fields of a rule that tailcast and the reference (Tailscale's operator) read. They are in lower case, because the
 * reference, a Go program, ignores the case of field names.
 */
const RULE_FIELDS: ReadonlySet<string> = new Set([
  'impersonate',
  'recorder',
  'recorderaddrs',
  'enforcerecorder',
  'enableevents',
]);

/**
 * Returns one item for each grant with a Kubernetes capability.
 *
 * @param text a policy file: JSON with comments and trailing commas
 * @throws TailcastError `CONFIG_INVALID` if the text is not a policy file
 */
export function policyFindings(text: string): readonly MigrationItem[] {
  const policy = parsePolicy(text);
  const grants: unknown = field(policy, 'grants') ?? [];
  if (!Array.isArray(grants)) throw invalid('grants is not a list');
  return grants.flatMap((grant: unknown, index) => {
    const app = field(grant, 'app');
    if (typeof app !== 'object' || app === null) return [];
    const findings = [KUBERNETES_CAPABILITY, LEGACY_KUBERNETES_CAPABILITY].flatMap((name) => {
      const rules = field(app, name);
      return rules === undefined ? [] : [ruleFindings(name, rules)];
    });
    return findings.length === 0
      ? []
      : [{ kind: 'grant', name: describe(grant, index), findings: findings.flat() }];
  });
}

function ruleFindings(name: string, rules: unknown): readonly MigrationFinding[] {
  if (!Array.isArray(rules))
    return [{ kind: 'unsupported', field: name, text: 'the value is not a list of rules' }];
  try {
    parseKubernetesRules(new Map([[name, rules]]));
  } catch (error) {
    if (!(error instanceof TailcastError)) throw error;
    return [
      {
        kind: 'unsupported',
        field: name,
        text: `tailcast refuses callers with this rule: ${errorText(error)}: fix the rule`,
      },
    ];
  }
  return rules.flatMap((rule: unknown, index) => findingsOfRule(rule, `${name}[${index}]`, name));
}

function findingsOfRule(rule: unknown, at: string, name: string): readonly MigrationFinding[] {
  const findings: MigrationFinding[] = [];
  const lower = new Map(
    typeof rule === 'object' && rule !== null
      ? Object.entries(rule).map(([key, value]) => [key.toLowerCase(), value])
      : [],
  );
  for (const key of lower.keys()) {
    if (!RULE_FIELDS.has(key)) {
      findings.push({
        kind: 'unknown',
        field: `${at}.${key}`,
        text: 'neither product reads the field: check its spelling',
      });
    }
  }
  const recorders: unknown = lower.get('recorder');
  const isRecorded = Array.isArray(recorders) && recorders.length > 0;
  if (lower.has('recorderaddrs'))
    findings.push({
      kind: 'different',
      field: `${at}.recorderAddrs`,
      text: 'the control server writes this field from recorder: remove it from the policy',
    });
  if (lower.get('enforcerecorder') === true && !isRecorded)
    findings.push({
      kind: 'different',
      field: `${at}.enforceRecorder`,
      text:
        'the rule names no recorder: the reference refuses each request of the caller, tailcast only exec ' +
        'and attach',
    });
  if (name === LEGACY_KUBERNETES_CAPABILITY && isRecorded)
    findings.push({
      kind: 'different',
      field: `${at}.recorder`,
      text: `the older name ${name} has no effect on recording in both products: use ${KUBERNETES_CAPABILITY}`,
    });
  return findings;
}

function describe(grant: unknown, index: number): string {
  const list = (name: string): string => {
    const value = field(grant, name);
    return Array.isArray(value) ? value.filter((one) => typeof one === 'string').join(', ') : '';
  };
  return `grants[${index}] ${list('src')} → ${list('dst')}`;
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? new Map(Object.entries(value)).get(name)
    : undefined;
}

function parsePolicy(text: string): unknown {
  if (text.length > MAX_POLICY_CHARACTERS)
    throw invalid(`the file has more than ${MAX_POLICY_CHARACTERS} characters`);
  try {
    return JSON.parse(plainJson(text));
  } catch (error) {
    throw new TailcastError('CONFIG_INVALID', `policy: ${errorText(error)}`, { cause: error });
  }
}

/** Converts HuJSON to JSON by removing comments and trailing commas. Strings stay unchanged. */
export function plainJson(text: string): string {
  const uncommented = text.replaceAll(/"(?:[^"\\]|\\.)*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//g, (token) =>
    token.startsWith('"') ? token : ' ',
  );
  return uncommented.replaceAll(/"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])/g, (token) => (token === ',' ? '' : token));
}

function invalid(detail: string): TailcastError {
  return new TailcastError('CONFIG_INVALID', `policy: ${detail}`);
}

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runProgram } from '../../src/cli/program.ts';
import { FORWARDER_SETTINGS } from '../../src/config/forwarder.ts';
import { INGRESS_SETTINGS } from '../../src/config/ingress.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { NAMESERVER_SETTINGS } from '../../src/config/nameserver.ts';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { flagName } from '../../src/config/settings.ts';
import { ERROR_TABLE } from '../../src/errors.ts';
import { parseKubernetesRules } from '../../src/tailnet/capabilities.ts';
import { generateDocs } from '../../scripts/generate-docs.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const PAGES = [
  'README.md',
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

const WITH_SUBCOMMANDS: ReadonlySet<string> = new Set(['doctor', 'alerts', 'index', 'policy', 'migrate']);

const TOOLS = [
  'ls',
  'play',
  'export',
  'search',
  'verify',
  'retention',
  'coverage',
  'kubeconfig',
  'demo',
  'doctor gateway',
  'alerts test',
  'policy explain',
  'policy rbac',
  'index rebuild',
  'migrate check',
];

const read = (path: string): string => readFileSync(join(root, path), 'utf8');

/** Code blocks of one language. */
function blocks(page: string, language: string): readonly string[] {
  return [...read(page).matchAll(new RegExp(`^ *\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\``, 'gm'))].map(
    (match) => match[1] ?? '',
  );
}

/** Lines of shell blocks that start with one of the words. */
function commands(page: string, ...words: readonly string[]): readonly string[] {
  return blocks(page, 'sh')
    .flatMap((block) => block.replaceAll(/\\\n\s*/g, ' ').split('\n'))
    .map((line) => line.replace(/\s+#.*$/, '').trim())
    .filter((line) => words.some((word) => line.startsWith(`${word} `)));
}

/** Returns the help of a command; undefined for an unknown command. */
async function help(...path: readonly string[]): Promise<string | undefined> {
  const stdout = new PassThrough();
  const context = {
    stdout,
    stderr: new PassThrough(),
    environment: new Map(),
    signal: new AbortController().signal,
  };
  const code = await runProgram([...path, '--help'], context);
  stdout.end();
  const text = (await stdout.toArray()).join('');
  return code === 0 && text.startsWith(`Usage: tailcast ${path.join(' ')}`) ? text : undefined;
}

describe.each(PAGES)('%s', (page) => {
  it('links to what exists', () => {
    const targets = [...read(page).matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)].map((match) => match[1] ?? '');
    const missing = targets.filter((target) => {
      if (/^https?:/.test(target)) return false;
      const path = join(root, dirname(page), target);
      return !existsSync(path) && !existsSync(`${path}.md`);
    });
    expect(missing).toEqual([]);
  });

  it('names paths that exist', () => {
    const paths = [...read(page).matchAll(/`((?:deploy|test|scripts|src|docs)\/[\w./-]+)`/g)].map(
      (match) => match[1] ?? '',
    );
    expect(
      paths.filter((path) => ![path, `${path}.ts`].some((name) => existsSync(join(root, name)))),
    ).toEqual([]);
  });

  it('runs scripts that exist', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const named = [...read(page).matchAll(/npm run ([\w:]+)/g)].map((match) => match[1] ?? '');
    expect(named.filter((name) => scripts[name] === undefined)).toEqual([]);
  });

  it('uses commands and flags of tailcast that exist', async () => {
    for (const line of commands(page, 'tailcast', 'npx tailcast')) {
      const words = line.replace(/^(npx )?tailcast /, '').split(/\s+/);
      const path = words.slice(0, WITH_SUBCOMMANDS.has(words[0] ?? '') ? 2 : 1);
      const text = await help(...path);
      expect(text, line).toBeDefined();
      for (const flag of words.filter((word) => word.startsWith('--')))
        expect(text, line).toContain(`${flag.split('=')[0]}`);
    }
  });

  it('names codes that exist', () => {
    const codes = [...read(page).matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)].map((match) => match[1] ?? '');
    const ours = codes.filter((code) => !/^(TAILCAST|TS|TSRECORDER|AWS|NODE|CAP|RELEASE)_/.test(code));
    expect(ours.filter((code) => !Object.hasOwn(ERROR_TABLE, code))).toEqual([]);
  });

  it('names flags that exist', async () => {
    const known = new Set(
      [
        GATEWAY_SETTINGS,
        RECORDER_SETTINGS,
        OPERATOR_SETTINGS,
        NAMESERVER_SETTINGS,
        FORWARDER_SETTINGS,
        INGRESS_SETTINGS,
      ].flatMap((table) => Object.keys(table).map(flagName)),
    );
    // options of other programs and of npm scripts
    const others = new Set([
      '--config',
      '--help',
      '--with-lock',
      '--as',
      '--as-group',
      '--as-uid',
      '--set',
      '--proxy-protocol',
      '--update-base',
    ]);
    const helpTexts = await Promise.all(TOOLS.map((path) => help(...path.split(' '))));
    for (const [flag] of helpTexts.join('\n').matchAll(/--[a-z][a-z-]+/g)) known.add(flag);
    const named = [...read(page).matchAll(/`(--[a-z][a-z-]+)/g)].map((match) => match[1] ?? '');
    expect(named.filter((flag) => !known.has(flag) && !others.has(flag))).toEqual([]);
  });
});

describe('docs/operate.md', () => {
  it('names metrics that exist', () => {
    const mentioned = [...read('docs/operate.md').matchAll(/\btailcast_\w+/g)].map(([name]) =>
      name.replace(/_bucket$/, ''),
    );
    expect(mentioned.length).toBeGreaterThan(5);
    const page = generateDocs().get('docs/metrics.md');
    for (const name of mentioned) expect(page).toContain(`- \`${name}\` (`);
  });
});

describe('docs/identity.md', () => {
  it('has policies that the gateway understands', () => {
    const texts = blocks('docs/identity.md', 'json');
    expect(texts.length).toBeGreaterThan(0);
    let rules = 0;
    for (const text of texts) {
      const { grants = [] } = JSON.parse(`{${text}}`) as { grants?: { app?: Record<string, unknown[]> }[] };
      for (const { app } of grants) {
        if (app === undefined) continue;
        rules += parseKubernetesRules(new Map(Object.entries(app))).recording.length;
      }
    }
    expect(rules).toBe(4);
  });
});

describe('the chart', () => {
  it('has the examples that docs/install.md names, and no others', () => {
    const named = [...read('docs/install.md').matchAll(/^- `([\w-]+\.yaml)`/gm)].map(
      (match) => match[1] ?? '',
    );
    expect(named.toSorted()).toEqual(readdirSync(join(root, 'deploy/chart/tailcast/examples')).toSorted());
  });

  it('has the values that pages name', () => {
    const values = parse(read('deploy/chart/tailcast/values.yaml')) as Record<string, unknown>;
    // omits a page that names `tailscale.acceptRoutes`, which is a field of ProxyClass and not a value of the chart
    const pages = PAGES.filter((page) => page !== 'docs/operator-network.md')
      .map(read)
      .join('\n');
    const named = [
      ...pages.matchAll(/(?:--set |[`,])((?:gateway|recorder|tailscale)\.(?!com|yaml)[\w.]+)/g),
    ].map((match) => match[1] ?? '');
    expect(named.length).toBeGreaterThan(4);
    for (const path of named) {
      const found = path
        .split('.')
        .reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], values);
      expect(found, path).toBeDefined();
    }
  });
});

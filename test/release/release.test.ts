import { mkdirSync, mkdtempSync, readFileSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { readBaseLock } from '../../scripts/release/base-packages.ts';
import { imageSettings, readDockerfile } from '../../scripts/release/dockerfile.ts';
import { krewManifest } from '../../scripts/release/krew.ts';
import { describedProgram, manPages } from '../../scripts/release/man-pages.ts';
import { changelogSection } from '../../scripts/release/papers.ts';
import { ROOT, readManifest, readProject } from '../../scripts/release/project.ts';
import { differences, sha256, tarGz } from '../../scripts/release/tree.ts';
import { IMAGE } from '../../src/version.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { readSettings } from '../../src/config/settings.ts';
import { ERROR_TABLE } from '../../src/errors.ts';

const manifest = readManifest();
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
type Values = Readonly<Record<string, Readonly<Record<string, unknown>>>>;
/** The fields of Argo CD's Application and of Flux's HelmRelease that contain the values of a chart. */
interface Example {
  readonly spec: {
    readonly values?: Values;
    readonly source?: { readonly helm?: { readonly valuesObject?: Values } };
  };
}
const TABLES = { gateway: GATEWAY_SETTINGS, recorder: RECORDER_SETTINGS } as const;

describe('package.json is the one place', () => {
  it('for the version: the lock file, the chart and the kustomize bases say the same', () => {
    const lock = parse(read('package-lock.json')) as { name: string; version: string };
    expect([lock.name, lock.version]).toEqual([manifest.name, manifest.version]);
    const chart = parse(read('deploy/chart/tailcast/Chart.yaml')) as Record<string, unknown>;
    expect([chart['version'], chart['appVersion']]).toEqual([manifest.version, manifest.version]);
    const bases = readdirSync(join(ROOT, 'deploy/kustomize'));
    expect(bases.length).toBeGreaterThan(3);
    for (const base of bases) {
      const versions = read(`deploy/kustomize/${base}/resources.yaml`).matchAll(
        /kubernetes\.io\/version: "(.*)"/g,
      );
      expect(new Set([...versions].map(([, version]) => version)), base).toEqual(new Set([manifest.version]));
    }
  });

  it('for the image: chart, bases and operator name it', () => {
    const values = parse(read('deploy/chart/tailcast/values.yaml')) as { image: { repository: string } };
    expect(values.image.repository).toBe(manifest.publishing.image);
    expect(IMAGE).toBe(`${manifest.publishing.image}:v${manifest.version}`);
    expect(read('deploy/kustomize/recorder/resources.yaml')).toContain(`image: ${IMAGE}\n`);
  });

  it('names nothing that a stranger could claim', () => {
    for (const place of [
      manifest.publishing.image.split('/', 1)[0],
      new URL(manifest.publishing.releases).host,
    ])
      expect(place).toMatch(/\.example$/);
    expect(manifest.name).toMatch(/^@/);
  });

  it('has a section in CHANGELOG.md, and a release without one is refused', () => {
    expect(changelogSection(manifest.version)).toMatch(new RegExp(`^## ${manifest.version}`));
    expect(() => changelogSection('99.0.0')).toThrow(/no section "## 99\.0\.0"/);
  });
});

describe('what the image is made of', () => {
  it('is pinned for every architecture, with the Node of the lock file', () => {
    const lock = z
      .object({ packages: z.looseObject({ 'node_modules/node': z.object({ version: z.string() }) }) })
      .parse(JSON.parse(read('package-lock.json')));
    const base = readBaseLock();
    for (const architecture of ['amd64', 'arm64'] as const) {
      expect(base[architecture].node.version).toBe(lock.packages['node_modules/node'].version);
      expect(Object.keys(base[architecture].debian)).toContain('libc6');
      for (const { sha256: digest } of Object.values(base[architecture].debian))
        expect(digest).toMatch(/^[0-9a-f]{64}$/);
    }
  });

  it('takes from the Dockerfile how it is started', () => {
    const settings = imageSettings(readDockerfile());
    expect(settings).toMatchObject({
      User: '65532:65532',
      Entrypoint: ['node', '/app/scripts/tailcast.mjs'],
      Cmd: ['--help'],
      WorkingDir: '/app',
    });
    expect(settings.Env).toEqual(expect.arrayContaining(['NODE_ENV=production', 'XDG_STATE_HOME=/var/lib']));
    expect(settings.Labels['org.opencontainers.image.title']).toBe('tailcast');
    expect(settings.Healthcheck).toMatchObject({
      Interval: 30e9,
      Timeout: 5e9,
      StartPeriod: 20e9,
      Retries: 3,
    });
  });
});

describe('archives', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tailcast-release-'));

  it('are the same whenever they are made, and in whatever order files came', () => {
    const digests = [
      ['a', 'b'],
      ['b', 'a'],
    ].map((names, index) => {
      const tree = join(folder, `tree-${index}`);
      mkdirSync(tree);
      for (const name of names) {
        writeFileSync(join(tree, name), name);
        utimesSync(join(tree, name), index + 1, index + 1);
      }
      return sha256(tarGz(tree, join(folder, `${index}.tar`), 1_700_000_000));
    });
    expect(digests[0]).toBe(digests[1]);
    expect(differences(join(folder, 'tree-0'), join(folder, 'tree-1'))).toEqual([]);
    writeFileSync(join(folder, 'tree-1', 'a'), 'changed');
    writeFileSync(join(folder, 'tree-1', 'c'), '');
    expect(differences(join(folder, 'tree-0'), join(folder, 'tree-1'))).toEqual([
      'a: differs',
      'c: only in the second',
    ]);
  });

  it('are named in krew’s manifest with what they hash to', () => {
    const file = join(folder, 'kubectl-tailcast_v1_linux_amd64.tar.gz');
    writeFileSync(file, 'archive');
    const project = readProject();
    const { spec } = parse(krewManifest(project, [{ architecture: 'amd64', file }])) as {
      spec: { platforms: { uri: string; sha256: string }[] };
    };
    expect(spec.platforms).toEqual([
      expect.objectContaining({
        uri: `${project.base}/kubectl-tailcast_v1_linux_amd64.tar.gz`,
        sha256: sha256(file),
      }),
    ]);
  });
});

describe('manual pages', () => {
  const pages = manPages({ version: '1.2.3' });

  it('are there for every command, with every option that --help shows', () => {
    const visit = (command: ReturnType<typeof describedProgram>, path: readonly string[]): void => {
      const page = pages.get(`${path.join('-')}.1`);
      expect(page, path.join(' ')).toBeDefined();
      for (const { flags } of command.createHelp().visibleOptions(command))
        expect(page).toContain(`.B ${flags.replaceAll('-', '\\-').replaceAll('…', '...')}\n`);
      for (const each of command.commands) visit(each, [...path, each.name()]);
    };
    visit(describedProgram(), ['tailcast']);
    expect(pages.size).toBeGreaterThan(15);
  });

  it('keep what help says after its options, and begin no line with roff’s own signs', () => {
    expect(pages.get('tailcast-verify.1')).toContain('Exit code: 0 no faults');
    const macros = /^\.(?:TH|SH|TP|B|BR) /;
    for (const [name, page] of pages)
      for (const line of page.split('\n'))
        if (/^[.']/.test(line)) expect(macros.test(`${line} `), `${name}: ${line}`).toBe(true);
  });
});

describe('what is delivered to start from', () => {
  it.each(['gateway', 'recorder'] as const)('deploy/host/%s.yaml has settings that exist', (role) => {
    const path = `deploy/host/${role}.yaml`;
    const entries = new Map(Object.entries(parse(read(path)) as Record<string, unknown>));
    expect(entries.size).toBeGreaterThan(2);
    const sources = { flags: new Map(), environment: new Map(), file: { path, entries } };
    expect(() => readSettings(TABLES[role], sources)).not.toThrow();
    expect(read(`deploy/host/tailcast-${role}.service`)).toContain(`--config /etc/tailcast/${role}.yaml`);
  });

  it.each(['gateway', 'recorder'] as const)(
    'deploy/compose/compose.yaml gives the %s settings that exist',
    (role) => {
      const { services } = parse(read('deploy/compose/compose.yaml'), { merge: true }) as {
        services: Record<
          string,
          { environment: Record<string, string>; read_only: boolean; cap_drop: string[] }
        >;
      };
      const { environment = {}, read_only: readOnly, cap_drop: dropped } = services[role] ?? {};
      expect([readOnly, dropped]).toEqual([true, ['ALL']]);
      const sources = {
        flags: new Map(),
        environment: new Map(Object.entries(environment)),
        file: undefined,
      };
      expect(() => readSettings(TABLES[role], sources)).not.toThrow();
    },
  );
});

describe('docs/install.md', () => {
  const blocks = [...read('docs/install.md').matchAll(/^```yaml\n([^]*?)^```/gm)].map(
    ([, text = '']) => text,
  );
  const parsed = blocks.flatMap((text) => parseAllDocuments(text));

  it('gives Argo CD and Flux the chart by its name, and values that it has', () => {
    expect(parsed.flatMap(({ errors }) => errors)).toEqual([]);
    const documents = parsed.map((document) => document.toJS() as Example);
    const text = JSON.stringify(documents);
    const chart = parse(read('deploy/chart/tailcast/Chart.yaml')) as { name: string; version: string };
    expect(text).toContain(`"chart":"${chart.name}","targetRevision":"${chart.version}"`);
    expect(text).toContain(`"url":"oci://REGISTRY/charts/${chart.name}","ref":{"tag":"${chart.version}"}`);
    const known = parse(read('deploy/chart/tailcast/values.yaml')) as Values;
    const examples = documents
      .map(({ spec }) => spec.values ?? spec.source?.helm?.valuesObject)
      .filter((values) => values !== undefined);
    expect(examples).toHaveLength(2);
    for (const values of examples)
      for (const [part, settings] of Object.entries(values))
        for (const name of Object.keys(settings)) expect(known[part], `${part}.${name}`).toHaveProperty(name);
  });
});

describe('docs/troubleshooting.md', () => {
  it('prints as kubectl does what the gateway says', () => {
    const page = read('docs/troubleshooting.md');
    const sentences = [...page.matchAll(/`Error from server \((\w+)\): ([^`…]+)`/g)];
    expect(sentences.length).toBeGreaterThan(5);
    const known = new Set(Object.values(ERROR_TABLE).map(({ reason, message }) => `${reason}: ${message}`));
    for (const [, reason, message] of sentences) expect(known).toContain(`${reason}: ${message}`);
  });
});

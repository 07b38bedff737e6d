import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { exportsOf, readSources, unusedExports, type Source } from './support/exports.ts';

const src = resolve(dirname(fileURLToPath(import.meta.url)), '../src');

/**
 * For each folder of `src/`, the other folders that it may import. A file directly in `src/` has an entry of its own.
 */
const ALLOWED: Record<string, readonly string[]> = {
  errors: ['safe-text'],
  'safe-text': [],
  async: [],
  directories: ['errors'],
  listen: [],
  'keyed-counter': [],
  'bounded-map': [],
  'keyed-rate': ['bounded-map'],
  'work-budget': [],
  'stale-connections': [],
  'http2-fields': ['wire', 'errors'],
  'process-identity': ['errors'],
  version: [],
  'folder-format': ['version', 'errors'],
  'followed-file': ['async', 'observe', 'errors'],
  wire: [],
  terminal: [],
  screen: ['terminal', 'wire', 'work-budget'],
  bundle: ['bounded-map', 'wire', 'terminal', 'screen', 'search', 'work-budget'],
  memory: [],
  config: ['listen', 'observe', 'errors'],
  observe: ['safe-text', 'async', 'listen', 'errors'],
  kube: ['safe-text', 'wire', 'directories', 'errors'],
  tailnet: [
    'bounded-map',
    'async',
    'listen',
    'stale-connections',
    'wire',
    'observe',
    'directories',
    'errors',
  ],
  impersonation: ['kube', 'tailnet', 'errors'],
  recording: [
    'bounded-map',
    'async',
    'wire',
    'kube',
    'tailnet',
    'observe',
    'memory',
    'stale-connections',
    'directories',
    'process-identity',
    'keyed-counter',
    'secrets',
    'errors',
  ],
  proxy: [
    'bounded-map',
    'async',
    'wire',
    'impersonation',
    'recording',
    'tailnet',
    'kube',
    'observe',
    'memory',
    'keyed-counter',
    'keyed-rate',
    'http2-fields',
    'stale-connections',
    'safe-text',
    'errors',
  ],
  access: [
    'async',
    'bounded-map',
    'proxy',
    'operator',
    'tailnet',
    'kube',
    'wire',
    'observe',
    'secrets',
    'errors',
  ],
  portal: [
    'access',
    'async',
    'wire',
    'recording',
    'proxy',
    'tailnet',
    'kube',
    'observe',
    'keyed-counter',
    'errors',
  ],
  secrets: ['secret-rules'],
  'secret-rules': [],
  search: ['terminal', 'wire', 'work-budget', 'secrets', 'errors'],
  tsrecorder: [
    'bounded-map',
    'async',
    'listen',
    'stale-connections',
    'wire',
    'screen',
    'bundle',
    'search',
    'terminal',
    'observe',
    'memory',
    'directories',
    'process-identity',
    'folder-format',
    'keyed-counter',
    'keyed-rate',
    'work-budget',
    'safe-text',
    'secrets',
    'errors',
  ],
  operator: ['bounded-map', 'keyed-counter', 'async', 'wire', 'kube', 'observe', 'errors'],
  nameserver: ['async', 'followed-file', 'listen', 'wire', 'observe', 'errors'],
  forwarder: ['listen', 'keyed-counter', 'observe', 'errors'],
  ingress: [
    'async',
    'memory',
    'followed-file',
    'stale-connections',
    'tailnet',
    'wire',
    'observe',
    'keyed-counter',
    'http2-fields',
    'errors',
  ],
  player: ['bounded-map', 'bundle', 'wire', 'screen', 'search', 'terminal'],
  doctor: [
    'async',
    'impersonation',
    'kube',
    'operator',
    'recording',
    'tailnet',
    'tsrecorder',
    'wire',
    'errors',
  ],
  cli: [
    'async',
    'bundle',
    'safe-text',
    'compose',
    'config',
    'doctor',
    'kube',
    'screen',
    'search',
    'tailnet',
    'terminal',
    'tsrecorder',
    'wire',
    'observe',
    'errors',
    'version',
  ],
  compose: [
    'bounded-map',
    'keyed-rate',
    'async',
    'config',
    'access',
    'doctor',
    'portal',
    'proxy',
    'recording',
    'impersonation',
    'tailnet',
    'kube',
    'tsrecorder',
    'operator',
    'nameserver',
    'forwarder',
    'ingress',
    'observe',
    'errors',
    'wire',
    'memory',
    'directories',
    'followed-file',
    'listen',
    'folder-format',
    'process-identity',
  ],
  main: ['node-version', 'process'],
  process: ['cli', 'compose', 'config', 'errors', 'pager'],
  pager: [],
  'node-version': [],
};

/** Packages that only the named files may import. Other files use the exports of these files. */
const PACKAGE_OWNERS: Record<string, RegExp> = {
  fastify: /^(portal\/application|tsrecorder\/serving\/http-server)\.ts$/,
  '@fastify/http-proxy': /^portal\/recorder-proxy\.ts$/,
  '@fastify/static': /^(portal\/application|tsrecorder\/serving\/api)\.ts$/,
  'dns-packet': /^nameserver\/answer\.ts$/,
  ws: /^tsrecorder\/serving\/[\w-]+\.ts$/,
  // only `demo/` imports this package
  '@lydell/node-pty': /^$/,
  '@aws-sdk/client-s3': /^tsrecorder\/store\/s3[\w-]*\.ts$/,
  // the operator imports the types of this package
  '@kubernetes/client-node': /^kube\/oidc-thread\.ts$/,
  re2js: /^search\/patterns\.ts$/,
  socks: /^kube\/proxy-tunnel\.ts$/,
};

/**
 * Modules that pure files may import, because these modules use no I/O and no clocks. From node:zlib, pure files use
 * only the synchronous functions.
 */
const PURE_MODULES = ['re2js', 'node:zlib'];

/** Pure files. They use no clock, no I/O and no logger. */
const PURE =
  /^(wire\/|search\/|terminal\/|impersonation\/|access\/(?:rules|request-object)\.ts|recording\/policy\.ts|kube\/(status|request-info|exec-options|headers|canonical-target)\.ts|operator\/.*specs\.ts|tsrecorder\/store\/key\.ts)/;

/**
 * Layers of `src/proxy` and `src/tsrecorder`, the highest layer first. A layer may import code and types only from
 * itself and from lower layers. Every file belongs to a layer. `compose` connects the layers.
 */
const ROOMS: Record<string, readonly string[]> = {
  proxy: ['front', 'session', 'gate', 'upstream'],
  tsrecorder: [
    'serving',
    'playback',
    'checkpoint',
    'intake',
    'retention',
    'events',
    'evidence',
    'search',
    'library',
    'spool',
    'store',
    'files',
  ],
};

/** Maximum number of layers per folder. If a folder has this many layers, put new code into one of them. */
const MOST_ROOMS = 12;

/** Files that may read clocks: they compose roles, contain commands, or belong to the player. */
const HAS_CLOCKS = /^(compose|cli|player)\/|^process\.ts$/;

/**
 * Files that read Node's clock directly: they compare it with Node's timers, use it for one connection, or measure
 * durations. Other code gets a clock as an argument, whose default may be Node's clock.
 */
const READS_CLOCKS: ReadonlySet<string> = new Set([
  'async/deadline.ts',
  'proxy/front/drain.ts',
  'proxy/front/plain.ts',
  'proxy/session/delayed-input.ts',
  'proxy/session/relay-direction.ts',
  'tsrecorder/evidence/evidence-log.ts',
  'tsrecorder/intake/upload-session.ts',
  'tsrecorder/files/append-file.ts',
  'tsrecorder/search/query-processes.ts',
]);

/**
 * Files of `src/` that the demo cluster may import. The limit does not apply to `demo/run.ts`, which also starts the
 * roles.
 */
const DEMO_CLUSTER_IMPORTS = /^\.\.\/src\/(?:async|kube|observe|wire)\/|^\.\.\/src\/(?:errors|listen)\.ts$/;

/** Export that no file imports by name: `src/cli/run-demo.ts` loads the file by its path. */
const LOADED_BY_PATH = 'demo/run.ts runDemo';

/** Exports that only tests use. They stay in `src/`, next to related code. */
const FOR_TESTS: ReadonlySet<string> = new Set([
  'src/screen/cells.ts screenText',
  'src/tsrecorder/evidence/signing-key.ts generateSigningKey',
]);

/**
 * Names that several files export. No file imports two exports of the same name. Do not add names: choose a unique name
 * instead.
 */
const NAMESAKES: ReadonlySet<string> = new Set(['ANNOTATIONS', 'Ask', 'Page', 'failed', 'problemOf']);

/** Folders that belong to one role. A process of another role must not load them. */
const ROLES: Record<string, readonly string[]> = {
  // the gateway watches AccessRequests with the operator's client and informer
  gateway: ['proxy', 'portal', 'impersonation', 'recording', 'operator'],
  recorder: ['tsrecorder'],
  operator: ['operator'],
  nameserver: ['nameserver'],
  forwarder: ['forwarder'],
  ingress: ['ingress'],
};
/** Files that belong to no role: errors, logs, time, memory, processes. */
const FOUNDATIONS = new Set([
  'directories',
  'followed-file',
  'errors',
  'observe',
  'async',
  'listen',
  'memory',
  'process-identity',
  'safe-text',
  'keyed-counter',
  'keyed-rate',
  'bounded-map',
  'stale-connections',
  'http2-fields',
  'secrets',
  'secret-rules',
]);

/** Headers of the protocol between gateway and recorder. */
const SHARED_NAMES =
  /['"`](x-)?tailcast-(session|offset|part|preamble|frames|waits|resume|annotations|viewer-[a-z-]+)['"`]/;

const ROLE_FOLDERS = [...new Set(Object.values(ROLES).flat())];

interface Import {
  readonly file: string;
  readonly specifier: string;
  readonly typeOnly: boolean;
  /** True for `import()`, which loads the module only when the line runs. */
  readonly isLater: boolean;
}

describe('architecture', () => {
  const files = listSources(src);
  const imports = files.flatMap(readImports);

  it('sees the sources', () => {
    expect(files.length).toBeGreaterThan(480);
    expect(imports.length).toBeGreaterThan(2200);
  });

  it('imports folders in one direction', () => {
    expect(violations(imports)).toEqual([]);
  });

  it.each(Object.entries(ROOMS))('has in %s nothing but its rooms', (folder, rooms) => {
    expect(rooms.length).toBeLessThanOrEqual(MOST_ROOMS);
    expect(readdirSync(join(src, folder)).toSorted()).toEqual(rooms.toSorted());
  });

  it('imports rooms downwards', () => {
    expect(risingImports(imports)).toEqual([]);
  });

  it('imports of rooms what docs/architecture.md says', () => {
    const page = readFileSync(join(src, '../docs/architecture.md'), 'utf8');
    const rows = [...page.matchAll(/^- `(\w+)` \(.+\) imports (.+)\.$/gm)];
    const said = rows.map(
      ([, room = '', cell = '']) => `${room}: ${cell.match(/\w+(?=`)/g)?.join(' ') ?? ''}`,
    );
    const imported = Object.entries(ROOMS).flatMap(([folder, rooms]) =>
      rooms.map((room) => `${room}: ${importedRooms(`${folder}/${room}`, rooms, imports).join(' ')}`),
    );
    expect(said).toEqual(imported);
  });

  it('has no circles, of types neither', () => {
    expect(circles(imports)).toEqual([]);
  });

  it('bites when a room imports upwards, or files each other', () => {
    const rising = (file: string, specifier: string): Import => ({
      file,
      specifier,
      typeOnly: true,
      isLater: false,
    });
    expect(risingImports([rising('proxy/gate/gate.ts', '../front/server.ts')])).toHaveLength(1);
    expect(risingImports([rising('tsrecorder/store/s3.ts', '../serving/api.ts')])).toHaveLength(1);
    expect(circles([rising('wire/a.ts', './b.ts'), rising('wire/b.ts', './a.ts')])).toHaveLength(1);
  });

  it('bites when a folder imports what it may not', () => {
    const bad = [
      { file: 'wire/spdy/frame.ts', specifier: '../../kube/status.ts', typeOnly: false, isLater: false },
    ];
    expect(violations(bad)).toHaveLength(1);
    const owned = [{ file: 'recording/session.ts', specifier: 'ws', typeOnly: false, isLater: false }];
    expect(violations(owned)).toHaveLength(1);
  });

  it.each(Object.entries(ROLES))('loads for the %s what is its own, and no other role', (role, own) => {
    const folders = new Set([...loadedBy(`compose/${role}.ts`, imports)].map(folderOf));
    expect(ROLE_FOLDERS.filter((folder) => folders.has(folder))).toEqual(own);
  });

  it('lets gateway and recorder share the codecs, and nothing else of the product', () => {
    const usedBy = (folders: readonly string[]): ReadonlySet<string> =>
      new Set(
        imports
          .filter(({ file, specifier }) => folders.includes(folderOf(file)) && specifier.startsWith('.'))
          .map((found) => folderOf(targetOf(found))),
      );
    const [gateway, recorder] = [usedBy(ROLES['gateway']!), usedBy(ROLES['recorder']!)];
    const shared = [...gateway].filter((folder) => recorder.has(folder) && !FOUNDATIONS.has(folder));
    expect(shared).toEqual(['wire']);
  });

  it('spells the fields of uploads and viewers among the codecs alone', () => {
    const elsewhere = files.filter((file) => folderOf(file) !== 'wire' && SHARED_NAMES.test(read(file)));
    expect(elsewhere).toEqual([]);
    expect(files.filter((file) => SHARED_NAMES.test(read(file)))).not.toEqual([]);
  });

  it('keeps I/O, clocks and other packages out of the pure files', () => {
    const impure = imports.filter(
      ({ file, specifier, typeOnly }) =>
        PURE.test(file) && !typeOnly && !specifier.startsWith('.') && !PURE_MODULES.includes(specifier),
    );
    expect(impure).toEqual([]);
    const clocks = files.filter(
      (file) =>
        PURE.test(file) && /\b(Date\.now|new Date\(\)|performance\.now|setTimeout)\b/.test(read(file)),
    );
    expect(clocks).toEqual([]);
  });

  it('makes folders that settings name in one place', () => {
    const makes = files.filter((file) => /\bmkdir(Sync)?\([^;]*recursive: true/.test(read(file)));
    // this file creates a folder only below an existing one
    expect(makes).toEqual(['tsrecorder/search/sqlite/database.ts']);
  });

  it('writes to terminals in one module of the command line', () => {
    const writes = files.filter(
      (file) =>
        file.startsWith('cli/') &&
        /\b(?:std(?:out|err)|screen|out|stream)\.write\(|\bconsole\.\w+\(|\bprocess\.std(out|err)\b|\.pipe\(|\bpipeline\(/.test(
          read(file),
        ),
    );
    expect(writes).toEqual(['cli/output.ts']);
    const raw = files.filter((file) => file.startsWith('cli/') && /\bprintRaw\(/.test(read(file)));
    expect(raw).toEqual(['cli/clip.ts', 'cli/export.ts', 'cli/output.ts', 'cli/play-keys.ts', 'cli/play.ts']);
  });

  it('gives clocks as arguments', () => {
    const reads = files.filter(
      (file) =>
        !HAS_CLOCKS.test(file) &&
        !READS_CLOCKS.has(file) &&
        /(?<!\(\) => )(Date|performance)\.now\(\)/.test(read(file)),
    );
    expect(reads).toEqual([]);
  });

  it('imports for the demo cluster the codecs and the foundations', () => {
    const found = readdirSync(join(src, '../demo'))
      .filter((file) => file.endsWith('.ts') && file !== 'run.ts')
      .flatMap((file) => readImports(`../demo/${file}`));
    expect(found.length).toBeGreaterThan(100);
    const bad = found.filter(
      ({ specifier }) => specifier.startsWith('../') && !DEMO_CLUSTER_IMPORTS.test(specifier),
    );
    expect(bad).toEqual([]);
  });

  it('has no barrels and no drawers', () => {
    const drawers = files.filter((file) => /(^|\/)(index|utils?|helpers?|common|misc|types)\.ts$/.test(file));
    expect(drawers).toEqual([]);
  });
});

/** Another file of the product or its tools must use each export, unless this test lists the export. */
describe('exports', () => {
  const sources = ['src', 'demo', 'scripts', 'bench', 'fuzz', 'test'].flatMap(readSources);

  it('sees them', () => {
    expect(sources.flatMap(exportsOf).length).toBeGreaterThan(1500);
  });

  it('are all used', () => {
    expect(unusedExports(sources).filter((found) => !FOR_TESTS.has(found))).toEqual([LOADED_BY_PATH]);
  });

  it('have a name of their own', () => {
    const shared = namesakes(sources);
    const advice = shared.map(
      ({ name, files }) =>
        `${name} is exported by ${files.join(' and ')}: give one of them a name that says what it is there`,
    );
    expect(advice.filter((_, at) => !NAMESAKES.has(shared[at]!.name))).toEqual([]);
    expect([...NAMESAKES].filter((known) => !shared.some(({ name }) => name === known))).toEqual([]);
  });

  it('are for tests alone where that is said, and nowhere else', () => {
    expect([...FOR_TESTS].filter((name) => !unusedExports(sources).includes(name))).toEqual([]);
  });

  it('bites', () => {
    const made = (file: string, text: string): Source => ({ file, text });
    const found = unusedExports([
      made('src/a.ts', 'export const USED = 1;\nexport function alone() {}\nexport type Gone = string;\n'),
      made('src/b.ts', "import { USED } from './a.ts';\nexport const BOUND = USED;\nlimit(BOUND);\n"),
      made('src/c.ts', 'export const tested = 1;\n'),
      made('test/b.test.ts', "import { BOUND } from '../src/b.ts';\nimport { tested } from '../src/c.ts';\n"),
    ]);
    expect(found).toEqual(['src/a.ts alone', 'src/a.ts Gone', 'src/c.ts tested']);
    const twice = [made('src/a.ts', 'export class Seal {}\n'), made('src/b.ts', 'export type Seal = 1;\n')];
    expect(namesakes(twice)).toEqual([{ name: 'Seal', files: ['src/a.ts', 'src/b.ts'] }]);
  });
});

/** Names that several files of the product export. */
function namesakes(
  sources: readonly Source[],
): readonly { readonly name: string; readonly files: readonly string[] }[] {
  const found = sources
    .filter(({ file }) => /^(?:src|demo)\//.test(file))
    .flatMap((source) => exportsOf(source).map(({ name }) => ({ name, file: source.file })));
  return [...Map.groupBy(found, ({ name }) => name)]
    .map(([name, all]) => ({ name, files: [...new Set(all.map(({ file }) => file))] }))
    .filter(({ files }) => files.length > 1);
}

/** Returns the other layers that the layer `room` imports, in the order of `rooms`. */
function importedRooms(
  room: string,
  rooms: readonly string[],
  imports: readonly Import[],
): readonly string[] {
  const [folder = '', own] = room.split('/');
  const targets = imports
    .filter(({ file, specifier }) => file.startsWith(`${room}/`) && specifier.startsWith('.'))
    .map((found) => targetOf(found).split('/'))
    .filter(([top, next]) => top === folder && next !== own);
  return rooms.filter((name) => targets.some(([, next]) => next === name));
}

/** Imports from a layer into a higher layer. */
function risingImports(imports: readonly Import[]): string[] {
  return imports.flatMap((found) => {
    const target = targetOf(found);
    const rooms = ROOMS[folderOf(found.file)];
    if (rooms === undefined || folderOf(target) !== folderOf(found.file)) return [];
    const [from, to] = [found.file, target].map((file) => rooms.indexOf(file.split('/')[1]!));
    return to! < from! ? [`${found.file} imports ${target}`] : [];
  });
}

/**
 * Import cycles of any length, one line each. If several cycles contain the same file, only one of them may be
 * reported.
 */
function circles(imports: readonly Import[]): string[] {
  const targets = new Map<string, string[]>();
  for (const found of imports) {
    if (!found.specifier.startsWith('.') || found.isLater) continue;
    targets.set(found.file, [...(targets.get(found.file) ?? []), targetOf(found)]);
  }
  const found: string[] = [];
  const path: string[] = [];
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (path.includes(file)) {
      found.push([...path.slice(path.indexOf(file)), file].join(' > '));
      return;
    }
    if (seen.has(file)) return;
    seen.add(file);
    path.push(file);
    for (const target of targets.get(file) ?? []) visit(target);
    path.pop();
  };
  for (const file of targets.keys()) visit(file);
  return found;
}

function violations(imports: readonly Import[]): string[] {
  return imports.flatMap(({ file, specifier, typeOnly }) => {
    if (!specifier.startsWith('.')) {
      const name = specifier.startsWith('@')
        ? specifier.split('/').slice(0, 2).join('/')
        : specifier.split('/')[0]!;
      const owner = PACKAGE_OWNERS[name];
      return owner === undefined || owner.test(file) || typeOnly ? [] : [`${file} imports package ${name}`];
    }
    const from = folderOf(file);
    const to = folderOf(targetOf({ file, specifier }));
    if (from === to) return [];
    return ALLOWED[from]?.includes(to) === true ? [] : [`${file} imports ${to}`];
  });
}

/** Returns the file and all files that Node loads with it, except those imported by type imports and `import()`. */
function loadedBy(entry: string, imports: readonly Import[]): ReadonlySet<string> {
  const loaded = new Set([entry]);
  for (const file of loaded) {
    for (const found of imports) {
      const isLoaded = found.file === file && !found.typeOnly && !found.isLater;
      if (isLoaded && found.specifier.startsWith('.')) loaded.add(targetOf(found));
    }
  }
  return loaded;
}

/** Returns the repository file to which an import refers. */
function targetOf({ file, specifier }: Pick<Import, 'file' | 'specifier'>): string {
  return relative(src, resolve(src, dirname(file), specifier))
    .split(sep)
    .join('/');
}

function folderOf(file: string): string {
  return (file.includes('/') ? file.slice(0, file.indexOf('/')) : file).replace(/\.tsx?$/, '');
}

function listSources(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !name.endsWith('.d.ts'))
    .map((name) => name.split(sep).join('/'));
}

function read(file: string): string {
  return readFileSync(join(src, file), 'utf8');
}

function readImports(file: string): Import[] {
  const pattern =
    /^\s*(?:import|export)\s+(type\s)?[^'";]*?from\s*['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]\s*\)|^import\s+['"]([^'"]+)['"]/gm;
  return [...read(file).matchAll(pattern)].map((match) => ({
    file,
    specifier: match[2] ?? match[3] ?? match[4] ?? '',
    typeOnly: match[1] !== undefined,
    isLater: match[3] !== undefined,
  }));
}

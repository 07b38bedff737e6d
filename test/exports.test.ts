/** What `src` exports is used: by another file of the product or its tools, or in its own file and named by a test. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Only tests use these, and they are where they belong: what undoes or shows what stands beside them. */
const FOR_TESTS: ReadonlySet<string> = new Set([
  'src/screen/cells.ts screenText',
  'src/tailnet/listener.ts peerOf',
  'src/tsrecorder/evidence/signing-key.ts generateSigningKey',
]);

interface Source {
  /** Below the repository. */
  readonly file: string;
  readonly text: string;
}

describe('exports', () => {
  const sources = ['src', 'scripts', 'bench', 'fuzz', 'test'].flatMap(readSources);

  it('sees them', () => {
    expect(sources.flatMap(exportsOf).length).toBeGreaterThan(1500);
  });

  it('are all used', () => {
    expect(unused(sources).filter((found) => !FOR_TESTS.has(found))).toEqual([]);
  });

  it('are for tests alone where that is said, and nowhere else', () => {
    expect([...FOR_TESTS].filter((name) => !unused(sources).includes(name))).toEqual([]);
  });

  it('bites', () => {
    const made = (file: string, text: string): Source => ({ file, text });
    const found = unused([
      made('src/a.ts', 'export const USED = 1;\nexport function alone() {}\nexport type Gone = string;\n'),
      made('src/b.ts', "import { USED } from './a.ts';\nexport const BOUND = USED;\nlimit(BOUND);\n"),
      made('src/c.ts', 'export const tested = 1;\n'),
      made('test/b.test.ts', "import { BOUND } from '../src/b.ts';\nimport { tested } from '../src/c.ts';\n"),
    ]);
    expect(found).toEqual(['src/a.ts alone', 'src/a.ts Gone', 'src/c.ts tested']);
  });
});

/** `file name` of each export of `src` that nothing but tests needs. A type that its own file uses may be named by all. */
function unused(sources: readonly Source[]): string[] {
  const users = new Map<string, Set<string>>();
  for (const source of sources) {
    for (const imported of importsOf(source)) {
      const files = users.get(imported) ?? new Set();
      users.set(imported, files.add(source.file));
    }
  }
  return sources
    .filter(({ file }) => file.startsWith('src/'))
    .flatMap((source) =>
      exportsOf(source).flatMap(({ name, isType }) => {
        const everything = users.get(`${source.file} *`) ?? [];
        const files = [...(users.get(`${source.file} ${name}`) ?? []), ...everything];
        const isUsedHere = source.text.split(new RegExp(`\\b${name}\\b`)).length > 2;
        const isUsed =
          files.some((file) => !file.startsWith('test/')) || (isUsedHere && (isType || files.length > 0));
        return isUsed ? [] : [`${source.file} ${name}`];
      }),
    );
}

/** What is exported where it is declared; nothing is exported otherwise. */
function exportsOf({ text }: Source): readonly { readonly name: string; readonly isType: boolean }[] {
  const declared =
    /^export\s+(?:abstract\s+)?(?:async\s+)?(function\*?|const|let|class|interface|type)\s+(\w+)/gm;
  return [...text.matchAll(declared)].map(([, kind, name = '']) => ({
    name,
    isType: kind === 'interface' || kind === 'type',
  }));
}

/** `file name` of each import of one of our files; `file *` where all of it may be used. */
function importsOf({ file, text }: Source): string[] {
  const target = (specifier: string): string =>
    relative(root, resolve(root, dirname(file), specifier))
      .split(sep)
      .join('/');
  const named =
    /^(?:import|export)\s+(?:type\s+)?(?:\{([^}]*)\}|\*(?:\s+as\s+\w+)?)\s*from\s*['"](\.[^'"]+)['"]/gm;
  const later = /import\(\s*['"](\.[^'"]+)['"]\s*\)/g;
  return [
    ...[...text.matchAll(named)].flatMap(([, names, specifier = '']) =>
      (names ?? '*')
        .split(',')
        .map(
          (name) =>
            name
              .trim()
              .replace(/^type\s+/, '')
              .split(/\s/, 1)[0],
        )
        .filter((name) => name !== '')
        .map((name) => `${target(specifier)} ${name}`),
    ),
    ...[...text.matchAll(later)].map(([, specifier = '']) => `${target(specifier)} *`),
  ];
}

function readSources(folder: string): Source[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|mjs)$/.test(name) && !name.endsWith('.d.ts'))
    .map((name) => `${folder}/${name.split(sep).join('/')}`)
    .map((file) => ({ file, text: readFileSync(join(root, file), 'utf8') }));
}

/** Finds unused exports of `src` and `demo`. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

export interface Source {
  /** Below the repository. */
  readonly file: string;
  readonly text: string;
}

/**
 * Returns the exports of `src` and `demo` that only tests use, each as its file and its name: `src/a.ts createA`.
 * Exported types that their own file uses are not reported.
 */
export function unusedExports(sources: readonly Source[]): string[] {
  const users = new Map<string, Set<string>>();
  for (const source of sources) {
    for (const imported of importsOf(source)) {
      const files = users.get(imported) ?? new Set();
      users.set(imported, files.add(source.file));
    }
  }
  return sources
    .filter(({ file }) => /^(?:src|demo)\//.test(file))
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

/** Returns the exports of a file. All exports of the project are declarations with the keyword `export`. */
export function exportsOf({ text }: Source): readonly { readonly name: string; readonly isType: boolean }[] {
  const declared =
    /^export\s+(?:abstract\s+)?(?:async\s+)?(function\*?|const|let|class|interface|type)\s+(\w+)/gm;
  return [...text.matchAll(declared)].map(([, kind, name = '']) => ({
    name,
    isType: kind === 'interface' || kind === 'type',
  }));
}

/**
 * Returns the names that a source imports from files of the repository, each with its file: `src/a.ts createA`. An
 * import of a complete file is `src/a.ts *`.
 */
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

export function readSources(folder: string): Source[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|mjs)$/.test(name) && !name.endsWith('.d.ts'))
    .map((name) => `${folder}/${name.split(sep).join('/')}`)
    .map((file) => ({ file, text: readFileSync(join(root, file), 'utf8') }));
}

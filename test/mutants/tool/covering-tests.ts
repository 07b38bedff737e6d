/** Returns the tests that may detect a change of a file, that is, the tests that import this file. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { parseSync } from 'vite';

/** Excluded test files: they start programs that do not get the changes in memory, or test this tool. */
export const LEFT_OUT = /^test\/(?:demo|deploy|docs|faults|mutants|player|real|release)\//;

/**
 * @returns a function: for a source file, the test files that import it directly or indirectly. The test with the same
 * name as the source file comes first; the others are sorted by their number of import steps to the source file
 */
export function createCoverage(root: string): (file: string) => readonly string[] {
  const tests = filesBelow(root, 'test').filter((file) => file.endsWith('.test.ts') && !LEFT_OUT.test(file));
  const importsOf = cached((file) => importedFiles(root, file));
  const distances = new Map(tests.map((test) => [test, distancesFrom(test, importsOf)]));
  return (file) => {
    const mirrored = basename(file, '.ts');
    const rank = (test: string): number =>
      basename(test).startsWith(`${mirrored}.`) ? 0 : (distances.get(test)?.get(file) ?? Infinity);
    return tests
      .filter((test) => distances.get(test)?.has(file) === true)
      .toSorted((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  };
}

/** @returns a function: for a test file, the file itself and all files that it imports, sorted by name */
export function createImportGraph(root: string): (test: string) => readonly string[] {
  const importsOf = cached((file) => importedFiles(root, file));
  return (test) => [...distancesFrom(test, importsOf).keys()].toSorted();
}

/** TypeScript files below a folder, relative to the root. */
export function filesBelow(root: string, folder: string): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts') && !name.includes('node_modules'))
    .map((name) => `${folder}/${name}`);
}

function distancesFrom(
  test: string,
  importsOf: (file: string) => readonly string[],
): ReadonlyMap<string, number> {
  const distances = new Map([[test, 0]]);
  for (const [file, distance] of distances) {
    for (const imported of importsOf(file)) {
      if (!distances.has(imported)) distances.set(imported, distance + 1);
    }
  }
  return distances;
}

function importedFiles(root: string, file: string): readonly string[] {
  const { module } = parseSync(file, readFileSync(join(root, file), 'utf8'));
  const named = [
    ...module.staticImports.filter(
      ({ entries }) => entries.length === 0 || entries.some((entry) => !entry.isType),
    ),
    ...module.staticExports.flatMap(({ entries }) => entries.filter((entry) => !entry.isType)),
  ].flatMap(({ moduleRequest }) => moduleRequest?.value ?? []);
  return named
    .filter((name) => name.startsWith('.'))
    .map((name) => relative(root, join(root, dirname(file), name)))
    .filter((path) => path.endsWith('.ts') && existsSync(join(root, path)));
}

function cached<T>(load: (file: string) => T): (file: string) => T {
  const known = new Map<string, T>();
  return (file) => {
    const found = known.get(file) ?? load(file);
    known.set(file, found);
    return found;
  };
}

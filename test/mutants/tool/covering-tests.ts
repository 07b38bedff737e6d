/** Source files, test files, and the files that a test imports. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { parseSync } from 'vite';

/** Excluded test files: they start programs that do not get the changes in memory, or test this tool. */
export const LEFT_OUT = /^test\/(?:demo|deploy|docs|faults|mutants|player|real|release)\//;

/** @returns a function: for a test file, the file itself and all files that it imports, sorted by name */
export function createImportGraph(root: string): (test: string) => readonly string[] {
  const importsOf = cached((file) => importedFiles(root, file));
  return (test) => [...withImports(test, importsOf)].toSorted();
}

/** Returns TypeScript files below a folder, relative to the root. */
export function filesBelow(root: string, folder: string): readonly string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts') && !name.includes('node_modules'))
    .map((name) => `${folder}/${name}`);
}

function withImports(test: string, importsOf: (file: string) => readonly string[]): ReadonlySet<string> {
  const found = new Set([test]);
  for (const file of found) for (const imported of importsOf(file)) found.add(imported);
  return found;
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

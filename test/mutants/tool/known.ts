/** Changes for which a detecting test is known. Every verification judges this small sample of each folder. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { changedFiles, folderOf } from './judging.ts';
import { mutantsOf, type Mutant } from './operators.ts';
import type { Outcome } from './trial.ts';

export interface KnownMutant {
  readonly mutant: Mutant;
  readonly by: { readonly file: string; readonly test: string };
}

const PATH = join(import.meta.dirname, 'known.json');
/** Maximum number of known changes per folder. */
const KEPT = 1;

const knownSchema = z.array(
  z.strictObject({
    file: z.string(),
    original: z.string(),
    replacement: z.string(),
    nth: z.int().min(0),
    test: z.strictObject({ file: z.string(), name: z.string() }),
  }),
);

/**
 * Changes are identified by text instead of line number, so that code may move. Changes that no longer exist are
 * skipped.
 */
export function readKnown(root: string): { readonly known: readonly KnownMutant[]; readonly gone: number } {
  const entries = knownSchema.parse(JSON.parse(readFileSync(PATH, 'utf8')));
  const known = entries.flatMap(({ file, original, replacement, nth, test }) => {
    if (changedFiles([file]).length === 0) return [];
    const mutant = mutantsIn(root, file).find(
      (each) => each.original === original && each.replacement === replacement && each.nth === nth,
    );
    return mutant === undefined ? [] : [{ mutant, by: { file: test.file, test: test.name } }];
  });
  return { known, gone: entries.length - known.length };
}

function mutantsIn(root: string, file: string): readonly Mutant[] {
  try {
    return mutantsOf(file, readFileSync(join(root, file), 'utf8'));
  } catch {
    return [];
  }
}

/**
 * Selects some changes of every folder, with different tests. Folders without new results keep their earlier changes.
 */
export function writeKnown(root: string, outcomes: ReadonlyMap<Mutant, Outcome>): void {
  const noticed = [...outcomes].flatMap(([mutant, { by }]) => (by === undefined ? [] : [{ mutant, by }]));
  const byFolder = Map.groupBy(noticed, ({ mutant }) => folderOf(mutant));
  const fresh = [...byFolder.values()].flatMap((some) => differentTests(some).slice(0, KEPT));
  const others = readKnown(root).known.filter(({ mutant }) => !byFolder.has(folderOf(mutant)));
  const kept = [...others, ...fresh].toSorted((a, b) => a.mutant.file.localeCompare(b.mutant.file));
  const entries = kept.map(({ mutant: { file, original, replacement, nth }, by }) => ({
    file,
    original,
    replacement,
    nth,
    test: { file: by.file, name: by.test },
  }));
  writeFileSync(PATH, `${JSON.stringify(entries, undefined, 2)}\n`);
}

/** Returns the changes in a new order: first one change for each test file, and then all other changes. */
function differentTests(known: readonly KnownMutant[]): readonly KnownMutant[] {
  const firsts = [...Map.groupBy(known, ({ by }) => by.file).values()].flatMap((some) => some.slice(0, 1));
  return [...firsts, ...known.filter((each) => !firsts.includes(each))];
}

import { readdirSync, readFileSync } from 'node:fs';

const folder = new URL('../../fixtures/golden/', import.meta.url);

export interface GoldenCast {
  readonly name: string;
  readonly text: string;
  readonly headerLine: string;
  readonly eventLines: readonly string[];
}

/** The recordings of the reference; see their README. */
export const GOLDEN_CASTS: readonly GoldenCast[] = readdirSync(folder)
  .filter((name) => name.endsWith('.cast'))
  .map((name) => {
    const text = readFileSync(new URL(name, folder), 'utf8');
    const [headerLine = '', ...eventLines] = text.split('\n').slice(0, -1);
    return { name, text, headerLine, eventLines };
  });

export function golden(name: string): GoldenCast {
  const found = GOLDEN_CASTS.find((cast) => cast.name === `${name}.cast`);
  if (found === undefined) throw new Error(`no golden cast ${name}`);
  return found;
}

/**
 * Compiles a source file once with all of its changes. Each change calls `$mutant` to check whether it is active, so
 * one process can test many changes without reloading the file. Pure.
 */
import { createHash } from 'node:crypto';
import type { Mutant } from './operators.ts';

/** Identifies a change in a file, independent of its position. */
export function keyOf({ file, original, replacement, nth }: Mutant): string {
  const hash = createHash('sha256').update(`${original}\0${replacement}\0${nth}`).digest('base64url');
  return `${file}:${hash.slice(0, 12)}`;
}

interface Place {
  readonly start: number;
  readonly end: number;
  readonly mutants: Mutant[];
  readonly inside: Place[];
}

/** @returns the code with a switch for every change; without an active switch its behaviour is unchanged */
export function withSwitches(code: string, mutants: readonly Mutant[]): string {
  return written(placesOf(mutants, code.length), code);
}

/** Builds a tree of the changes. The ranges of changes are nested or disjoint, because each range is a syntax node. */
function placesOf(mutants: readonly Mutant[], end: number): Place {
  const whole: Place = { start: 0, end, mutants: [], inside: [] };
  const open = [whole];
  for (const mutant of mutants.toSorted((a, b) => a.start - b.start || b.end - a.end)) {
    while (open.at(-1)!.end <= mutant.start && open.length > 1) open.pop();
    const around = open.at(-1)!;
    if (around !== whole && around.start === mutant.start && around.end === mutant.end) {
      around.mutants.push(mutant);
      continue;
    }
    const place: Place = { start: mutant.start, end: mutant.end, mutants: [mutant], inside: [] };
    around.inside.push(place);
    open.push(place);
  }
  return whole;
}

function written({ start, end, mutants, inside }: Place, code: string): string {
  let text = '';
  let at = start;
  for (const place of inside) {
    text += code.slice(at, place.start) + written(place, code);
    at = place.end;
  }
  text += code.slice(at, end);
  const asked = mutants.map((mutant) => [`$mutant(${JSON.stringify(keyOf(mutant))})`, mutant] as const);
  for (const [question, { operator, replacement }] of asked.toReversed()) {
    if (operator === 'entry') {
      const isArray = replacement === '...[]';
      text = `...(${question} ? ${replacement.slice(3)} : ${isArray ? `[${text}]` : `{${text}}`})`;
    } else if (operator === 'call') text = `if (${question}) ${replacement} else {${text}}`;
    else text = `(${question} ? (${replacement}) : (${text}))`;
  }
  return text;
}

/** Programs that are built with Maven and run with Java. */
import { spawnSync } from 'node:child_process';

/** Either program may be missing; the printed notice then contains `consequence`. */
export function hasMaven(consequence: string): boolean {
  const found = [
    ['mvn', '--version'],
    ['java', '-version'],
  ].every(([program = '', argument = '']) => spawnSync(program, [argument]).status === 0);
  if (!found) process.stderr.write(`peers: no Maven or no Java here: ${consequence}\n`);
  return found;
}

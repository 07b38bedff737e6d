/** Programs that are built with Maven and run with Java. */
import { spawnSync } from 'node:child_process';

/** Returns false if Maven or Java is missing, and prints a notice with `consequence`. */
export function hasMaven(consequence: string): boolean {
  const found = [
    ['mvn', '--version'],
    ['java', '-version'],
  ].every(([program = '', argument = '']) => spawnSync(program, [argument]).status === 0);
  if (!found) process.stderr.write(`peers: no Maven or no Java here: ${consequence}\n`);
  return found;
}

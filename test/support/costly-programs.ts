/** Casts of programs whose output is much more costly to render than to write. */

const HEADER = '{"version":2,"width":1000,"height":500}\n';
/** Bytes of output. */
const LENGTH = 36_000;

function events(output: string, seconds = 10): string {
  const pieces: string[] = [];
  const length = 1000;
  for (let at = 0; at < output.length; at += length)
    pieces.push(JSON.stringify([(at / output.length) * seconds, 'o', output.slice(at, at + length)]));
  return `${pieces.join('\n')}\n`;
}

function repeated(begin: string, output: string): string {
  return begin + output.repeat(Math.ceil(LENGTH / output.length));
}

const resizes = Array.from({ length: 1500 }, (_, count) =>
  JSON.stringify([count / 100, 'r', count % 2 === 0 ? '1000x500' : '999x499']),
).join('\n');

/** Names of programs, with the events of their casts. */
export const COSTLY_PROGRAMS: readonly (readonly [name: string, events: string])[] = [
  ['fills', events(repeated('', '\x1b#8'))],
  ['clears', events(repeated('', '\x1b#8\x1b[2J'))],
  ['switches screens', events(repeated('', '\x1b[?1049h\x1b#8\x1b[?1049l'))],
  ['scrolls a region', events(repeated('\x1b[2;499r\x1b#8', '\x1b[400S\x1b[400T'))],
  ['moves columns', events(repeated('\x1b#8', '\x1b[ @'))],
  ['overwrites a long line', events(repeated('x'.repeat(20_000), '\x1b[Ha\x1b[2Ha\x1b[Hb\x1b[2Hb'))],
  ['resets', events(repeated('', '\x1b#8\x1bc'))],
  ['resizes', `${events('\x1b#8')}${resizes}\n${events('end', 20)}`],
];

/** Returns a cast with a readable first line, followed by a program of {@link COSTLY_PROGRAMS}. */
export function costlyCast(costly: string, header = HEADER): string {
  return `${header}[0,"o","the first line\\r\\n"]\n[0,"o","\\u001b[Hmoved"]\n${costly}`;
}

/** Returns the header of a cast with the largest screen size. */
export function withLargeScreen(header: string): string {
  return header.replace(/"width":\d+,"height":\d+/, '"width":1000,"height":500');
}

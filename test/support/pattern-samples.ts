/** Random texts that a regular expression matches, or almost matches. Supports the syntax of the rules for secrets. */
import type { Random } from './random.ts';

const CHARACTERS = 'aAkKzZ059_-./:=@%+~"\'\\|;&<>$()?!,{ \t\u2028'.split('');
const PARTS = new RegExp(
  [
    String.raw`\[(?:\\.|[^\]\\])*\]|\\u[0-9a-f]{4}|\\k<\w+>|\\.|\(\?<\w+>|\((?:\?(?:[:=!]|<[=!]))?`,
    String.raw`\{\d+(?:,\d*)?\}\??|[*+?]\??|.`,
  ].join('|'),
  'gs',
);

/**
 * Returns a random text for a pattern. Anchors, lookbehinds and negative lookaheads produce no text; a lookahead does.
 */
export function sampleOf(source: string, random: Random): string {
  const parts = source.match(PARTS) ?? [];
  let at = 0;

  function alternatives(): string {
    const all: string[] = [''];
    for (; at < parts.length && parts[at] !== ')';) {
      if (parts[at] === '|') {
        at += 1;
        all.push('');
      } else {
        all.push(all.pop()! + repeated());
      }
    }
    at += 1;
    return random.pick(all);
  }

  function repeated(): string {
    const begin = at;
    let text = atom();
    const quantifier = /^(?:\{(\d+)(,?)(\d*)\}|[*+?])\??$/.exec(parts[at] ?? '');
    if (quantifier === null) return text;
    const [sign = '', from, comma = '', to] = quantifier;
    const min = from === undefined ? Number(sign.startsWith('+')) : Number(from);
    const max = sign.startsWith('?')
      ? 1
      : to
        ? Number(to)
        : comma === '' && from !== undefined
          ? min
          : min + 3;
    const count = Math.min(max, min + random.below(3));
    const end = at + 1;
    if (count === 0) text = '';
    for (let done = 1; done < count; done += 1) {
      at = begin;
      text += atom();
    }
    at = end;
    return text;
  }

  function atom(): string {
    const part = parts[at]!;
    at += 1;
    if (part.startsWith('(')) {
      const text = alternatives();
      return /^\(\?(?:<?!|<=)/.test(part) ? '' : text;
    }
    if (part.startsWith(String.raw`\k`) || part === '^' || part === '$' || /^\\[bB]$/.test(part)) return '';
    if (!/^[[\\.]/.test(part)) return part;
    const matching = CHARACTERS.filter((character) => new RegExp(`^${part}$`).test(character));
    return matching.length === 0 ? part.slice(1) : random.pick(matching);
  }

  return alternatives();
}

/**
 * Removes probable secrets from text for an index, a list, an event or an alert. The rules match shapes, so they miss
 * passwords in prose. The recording itself never changes. Pure.
 */

/** Replacement of a secret. */
export const SECRET = '[secret]';

/** Shapes of secrets. The group `keep`, if any, stays in the text; the rest of the match is replaced. */
const RULES: readonly RegExp[] = [
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\b(?:gh[pousr]_|github_pat_|glpat-|npm_|xox[abeoprs]-|sk-|AIza)[A-Za-z0-9_-]{16,}/g,
  // NOTE: the lookahead reads each word once; without it, each `-eyJ` of a word would read the rest of the word
  /(?<![\w-])(?=[\w-]{11,}\.[\w-]{8})(?<keep>[\w-]*?\b)eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?/g,
  /(?<keep>\bBearer\s{1,4})[A-Za-z0-9._~+/=-]{8,}/gi,
  /(?<keep>\b[a-z][a-z0-9+.-]{1,20}:\/\/[^\s:@/]{1,200}:)[^\s@/]{1,200}(?=@)/gi,
  /(?<keep>\bsshpass\s{1,4}-p\s{0,4})\S+/g,
  /(?<keep>\b(?:mysql|mysqldump|mariadb)\b[^|;&]{0,200}\s-p)[^\s-]\S*/g,
  /(?<keep>\bcurl\b[^|;&]{0,500}\s(?:-u|--user)[\s=]{1,4}[^\s:]{1,200}:)\S+/g,
  /(?<keep>\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane|az)(?:\s{1,4}registry)?\s{1,4}login\b[^|;&]{0,200}\s-p[\s=]{0,4})[^\s=-]\S*/g,
  /(?<keep>\bmongo(?:sh|dump|restore|export|import)?\b[^|;&]{0,200}\s-p[\s=]{0,4})[^\s=-]\S*/g,
  /(?<keep>\bredis-cli\b[^|;&]{0,200}\s-a[\s=]{1,4})[^\s=]\S*/g,
  /(?<keep>\s--?(?:(?:\w{1,20}-){0,2}(?:password|passwd|passphrase|token|api-?key|access-?key|secret-?key)|(?:client-|shared-)?secret|pass|pwd)[\s=]{1,4})[^\s=]\S*/gi,
  /(?<keep>\b\w{0,40}(?:password|passwd|secret|token|api_?key|access_?key)"?\s{0,2}[=:]\s{0,2}["']?)[^\s"',;]{4,}/gi,
];
/** Quick test whether any rule can match. */
const MAY_HOLD_ONE =
  /AKIA|ASIA|gh[pousr]_|github_pat|glpat|npm_|xox|sk-|AIza|eyJ|bearer|:\/\/|sshpass|mysql|mariadb|curl|pass|pwd|login|mongo|redis|token|secret|key/i;
/** First characters of the alternatives in {@link MAY_HOLD_ONE}. */
const BEGINNINGS =
  'aki asi ghp gho ghu ghs ghr git glp npm xox sk- aiz eyj bea :// ssh mys mar cur pas pwd log mon red tok sec key'.split(
    ' ',
  );
/**
 * Lookup table of these first characters by their last five bits. It covers all matches of {@link MAY_HOLD_ONE} and
 * little else.
 */
const BEGINS_ONE = new Uint8Array(0x8000);
for (const beginning of BEGINNINGS) BEGINS_ONE[lastBits(beginning)] = 1;
const PEM_BEGIN = /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----/;
const PEM_END = /-----END [A-Z ]{0,30}PRIVATE KEY-----/;
const PEM_LINE = /^[\sA-Za-z0-9+/=]{16,}$/;
/** Maximum number of lines in a PEM key. Longer blocks are not treated as keys. */
const MAX_PEM_LINES = 200;

/** Returns a function that replaces secrets in consecutive lines, because keys span several lines. */
export function createSecretFilter(): (line: string) => string {
  let keyLines = 0;
  return (line) => {
    if (keyLines > 0) {
      const isOver = PEM_END.test(line);
      keyLines = isOver || !PEM_LINE.test(line) || keyLines >= MAX_PEM_LINES ? 0 : keyLines + 1;
      if (isOver || keyLines > 0) return SECRET;
    }
    const begin = PEM_BEGIN.exec(line);
    if (begin !== null) {
      if (!PEM_END.test(line)) keyLines = 1;
      return `${line.slice(0, begin.index)}${SECRET}`;
    }
    return replaceSecrets(line);
  };
}

function lastBits(text: string): number {
  let bits = 0;
  for (let at = 0; at < text.length; at += 1) bits = ((bits << 5) | (text.charCodeAt(at) & 31)) & 0x7fff;
  return bits;
}

/** NOTE: without the table, the expression took 3 % of the CPU time of an index build. */
function mayHoldOne(line: string): boolean {
  let bits = 0;
  for (let at = 0; at < line.length; at += 1) {
    bits = ((bits << 5) | (line.charCodeAt(at) & 31)) & 0x7fff;
    if (BEGINS_ONE[bits] === 1) return MAY_HOLD_ONE.test(line);
  }
  return false;
}

/** Separator that is not part of any secret and does not occur in commands. */
const BETWEEN_WORDS = '\u2028';

/** Replaces the secrets of a command in a list of words. A password may be a separate word after its option. */
export function replaceSecretWords(words: readonly string[]): readonly string[] {
  const shown = words.map((word) => {
    const filter = createSecretFilter();
    return word.replaceAll(BETWEEN_WORDS, ' ').split('\n').map(filter).join('\n');
  });
  // rules about options match only after a separator
  const replaced = replaceSecrets(BETWEEN_WORDS + shown.join(BETWEEN_WORDS))
    .split(BETWEEN_WORDS)
    .slice(1);
  return replaced.length === words.length ? replaced : words.map(() => SECRET);
}

/** Replaces the secrets of one line. */
export function replaceSecrets(line: string): string {
  if (!mayHoldOne(line)) return line;
  let text = line;
  for (const rule of RULES) {
    text = text.replace(rule, (...match: readonly unknown[]) => {
      const groups = match.at(-1);
      const keep = typeof groups === 'object' && groups !== null && 'keep' in groups ? groups.keep : '';
      return `${typeof keep === 'string' ? keep : ''}${SECRET}`;
    });
  }
  return text;
}

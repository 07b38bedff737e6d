/** Edits the stub zone of a Corefile: the server block that forwards tailnet names to the nameserver. Pure. */

const BEGIN = '# tailcast nameserver: begin. Written by the operator.';
const END = '# tailcast nameserver: end';

/** @returns undefined if the user's Corefile already has a zone for the domain */
export function withStub(corefile: string, domain: string, address: string): string | undefined {
  const rest = withoutStub(corefile);
  if (zonesOf(rest).has(domain)) return undefined;
  const host = address.includes(':') ? `[${address}]` : address;
  const block = [BEGIN, `${domain}:53 {`, '    errors', `    forward . ${host}`, '}', END, ''].join('\n');
  return `${rest}${rest === '' || rest.endsWith('\n') ? '' : '\n'}${block}`;
}

/** Returns the Corefile without the stub zone. */
export function withoutStub(corefile: string): string {
  const begin = corefile.indexOf(BEGIN);
  if (begin < 0) return corefile;
  const end = corefile.indexOf(END, begin);
  // Without the end marker, the end of the stub zone is unknown, so nothing is removed.
  if (end < 0) return corefile;
  return corefile.slice(0, begin) + corefile.slice(end + END.length).replace(/^\n/, '');
}

/** Returns the domains of the server blocks. The domains of a block precede its outermost brace. */
function zonesOf(corefile: string): ReadonlySet<string> {
  const zones = new Set<string>();
  let depth = 0;
  for (const raw of corefile.split('\n')) {
    const line = raw.replace(/#.*$/, '').trim();
    if (depth === 0) {
      for (const word of line.replace('{', ' ').split(/[\s,]+/)) {
        zones.add(
          word
            .replace(/^[a-z]+:\/\//, '')
            .replace(/:\d+$/, '')
            .replace(/\.$/, '')
            .toLowerCase(),
        );
      }
    }
    depth += line.split('{').length - line.split('}').length;
  }
  return zones;
}

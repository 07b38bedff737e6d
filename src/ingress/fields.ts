/** The header fields that a Service gets, and those that a client gets back. Pure. */
import type { Identity, Peer } from '../tailnet/identity.ts';

/** Of one connection; RFC 9110, section 7.6.1. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);
/**
 * Said by us, or by nobody: who asks, and how. `x-real-ip` is read as the same by many, and proxies that log people in say
 * them in `x-forwarded-user` and the like. Names are looked at as CGI passes them on, which makes one letter of all but letters and digits.
 */
const OURS = /^(?:tailscale-.*|forwarded|x-forwarded-.*|x-real-ip|expect|content-length|host|-.*)$/;
const isOurs = (name: string): boolean => OURS.test(name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-'));

/** Name and value in turns, as Node's raw lists are. */
export type FieldList = readonly string[];

export interface RequestFacts {
  readonly raw: FieldList;
  readonly authority: string;
  readonly secure: boolean;
  readonly peer: Pick<Peer, 'address'>;
  readonly identity: Identity;
}

/** What goes on to a Service, besides how its body is framed. Whatever a client says about itself there is left out. */
export function fieldsForService({ raw, authority, secure, peer, identity }: RequestFacts): FieldList {
  const trailers = /\btrailers\b/i.test(objectOf(raw)['te'] ?? '') ? ['te', 'trailers'] : [];
  const own = endToEnd(raw).filter(([name]) => !isOurs(name));
  const forwarded = Object.entries({
    'x-forwarded-for': peer.address,
    'x-forwarded-host': authority,
    'x-forwarded-proto': secure ? 'https' : 'http',
  });
  return ['host', authority, ...own.flat(), ...trailers, ...forwarded.flat(), ...identityFields(identity)];
}

/** As tailscaled writes them: of people, none of tagged nodes. */
function identityFields(identity: Identity): FieldList {
  if (identity.kind !== 'user') return [];
  return Object.entries({
    'tailscale-user-login': encoded(identity.login),
    'tailscale-user-name': encoded(identity.displayName),
    'tailscale-headers-info': 'https://tailscale.com/s/serve-headers',
  }).flat();
}

/** RFC 2047 for what is not plain text. */
function encoded(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  return `=?utf-8?b?${Buffer.from(text).toString('base64')}?=`;
}

/** Of an answer, rather than of a hint before it or of nothing that HTTP knows. */
export function isFinalStatus(status = 0): boolean {
  return status >= 200 && status <= 599;
}

/** What goes back to a client. */
export function fieldsForClient(status: number, raw: FieldList): FieldList {
  // There is nothing to be so long; RFC 9110, section 8.6.
  const isEmpty = status === 204;
  return endToEnd(raw)
    .filter(([name]) => !name.startsWith(':') && !(isEmpty && isLength(name)))
    .flat();
}

/** What goes back to a client behind a body: nothing that says how long it was. */
export function trailersForClient(raw: FieldList): FieldList {
  return endToEnd(raw)
    .filter(([name]) => !name.startsWith(':') && !isLength(name))
    .flat();
}

const isLength = (name: string): boolean => name.toLowerCase() === 'content-length';

/** Pairs without those of one connection, and without those that it names as such. */
function endToEnd(raw: FieldList): readonly (readonly [name: string, value: string])[] {
  const pairs = pairsOf(raw);
  const named = pairs
    .filter(([name]) => name.toLowerCase() === 'connection')
    .flatMap(([, value]) =>
      value
        .toLowerCase()
        .split(',')
        .map((one) => one.trim()),
    );
  const dropped = new Set([...HOP_BY_HOP, ...named]);
  return pairs.filter(([name]) => !dropped.has(name.toLowerCase()));
}

function pairsOf(raw: FieldList): readonly (readonly [name: string, value: string])[] {
  const pairs: (readonly [string, string])[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    pairs.push([raw[index] ?? '', raw[index + 1] ?? '']);
  }
  return pairs;
}

function objectOf(raw: FieldList): Readonly<Record<string, string>> {
  return Object.fromEntries(pairsOf(raw).map(([name, value]) => [name.toLowerCase(), value]));
}

/** Fields as HTTP/2 takes them: names in small letters, several values of one name as a list. */
export function asHttp2(list: FieldList): Record<string, string | string[]> {
  const fields = new Map<string, string[]>();
  for (const [name, value] of pairsOf(list)) {
    const key = name.toLowerCase();
    fields.set(key, [...(fields.get(key) ?? []), value]);
  }
  return Object.fromEntries(
    [...fields].map(([name, values]) => [name, values.length === 1 ? (values[0] ?? '') : values]),
  );
}

/** Headers of requests to Services and of responses to clients. Pure. */
import type { Identity, Peer } from '../tailnet/identity.ts';

/** Hop-by-hop headers, RFC 9110 section 7.6.1. */
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
 * Headers about the caller that only this server may set. Many programs read the client's address from `x-real-ip`.
 * Authenticating proxies set `x-forwarded-user` and similar headers. Names are compared in the form of CGI variables,
 * in which all characters except letters and digits are replaced.
 */
const OURS = /^(?:tailscale-.*|forwarded|x-forwarded-.*|x-real-ip|expect|content-length|host|-.*)$/;
const isOurs = (name: string): boolean => OURS.test(name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-'));

/** Alternating names and values, as in the raw lists of Node.js. */
export type FieldList = readonly string[];

export interface RequestFacts {
  readonly raw: FieldList;
  readonly authority: string;
  readonly secure: boolean;
  readonly peer: Pick<Peer, 'address'>;
  readonly identity: Identity;
}

/**
 * Returns the headers for a Service, without the headers that describe the length of the body. Identity headers that
 * the client has sent are removed.
 */
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

/** Returns the same identity headers as tailscaled, except the profile picture. Tagged nodes get no such headers. */
function identityFields(identity: Identity): FieldList {
  if (identity.kind !== 'user') return [];
  return Object.entries({
    'tailscale-user-login': encoded(identity.login),
    'tailscale-user-name': encoded(identity.displayName),
    'tailscale-headers-info': 'https://tailscale.com/s/serve-headers',
  }).flat();
}

/** Encodes text for a header; non-ASCII text is encoded as in RFC 2047. */
function encoded(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  return `=?utf-8?b?${Buffer.from(text).toString('base64')}?=`;
}

/** Returns true for the status of a final response, and false for an interim response (1xx) or an invalid status. */
export function isFinalStatus(status = 0): boolean {
  return status >= 200 && status <= 599;
}

/** Returns the headers for a client. */
export function fieldsForClient(status: number, raw: FieldList): FieldList {
  // A 204 has no body, so it has no length; RFC 9110 section 8.6.
  const isEmpty = status === 204;
  return endToEnd(raw)
    .filter(([name]) => !name.startsWith(':') && !(isEmpty && isLength(name)))
    .flat();
}

/** Returns the trailers for a client, without headers that describe the length. */
export function trailersForClient(raw: FieldList): FieldList {
  return endToEnd(raw)
    .filter(([name]) => !name.startsWith(':') && !isLength(name))
    .flat();
}

const isLength = (name: string): boolean => name.toLowerCase() === 'content-length';

/** Removes hop-by-hop headers, and headers that `Connection` lists. */
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

/** Returns headers for HTTP/2: names in lower case, repeated names as a list. */
export function asHttp2(list: FieldList): Record<string, string | string[]> {
  const fields = Map.groupBy(pairsOf(list), ([name]) => name.toLowerCase());
  return Object.fromEntries(
    [...fields].map(([name, pairs]) => {
      const [first = '', ...others] = pairs.map(([, value]) => value);
      return [name, others.length === 0 ? first : [first, ...others]];
    }),
  );
}

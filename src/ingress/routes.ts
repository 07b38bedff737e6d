/** Finds the destination of a request in the operator's table. Pure. */
import { z } from 'zod';
import { TailcastError } from '../errors.ts';
import {
  matchesHost,
  REFUSED,
  redirectStatusOf,
  type IngressTable,
  type TableHost,
} from '../wire/ingress-table.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';

/** Maximum file size, in bytes. A Secret has at most 1 MiB. */
export const MAX_TABLE_BYTES = 2 * 1024 ** 2;

const path = z.string().startsWith('/');
const upstream = z
  .string()
  .regex(/^(?:(?:https\+insecure|https?|h2c):\/\/[\w.:[\]-]+|refused|redirect:30[12378])$/);
const paths = z.array(z.tuple([path, upstream]));
const hosts = z.array(z.object({ name: z.string(), prefixes: paths, exact: paths }));
const tableSchema = z.object({
  version: z.literal(1),
  certificates: z.array(
    z.object({ hosts: z.array(z.string()), certificatePem: z.string(), keyPem: z.string() }),
  ),
  secure: z.array(z.string()),
  hosts,
  plain: hosts.optional(),
  redirect: z.boolean(),
});

/** @throws TailcastError `CONFIG_INVALID` for an invalid table */
export function parseTable(text: string): IngressTable {
  const table = tableSchema.safeParse(jsonOrUndefined(text));
  if (table.success) return table.data;
  // The message contains no values of the table, because some of them are private keys.
  const fields = table.error.issues.map((issue) => issue.path.join('.') || 'the file');
  throw new TailcastError('CONFIG_INVALID', `table: not understood: ${[...new Set(fields)].join(', ')}`);
}

/** The properties of a request that determine its route. */
export interface RouteQuery {
  /** `Host` or `:authority` as received. */
  readonly authority: string;
  /** Request target as received. */
  readonly target: string;
  /** True if the request arrived through HTTPS. */
  readonly secure: boolean;
}

export type IngressRoute =
  | { readonly kind: 'found'; readonly upstream: string }
  | { readonly kind: 'redirect'; readonly location: string; readonly status: number }
  | { readonly kind: 'refused'; readonly status: number; readonly message: string };

/**
 * Returns the route of a request. The most specific host is selected first, then an exact path, then the longest
 * prefix of complete path segments. A path with dot segments is rejected, because a Service could read it as another
 * path.
 */
export function routeOf(table: IngressTable, { authority, target, secure }: RouteQuery): IngressRoute {
  const host = hostOf(authority);
  if (host === undefined) return refused(400, 'the host is not understood');
  if (!/^\/[^#]*$/s.test(target)) return refused(400, 'the path is not understood');
  const path = target.replace(/\?.*$/s, '');
  if (DOTS.test(path)) return refused(400, 'the path has dot segments');
  const location = `https://${host}${target}`;
  const entry = secure ? secureEntry(table, host) : plainEntry(table, host, location);
  if ('kind' in entry) return entry;
  return answerOf(upstreamOf(entry, path), secure, location);
}

/** Matches dot segments, including those that are encoded, between backslashes, or in front of a semicolon. */
const DOTS = /(?:\/|\\|%2f|%5c)(?:\.|%2e){1,2}(?:\/|\\|%2f|%5c|;|%3b|$)/i;

function secureEntry(table: IngressTable, host: string): TableHost | Refused {
  if (!isSecure(table, host)) return refused(421, 'no certificate is named for this host');
  return entryOf(table.hosts, host) ?? forAll(table.hosts) ?? NOTHING;
}

/**
 * Returns the routes of a host for plain HTTP. If the table has the field `plain`, this field determines the routes.
 * Without `plain`, requests for HTTPS hosts are redirected or refused, and other hosts are served if a rule names them.
 */
function plainEntry(
  table: IngressTable,
  host: string,
  location: string,
): TableHost | Exclude<IngressRoute, { readonly kind: 'found' }> {
  const { plain } = table;
  if (plain !== undefined) return entryOf(plain, host) ?? forAll(plain) ?? NOTHING;
  if (!isSecure(table, host)) return entryOf(table.hosts, host) ?? NOTHING;
  return table.redirect
    ? { kind: 'redirect', location, status: 301 }
    : refused(404, 'this host is served by HTTPS');
}

function isSecure({ secure }: IngressTable, host: string): boolean {
  return secure.some((pattern) => pattern === '' || matchesHost(pattern, host));
}

function answerOf(upstream: string | undefined, secure: boolean, location: string): IngressRoute {
  if (upstream === undefined) return NOTHING;
  if (upstream === REFUSED) return refused(500, 'this backend is not available');
  const status = redirectStatusOf(upstream);
  if (status === undefined) return { kind: 'found', upstream };
  // For an HTTPS request, a redirect to HTTPS would point to the URL of the request itself.
  return secure ? NOTHING : { kind: 'redirect', location, status };
}

type Refused = Extract<IngressRoute, { readonly kind: 'refused' }>;

const NOTHING = refused(404, 'nothing is served here');

function forAll(hosts: readonly TableHost[]): TableHost | undefined {
  return hosts.find(({ name }) => name === '');
}

function refused(status: number, message: string): Refused {
  return { kind: 'refused', status, message };
}

/** Returns the host in lower case, without port and final dot. */
function hostOf(authority: string): string | undefined {
  const name = /^([a-z0-9_.-]{1,254}|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.exec(authority)?.[1];
  return name?.toLowerCase().replace(/\.$/, '');
}

function entryOf(hosts: readonly TableHost[], host: string): TableHost | undefined {
  const matching = hosts.filter(({ name }) => name !== '' && matchesHost(name, host));
  return matching.find(({ name }) => name === host) ?? matching[0];
}

function upstreamOf({ exact, prefixes }: TableHost, path: string): string | undefined {
  const itself = exact.find(([one]) => one === path);
  if (itself !== undefined) return itself[1];
  const above = prefixes.filter(
    ([prefix]) => prefix === '/' || path === prefix || path.startsWith(`${prefix}/`),
  );
  return above.toSorted(([a], [b]) => b.length - a.length)[0]?.[1];
}

/**
 * The names that the nameserver serves. The operator writes them to a file in the format of Tailscale's operator.
 * Pure.
 */
import { isIP } from 'node:net';
import { z } from 'zod';
import { TailcastError } from '../errors.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';

/** Maximum file size, in bytes. A ConfigMap has at most 1 MiB. */
export const MAX_RECORDS_BYTES = 4 * 1024 ** 2;
/**
 * Maximum number of addresses of one name per IP family, so that all fit into a response. Further addresses are
 * ignored.
 */
const MAX_ADDRESSES = 256;
/** Maximum length of a name without the final dot. In messages, such a name has 255 bytes (RFC 1035 §2.3.4). */
export const MAX_NAME_LENGTH = 253;
/** Domain for which the nameserver is always authoritative, including names that it does not know. */
const TAILSCALE_DOMAIN = 'ts.net';

/** The addresses of one name. */
export interface NameAddresses {
  readonly ip4: readonly string[];
  readonly ip6: readonly string[];
}

export type NameRecords = ReturnType<typeof createRecords>;

const addressMap = z
  .record(z.string(), z.array(z.string()))
  .nullish()
  .transform((map) => map ?? {});
const fileSchema = z.object({
  version: z.literal('v1alpha1'),
  ip4: addressMap,
  ip6: addressMap,
  /** Additional domains to serve. This field is tailcast's extension of the format. */
  domains: z.array(z.string()).default([]),
});

/**
 * Parses the file. Invalid names and addresses are ignored, because an invalid entry of one Service must not disable
 * the names of the others.
 *
 * @throws TailcastError `CONFIG_INVALID` for an invalid file
 */
export function parseRecords(text: string): NameRecords {
  const file = fileSchema.safeParse(jsonOrUndefined(text));
  if (!file.success) {
    throw new TailcastError('CONFIG_INVALID', `records: ${z.prettifyError(file.error)}`);
  }
  const names = new Map<string, { ip4: readonly string[]; ip6: readonly string[] }>();
  for (const [family, map] of [
    [4, file.data.ip4],
    [6, file.data.ip6],
  ] as const) {
    for (const [written, addresses] of Object.entries(map)) {
      const name = canonicalName(written);
      const valid = addresses.filter((address) => isIP(address) === family).slice(0, MAX_ADDRESSES);
      if (name === undefined) continue;
      const before = names.get(name) ?? { ip4: [], ip6: [] };
      names.set(name, family === 4 ? { ...before, ip4: valid } : { ...before, ip6: valid });
    }
  }
  const domains = new Set([
    TAILSCALE_DOMAIN,
    ...file.data.domains.flatMap((domain) => canonicalName(domain) ?? []),
    ...[...names.keys()].map((name) => name.slice(name.indexOf('.') + 1)),
  ]);
  return createRecords(names, domains);
}

function createRecords(names: ReadonlyMap<string, NameAddresses>, domains: ReadonlySet<string>) {
  const parents = new Set([...names.keys()].flatMap((name) => parentsOf(name)));
  return {
    /** Number of names. */
    size: names.size,
    /** @param name in lower case, without the final dot */
    find: (name: string) => names.get(name),
    /**
     * True if the name is a served domain, or if the file contains a subdomain of the name. The name then exists, even
     * without addresses.
     */
    hasBelow: (name: string) => parents.has(name) || domains.has(name),
    /** Returns the longest domain that the nameserver serves and that contains the name. */
    domainOf: (name: string) => [name, ...parentsOf(name)].find((one) => domains.has(one)),
  };
}

/** Returns the parent domains of a name, starting with the nearest. */
function parentsOf(name: string): readonly string[] {
  const labels = name.split('.');
  return labels.slice(1).map((_, index) => labels.slice(index + 1).join('.'));
}

/** Returns the name in lower case, without the final dot; undefined for an invalid name. */
function canonicalName(written: string): string | undefined {
  const name = written.replace(/\.$/, '').toLowerCase();
  const labels = name.split('.');
  const isValid =
    name.length <= MAX_NAME_LENGTH &&
    labels.length >= 2 &&
    labels.every((label) => /^[\x21-\x2d\x2f-\x7e]{1,63}$/.test(label));
  return isValid ? name : undefined;
}

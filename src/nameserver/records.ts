/** The names that the nameserver knows, from the file that the operator writes; the format is the reference's. Pure. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { TailcastError } from '../errors.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';

/** A ConfigMap holds 1 MiB; a larger file is not from Kubernetes. */
export const MAX_RECORDS_BYTES = 4 * 1024 ** 2;
/** More addresses of one name do not fit an answer that anybody reads. */
const MAX_ADDRESSES = 256;
/** Names below it are answered for even where nothing says so: that they are unknown is an answer. */
const TAILSCALE_DOMAIN = 'ts.net';

/** The addresses of one name. */
export interface NameAddresses {
  readonly ip4: readonly string[];
  readonly ip6: readonly string[];
}

export interface NameRecords {
  /** How many names there are. */
  readonly size: number;
  /** @param name in small letters, without the dot at its end */
  find(name: string): NameAddresses | undefined;
  /** Whether there are names below this one: it exists then, and has no addresses. */
  hasBelow(name: string): boolean;
  /** The longest domain that is answered for and holds the name. */
  domainOf(name: string): string | undefined;
}

const addressMap = z
  .record(z.string(), z.array(z.string()).max(MAX_ADDRESSES))
  .nullish()
  .transform((map) => map ?? {});
const fileSchema = z.object({
  version: z.literal('v1alpha1'),
  ip4: addressMap,
  ip6: addressMap,
  /** Ours: domains that are answered for besides those of the names. */
  domains: z.array(z.string()).default([]),
});

/**
 * Reads the file.
 *
 * @throws TailcastError `CONFIG_INVALID` when it is not one, or names or addresses are none
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
      const wrong = addresses.find((address) => isIP(address) !== family);
      if (wrong !== undefined) {
        throw new TailcastError(
          'CONFIG_INVALID',
          `records: ${written}: ${JSON.stringify(wrong)} is no IPv${family} address`,
        );
      }
      const before = names.get(name) ?? { ip4: [], ip6: [] };
      names.set(name, family === 4 ? { ...before, ip4: addresses } : { ...before, ip6: addresses });
    }
  }
  const domains = new Set([
    TAILSCALE_DOMAIN,
    ...file.data.domains.map(canonicalName),
    ...[...names.keys()].map((name) => name.slice(name.indexOf('.') + 1)),
  ]);
  return createRecords(names, domains);
}

function createRecords(names: ReadonlyMap<string, NameAddresses>, domains: ReadonlySet<string>): NameRecords {
  const parents = new Set([...names.keys()].flatMap((name) => parentsOf(name)));
  return {
    size: names.size,
    find: (name) => names.get(name),
    hasBelow: (name) => parents.has(name) || domains.has(name),
    domainOf: (name) => [name, ...parentsOf(name)].find((one) => domains.has(one)),
  };
}

/** The domains above a name, the nearest first. */
function parentsOf(name: string): readonly string[] {
  const labels = name.split('.');
  return labels.slice(1).map((_, index) => labels.slice(index + 1).join('.'));
}

/** Small letters, no dot at the end. */
function canonicalName(written: string): string {
  const name = written.replace(/\.$/, '').toLowerCase();
  const labels = name.split('.');
  if (
    name.length > 253 ||
    labels.length < 2 ||
    labels.some((label) => !/^[\x21-\x2d\x2f-\x7e]{1,63}$/.test(label))
  ) {
    throw new TailcastError('CONFIG_INVALID', `records: ${JSON.stringify(written)} is no full name`);
  }
  return name;
}

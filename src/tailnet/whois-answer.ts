/**
 * Parses the whois response of tailscaled as an `Identity`. Pure. The parser is strict about all fields that
 * it uses: it rejects an empty or unusual identity, because headers are built from it. Other fields are
 * ignored.
 */
import { z } from 'zod';
import { TailcastError } from '../errors.ts';
import { normaliseAddress } from './addresses.ts';
import { foldName, parseExactJson } from './exact-json.ts';
import type { CapabilityMap, Identity } from './identity.ts';

/** Owner of tagged nodes in tailscaled's responses; never a user. */
const TAGGED_PLACEHOLDER = 'tagged-devices';

const MAX_CAPABILITIES = 1000;
const MAX_RULES = 1000;

const id64 = z.union([z.int(), z.bigint()]).transform((value) => BigInt(value));

/** Accepts `null` and absent values, which Go writes for an empty slice or map. */
function nullable<T extends z.ZodType>(schema: T): z.ZodOptional<z.ZodNullable<T>> {
  return schema.nullable().optional();
}

const NODE_SCHEMA = z.object({
  StableID: z.string(),
  Name: z.string(),
  User: id64.optional(),
  Sharer: id64.optional(),
  Tags: nullable(z.array(z.string()).max(100)),
  Addresses: nullable(z.array(z.string()).max(100)),
  Expired: z.boolean().optional(),
});

const PROFILE_SCHEMA = z.object({ LoginName: z.string().optional(), DisplayName: z.string().optional() });

const WHOIS_SCHEMA = z.object({
  Node: NODE_SCHEMA,
  UserProfile: nullable(PROFILE_SCHEMA),
  CapMap: nullable(z.record(z.string(), z.array(z.unknown()).max(MAX_RULES).nullable())),
});

type WhoisBody = z.infer<typeof WHOIS_SCHEMA>;

/**
 * @param json body of `GET /localapi/v0/whois`
 * @param options `allowShared`: accept nodes that were shared into this tailnet from another tailnet
 * @throws TailcastError `IDENTITY_UNKNOWN` (no identity), `IDENTITY_MALFORMED` (an unusable identity)
 */
export function parseWhoisAnswer(json: string, options: { readonly allowShared: boolean }): Identity {
  const body = parseBody(json);
  const node = body.Node;
  if (node.Expired === true) throw malformed('the key of the node has expired');
  if (node.Sharer !== undefined && node.Sharer !== 0n && !options.allowShared) {
    throw malformed('the node is shared in from another tailnet');
  }
  const common = {
    nodeId: plainText(node.StableID, 'StableID'),
    nodeName: plainText(node.Name.replace(/\.$/, ''), 'Name'),
    addresses: (node.Addresses ?? []).map(parsePrefix),
    capabilities: toCapabilities(body.CapMap ?? {}),
  };
  const tags = node.Tags ?? [];
  if (tags.length > 0) return { kind: 'tagged', ...common, tags: tags.map(parseTag) };
  return { kind: 'user', ...common, ...parseUser(node, body.UserProfile ?? undefined) };
}

function parseBody(json: string): WhoisBody {
  let value: unknown;
  try {
    value = parseExactJson(json);
  } catch (error) {
    throw malformed('the response is not unambiguous JSON', error);
  }
  refuseOtherSpellings(value, WHOIS_SCHEMA.shape);
  const result = WHOIS_SCHEMA.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw malformed(
    `${issue?.path.join('.') ?? 'answer'}: ${issue?.message ?? 'not understood'}`,
    result.error,
  );
}

/**
 * Rejects field names in another letter case. Go would match them and this parser would ignore them, so the two
 * programs could derive different identities from one text.
 */
function refuseOtherSpellings(value: unknown, used: object): void {
  if (typeof value !== 'object' || value === null) return;
  const names = new Map(Object.keys(used).map((name) => [foldName(name), name]));
  for (const [name, member] of Object.entries(value)) {
    const meant = names.get(foldName(name));
    if (meant !== undefined && meant !== name) throw malformed(`${meant} is spelled in other letter case`);
    if (name === 'Node') refuseOtherSpellings(member, NODE_SCHEMA.shape);
    if (name === 'UserProfile') refuseOtherSpellings(member, PROFILE_SCHEMA.shape);
  }
}

function parseUser(
  node: WhoisBody['Node'],
  profile: { readonly LoginName?: string | undefined; readonly DisplayName?: string | undefined } | undefined,
): { readonly userId: bigint; readonly login: string; readonly displayName: string } {
  const login = profile?.LoginName ?? '';
  const userId = node.User ?? 0n;
  if (login === '' && userId === 0n) {
    throw new TailcastError('IDENTITY_UNKNOWN', 'the node has neither an owner nor a tag');
  }
  if (login === TAGGED_PLACEHOLDER) throw malformed('the node has no owner and no tag');
  return { userId, login: plainText(login, 'LoginName'), displayName: profile?.DisplayName ?? '' };
}

/** Returns a name that can be a header value: printable ASCII without spaces, 1 to 256 characters. */
function plainText(text: string, member: string): string {
  if (/^[\u0021-\u007e]{1,256}$/.test(text)) return text;
  throw malformed(
    text === '' ? `${member} is empty` : `${member} is too long or has characters that are not allowed`,
  );
}

function parseTag(tag: string): string {
  if (tag.startsWith('tag:') && tag.length > 'tag:'.length) return plainText(tag, 'Tags');
  throw malformed('a tag of the node does not start with tag:');
}

/** `100.64.0.5/32` → `100.64.0.5` */
function parsePrefix(prefix: string): string {
  const address = normaliseAddress(prefix.replace(/\/\d{1,3}$/, ''));
  if (address === undefined) throw malformed('Addresses has something that is not an address');
  return address;
}

function toCapabilities(map: Readonly<Record<string, readonly unknown[] | null>>): CapabilityMap {
  const entries = Object.entries(map);
  if (entries.length > MAX_CAPABILITIES) throw malformed(`more than ${MAX_CAPABILITIES} capabilities`);
  return new Map(entries.map(([name, rules]) => [name, rules ?? []]));
}

function malformed(detail: string, cause?: unknown): TailcastError {
  return new TailcastError('IDENTITY_MALFORMED', detail, cause === undefined ? undefined : { cause });
}

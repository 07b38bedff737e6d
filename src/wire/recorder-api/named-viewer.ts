/**
 * Headers with which the portal of a gateway names the viewer to a recorder. A recorder accepts these headers
 * only from gateways in its settings. It then responds with {@link VIEWER_ACCEPTED_HEADER}, so that the gateway
 * knows which viewer the recorder accepted.
 *
 * ```
 * Tailscale-User-Login: alice@example.com      or      X-Tailcast-Viewer-Tags: tag:ci,tag:dev
 * X-Tailcast-Viewer-Node: laptop.tail1.ts.net
 * X-Tailcast-Viewer-Node-Id: nABC123CNTRL
 * X-Tailcast-Viewer-Address: 100.64.0.4
 * ```
 *
 * The parser is strict: if one viewer header is missing, repeated or malformed, it rejects all of them.
 */

/** Viewer of recordings, as identified by the gateway's tailnet. */
export interface NamedViewer {
  readonly node: string;
  readonly nodeId: string;
  readonly address: string;
  /** Login of a user; `undefined` for a tagged node. */
  readonly user: string | undefined;
  /** Tags of a tagged node; empty for a user. */
  readonly tags: readonly string[];
}

/** Response header of a recorder that accepted the named viewer, with the viewer's node ID. */
export const VIEWER_ACCEPTED_HEADER = 'x-tailcast-viewer-accepted';

const OURS = 'x-tailcast-viewer-';
const FIELDS = {
  user: 'tailscale-user-login',
  tags: `${OURS}tags`,
  node: `${OURS}node`,
  nodeId: `${OURS}node-id`,
  address: `${OURS}address`,
} as const;
const KNOWN: ReadonlySet<string> = new Set(Object.values(FIELDS));

/** Printable ASCII without spaces, which is always a valid header value. */
const WORD = /^[\u0021-\u007e]{1,256}$/;
/** A tag. It contains no comma, because commas separate tags. */
const TAG = /^tag:[\u0021-\u002b\u002d-\u007e]{1,252}$/;
const MAX_TAGS = 100;

/**
 * Returns the viewer headers as a flat list of names and values. Returns `undefined` if the headers would be
 * ambiguous for this viewer.
 */
export function encodeNamedViewer(viewer: NamedViewer): readonly string[] | undefined {
  if (!isUsable(viewer)) return undefined;
  const { user, tags, node, nodeId, address } = viewer;
  const who = user === undefined ? [FIELDS.tags, tags.join(',')] : [FIELDS.user, user];
  return [...who, FIELDS.node, node, FIELDS.nodeId, nodeId, FIELDS.address, address];
}

/**
 * @param rawHeaders flat list, as received
 * @returns `undefined` if there are no viewer headers, `malformed` if they are ambiguous or invalid
 */
export function decodeNamedViewer(rawHeaders: readonly string[]): NamedViewer | 'malformed' | undefined {
  const found = new Map<string, string[]>();
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] ?? '').toLowerCase();
    if (!name.startsWith(OURS) && name !== FIELDS.user) continue;
    const values = found.get(name) ?? [];
    values.push(rawHeaders[index + 1] ?? '');
    found.set(name, values);
  }
  const names = [...found.keys()];
  if (!names.some((name) => name.startsWith(OURS))) return undefined;
  const clear = names.every((name) => KNOWN.has(name) && found.get(name)?.length === 1);
  const read = (name: string): string | undefined => found.get(name)?.[0];
  const viewer: NamedViewer = {
    node: read(FIELDS.node) ?? '',
    nodeId: read(FIELDS.nodeId) ?? '',
    address: read(FIELDS.address) ?? '',
    user: read(FIELDS.user),
    tags: read(FIELDS.tags)?.split(',') ?? [],
  };
  return clear && isUsable(viewer) ? viewer : 'malformed';
}

/** True if the viewer is either a user or a tagged node, not both. */
function isUsable({ node, nodeId, address, user, tags }: NamedViewer): boolean {
  if (![node, nodeId, address].every((word) => WORD.test(word))) return false;
  if (user !== undefined) return WORD.test(user) && tags.length === 0;
  return tags.length > 0 && tags.length <= MAX_TAGS && tags.every((tag) => TAG.test(tag));
}

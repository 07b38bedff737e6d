/**
 * Who may see which recordings. Pure but for what asks who somebody is.
 *
 * A rule is `<who>` or `<who>=<what>`: who is `*`, a login name or a tag of the viewer's node; what is
 * `namespace:<name>` (of the session), `user:<login>` or `tag:<name>` (of the person or node whose session it was).
 * Without rules everybody whom the network lets in may see everything.
 */
import { TailcastError } from '../../errors.ts';
import type { Scope } from '../library/scope.ts';

/** Who reads. Known from the tailnet: asked for the connection, or said by a gateway that the settings trust. */
export interface Viewer {
  readonly node: string;
  readonly nodeId: string;
  /** IP address. */
  readonly address?: string;
  /** For a person's node. */
  readonly user?: string;
  /** For a tagged node. */
  readonly tags?: readonly string[];
  /** The gateway through whose portal they look, and which says who they are. */
  readonly gateway?: Pick<Viewer, 'node' | 'nodeId' | 'address'>;
}

/** Whose share of the recorder's work the requests of a viewer count to: all nodes of a user are one owner. */
export function ownerOf({ user, nodeId }: Pick<Viewer, 'user' | 'nodeId'>): string {
  return user === undefined ? `node ${nodeId}` : `user ${user}`;
}

export interface ViewRule {
  readonly who: string;
  readonly what:
    | { readonly kind: 'everything' }
    | { readonly kind: 'namespace' | 'user' | 'tag'; readonly value: string };
}

/** @throws TailcastError `CONFIG_INVALID` naming the rule. */
export function parseViewRule(text: string): ViewRule {
  const [, who = '', what] = /^([^=\s]+)(?:=(\S+))?$/.exec(text) ?? [];
  if (who === '') throw new TailcastError('CONFIG_INVALID', `viewers: ${text} is not <who> or <who>=<what>`);
  if (what === undefined) return { who, what: { kind: 'everything' } };
  const [, kind, value = ''] = /^(namespace|user):(.+)$/.exec(what) ?? [];
  if (kind === 'namespace' || kind === 'user') return { who, what: { kind, value } };
  if (/^tag:.+$/.test(what)) return { who, what: { kind: 'tag', value: what } };
  throw new TailcastError('CONFIG_INVALID', `viewers: ${what} is none of namespace:…, user:… and tag:…`);
}

/**
 * Checks who may name viewers: tags and stable node IDs. Nothing else, because names of nodes can be taken over, and a
 * login is every machine of its owner.
 * @throws TailcastError `CONFIG_INVALID` naming the entry.
 */
export function parseTrustedGateway(text: string): string {
  if (/^(?:tag:[A-Za-z0-9-]+|[A-Za-z0-9_-]+)$/.test(text)) return text;
  throw new TailcastError('CONFIG_INVALID', `trustedGateways: ${text} is neither a tag nor a stable node ID`);
}

/** Whether the node behind a connection is among those that may name viewers. */
export function mayNameViewers(trusted: readonly string[], { nodeId, tags = [] }: Viewer): boolean {
  return trusted.some((name) => name === nodeId || tags.includes(name));
}

/** What `viewer` may see. No rules: everything. */
export function scopeOf(rules: readonly ViewRule[], viewer: Viewer): Scope {
  if (rules.length === 0) return 'everything';
  const names = ['*', viewer.user, ...(viewer.tags ?? [])];
  const granted = rules.filter(({ who }) => names.includes(who)).map(({ what }) => markOf(what));
  const marks = granted.filter((mark) => mark !== undefined);
  return marks.length < granted.length ? 'everything' : [...new Set(marks)];
}

/** The mark that a recording must have for the rule; undefined: any recording will do. */
function markOf(what: ViewRule['what']): string | undefined {
  switch (what.kind) {
    case 'everything':
      return undefined;
    case 'namespace':
    case 'user':
      return `${what.kind}:${what.value}`;
    case 'tag':
      return what.value;
  }
}

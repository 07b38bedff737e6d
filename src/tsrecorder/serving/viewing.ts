/**
 * Who may see which recordings. Pure but for what asks who somebody is.
 *
 * A rule is `<who>` or `<who>=<what>`: who is `*`, a login name or a tag of the viewer's node; what is
 * `namespace:<name>` (of the session), `user:<login>` or `tag:<name>` (of the person or node whose session it was).
 * Without rules everybody whom the network lets in may see everything.
 */
import { TailcastError } from '../../errors.ts';
import type { Recording } from '../library/recording.ts';

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

/** Whether `viewer` may see `recording`. No rules: everybody may. */
export function mayView(rules: readonly ViewRule[], viewer: Viewer, recording: Recording): boolean {
  if (rules.length === 0) return true;
  const names = ['*', viewer.user, ...(viewer.tags ?? [])];
  return rules.some(({ who, what }) => names.includes(who) && covers(what, recording));
}

/** Whether `viewer` may see anything that is about no single recording, e.g. events. */
export function mayViewEverything(rules: readonly ViewRule[], viewer: Viewer): boolean {
  const names = ['*', viewer.user, ...(viewer.tags ?? [])];
  return (
    rules.length === 0 || rules.some(({ who, what }) => names.includes(who) && what.kind === 'everything')
  );
}

function covers(what: ViewRule['what'], { kubernetes, source }: Recording): boolean {
  switch (what.kind) {
    case 'everything':
      return true;
    case 'namespace':
      return kubernetes?.namespace === what.value;
    case 'user':
      return source.user === what.value;
    case 'tag':
      return source.tags?.includes(what.value) === true;
  }
}

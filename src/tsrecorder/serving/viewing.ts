/**
 * Access rules for viewers. Pure functions.
 *
 * A rule is `<who>` or `<who>=<what>`. `<who>` is `*`, a login, or a tag of the viewer's node. `<what>` is
 * `cluster:<name>`, `namespace:<name>` or `namespace:<cluster>/<name>` of the session, or `user:<login>` or
 * `tag:<name>` of the client that started the session. Without rules, every viewer with network access may see
 * everything. `<who>=review` allows viewers to write comments and tags on the recordings that they may see. `<who>=end`
 * allows viewers to end, pause and resume the sessions that they may see.
 */
import { TailcastError } from '../../errors.ts';
import type { Scope } from '../library/scope.ts';

/**
 * A viewer. The tailnet identifies the peer of the connection. A trusted gateway can name the user of its portal
 * instead.
 */
export interface Viewer {
  readonly node: string;
  readonly nodeId: string;
  /** IP address of the viewer. */
  readonly address?: string;
  /** Login of the user; undefined for a tagged node. */
  readonly user?: string;
  /** Tags of the node; undefined for a node of a user. */
  readonly tags?: readonly string[];
  /** The gateway, if the viewer uses the portal of a gateway. In this case, the gateway has identified the viewer. */
  readonly gateway?: Pick<Viewer, 'node' | 'nodeId' | 'address'>;
}

/** Returns the owner of a viewer's requests, for limits per owner. All nodes of a user count as one owner. */
export function ownerOf({ user, nodeId }: Pick<Viewer, 'user' | 'nodeId'>): string {
  return user === undefined ? `node ${nodeId}` : `user ${user}`;
}

/** Rights that a rule can grant in addition to viewing recordings. */
const RIGHTS = ['review', 'end'] as const;
export type ViewerRight = (typeof RIGHTS)[number];

/** A rule that gives viewers access to recordings. */
export interface ViewRule {
  readonly viewer: string;
  readonly scope:
    | { readonly kind: 'everything' | ViewerRight }
    | { readonly kind: 'cluster' | 'namespace' | 'user' | 'tag'; readonly value: string };
}

/** Parses a rule. @throws TailcastError `CONFIG_INVALID` with the rule */
export function parseViewRule(text: string): ViewRule {
  const [, viewer = '', scope] = /^([^=\s]+)(?:=(\S+))?$/.exec(text) ?? [];
  if (viewer === '')
    throw new TailcastError('CONFIG_INVALID', `viewers: ${text} is not <who> or <who>=<what>`);
  // A login without `@` is valid: Headscale has such users.
  if (/^(?:auto)?group:/.test(viewer))
    throw new TailcastError(
      'CONFIG_INVALID',
      `viewers: ${viewer} is a group of the tailnet policy, which recorders cannot resolve: list its logins, ` +
        'tags of nodes (tag:…) or *',
    );
  if (scope === undefined) return { viewer, scope: { kind: 'everything' } };
  const right = RIGHTS.find((known) => known === scope);
  if (right !== undefined) return { viewer, scope: { kind: right } };
  const [, kind, value = ''] = /^(cluster|namespace|user):(.+)$/.exec(scope) ?? [];
  if (kind === 'cluster' || kind === 'namespace' || kind === 'user')
    return { viewer, scope: { kind, value } };
  if (/^tag:.+$/.test(scope)) return { viewer, scope: { kind: 'tag', value: scope } };
  throw new TailcastError(
    'CONFIG_INVALID',
    `viewers: ${scope} is not review, end, cluster:…, namespace:…, user:… or tag:…`,
  );
}

/**
 * Parses a tag or a stable node ID of a gateway that may name viewers. Node names and logins are not allowed: node
 * names can be reassigned, and a login covers all machines of its owner.
 * @throws TailcastError `CONFIG_INVALID` with the entry
 */
export function parseTrustedGateway(text: string): string {
  if (/^(?:tag:[A-Za-z0-9-]+|[A-Za-z0-9_-]+)$/.test(text)) return text;
  throw new TailcastError('CONFIG_INVALID', `trustedGateways: ${text} is neither a tag nor a stable node ID`);
}

/** True if the peer may name viewers. */
export function mayNameViewers(trusted: readonly string[], { nodeId, tags = [] }: Viewer): boolean {
  return trusted.some((name) => name === nodeId || tags.includes(name));
}

/** Returns the scope of a viewer. Without rules: everything. */
export function scopeOf(rules: readonly ViewRule[], viewer: Viewer): Scope {
  if (rules.length === 0) return 'everything';
  const views = rules.filter((rule) => !isRight(rule) && isFor(rule, viewer));
  const granted = views.map(({ scope }) => markOf(scope));
  const marks = granted.filter((mark) => mark !== undefined);
  return marks.length < granted.length ? 'everything' : [...new Set(marks)];
}

/**
 * For a viewer without a matching rule, returns a field with the viewer's login or node name. Otherwise returns an
 * empty object.
 */
export function noRuleField(scope: Scope, { user, node }: Viewer): { readonly noRuleFor?: string } {
  return scope.length === 0 ? { noRuleFor: user ?? node } : {};
}

/**
 * Returns true if a viewer may write comments and tags. Returns false for viewers who use a portal, because portals
 * forward no request bodies.
 */
export function mayReview(rules: readonly ViewRule[], viewer: Viewer): boolean {
  if (viewer.gateway !== undefined) return false;
  return hasRight(rules, viewer, 'review');
}

/** True if a viewer may end, pause and resume sessions that the viewer may see. */
export function mayEnd(rules: readonly ViewRule[], viewer: Viewer): boolean {
  return hasRight(rules, viewer, 'end');
}

function hasRight(rules: readonly ViewRule[], viewer: Viewer, right: ViewerRight): boolean {
  return rules.some((rule) => rule.scope.kind === right && isFor(rule, viewer));
}

function isRight({ scope }: ViewRule): boolean {
  return RIGHTS.some((right) => right === scope.kind);
}

function isFor({ viewer }: ViewRule, { user, tags = [] }: Viewer): boolean {
  return viewer === '*' || viewer === user || tags.includes(viewer);
}

/**
 * Returns the access mark (see `scope.ts`) that a recording must have for this rule; undefined if the rule applies to
 * all recordings.
 */
function markOf(scope: ViewRule['scope']): string | undefined {
  switch (scope.kind) {
    case 'everything':
    case 'review':
    case 'end':
      return undefined;
    case 'cluster':
    case 'namespace':
    case 'user':
      return `${scope.kind}:${scope.value}`;
    case 'tag':
      return scope.value;
  }
}

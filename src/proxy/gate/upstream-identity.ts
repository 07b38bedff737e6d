/** Determines the identity that the gateway sends to the API server with a request. */
import type { UpstreamIdentity } from '../../impersonation/apply.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import { AUDIT_EXTRA } from '../../kube/audit-extras.ts';
import type { AccessRule } from '../../tailnet/access-rules.ts';
import type { Identity } from '../../tailnet/identity.ts';

interface IdentityDeps {
  readonly auditExtras?: boolean;
  readonly requestHeader?: boolean;
  /** Access reviews of callers; undefined if disabled. */
  readonly reviews?: unknown;
  readonly authorization: () => Promise<string | undefined>;
}

/**
 * Returns the identity of a request, with the extras for the audit log.
 *
 * If the gateway names the caller in request headers, the API server itself checks whether the caller may use `--as`.
 * Access reviews and rules about access on request check the caller and not the `--as` user. If such checks apply, the
 * gateway therefore does not forward `--as`.
 */
export async function upstreamIdentity(
  deps: IdentityDeps,
  target: ImpersonationTarget | undefined,
  about: {
    readonly id: string;
    readonly identity: Identity;
    readonly request: { readonly upgrade: boolean };
    readonly access: readonly AccessRule[] | undefined;
    /** Identity of the caller. `target` differs from it if access on request changes the user. */
    readonly own: ImpersonationTarget | undefined;
  },
): Promise<UpstreamIdentity> {
  if (target === undefined) return { mode: 'noauth' };
  const { identity, access, own } = about;
  const named = deps.auditExtras === true ? withExtras(target, about) : target;
  const authorization = await deps.authorization();
  if (deps.requestHeader !== true) return { mode: 'auth', target: named, authorization };
  const uid = identity.kind === 'user' ? String(identity.userId) : identity.nodeId;
  const isOwn = target.user === own?.user;
  const passImpersonation = deps.reviews === undefined && access === undefined;
  return { mode: 'requestHeader', target: named, ...(isOwn ? { uid } : {}), passImpersonation };
}

function withExtras(
  target: ImpersonationTarget,
  { id, identity, request }: Parameters<typeof upstreamIdentity>[2],
): ImpersonationTarget {
  const session = request.upgrade ? ([[AUDIT_EXTRA.session, id]] as const) : [];
  const ours = [[AUDIT_EXTRA.node, identity.nodeId], ...session] as const;
  return { ...target, extra: [...target.extra, ...ours] };
}

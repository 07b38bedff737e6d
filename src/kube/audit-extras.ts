/**
 * Keys of the extras of a user by which the API server's audit log knows a gateway's requests, lower-case and with a
 * domain, as constrained impersonation wants them. `session` is on upgrades only, so that a cluster can refuse sessions
 * which did not come through the gateway. Ordinary requests carry nothing that is different each time: authorizers keep
 * their answers by the whole user, extras included.
 */
export const AUDIT_EXTRA = {
  node: 'tailcast.dev/node',
  session: 'tailcast.dev/session',
} as const;

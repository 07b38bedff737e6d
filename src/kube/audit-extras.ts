/**
 * Keys of user extras that identify a gateway's requests in the API server's audit log. The keys are in lower case
 * and have a domain, as constrained impersonation requires. Only upgrade requests have `session`. A cluster can
 * therefore refuse sessions without this extra, which did not pass through a gateway. Other requests have no unique
 * values, because authorizers cache decisions by the complete user, including extras.
 */
export const AUDIT_EXTRA = {
  node: 'tailcast.dev/node',
  session: 'tailcast.dev/session',
} as const;

/** Keys of user extras on requests with access on request: its id, the requester, and each approver. */
export const ELEVATION_EXTRA = {
  request: 'tailcast.dev/access-request',
  requester: 'tailcast.dev/requester',
  approver: 'tailcast.dev/approver',
} as const;

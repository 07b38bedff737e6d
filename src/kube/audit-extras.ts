/**
 * Keys of user extras that identify a gateway's requests in the API server's audit log. The keys are in lower case and
 * have a domain, as constrained impersonation requires. Only upgrade requests have the extra `session`. An admission
 * policy of the cluster can therefore refuse sessions without this extra, because they did not pass through a gateway.
 * The extras of other requests are the same for each request of a user, because authorizers cache decisions by the
 * complete user, including extras.
 */
export const AUDIT_EXTRA = {
  node: 'tailcast.dev/node',
  session: 'tailcast.dev/session',
} as const;

/**
 * Keys of user extras of API requests that use rights from an access request: the id of the access request, its
 * requester, and each approver.
 */
export const ELEVATION_EXTRA = {
  request: 'tailcast.dev/access-request',
  requester: 'tailcast.dev/requester',
  approver: 'tailcast.dev/approver',
} as const;

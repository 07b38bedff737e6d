/**
 * Headers of the portal's responses. Scripts under the gateway's hostname can call the API server as the viewer. The
 * portal therefore serves only the player of the gateway's own build. Its Content-Security-Policy allows scripts and
 * requests only below the portal's path, because other paths of this hostname may belong to a pod.
 */

export const PORTAL_PATH = '/-/recordings';

/** Headers of every response of the portal. */
const COMMON_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

/**
 * Headers of data and error responses. With these headers, a browser executes no script in the response, even if it
 * shows the response as a page.
 */
export const DATA_HEADERS: Readonly<Record<string, string>> = {
  ...COMMON_HEADERS,
  'content-security-policy':
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
};

/**
 * Matches hosts that a Content-Security-Policy can contain. A Content-Security-Policy cannot contain an IPv6 address.
 * If the page is served at an IPv6 address, its policy therefore allows all paths of the page's origin.
 */
const POLICY_HOST = /^[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?(?::\d{1,5})?$/i;

/**
 * Headers of the page and its files.
 * @param host the `Host` header of the request
 */
export function pageHeaders(host: string): Readonly<Record<string, string>> {
  const known = POLICY_HOST.test(host);
  const assets = known ? `https://${host}${PORTAL_PATH}/assets/` : "'self'";
  const images = known ? `https://${host}${PORTAL_PATH}/` : "'self'";
  const calls = known ? `https://${host}${PORTAL_PATH}/api/ wss://${host}${PORTAL_PATH}/api/` : "'self'";
  const policy = [
    "default-src 'none'",
    `script-src ${assets}`,
    `style-src ${assets}`,
    `img-src ${images} data:`,
    `font-src ${assets} data:`,
    `connect-src ${calls}`,
    `worker-src ${assets}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
  return { ...COMMON_HEADERS, 'content-security-policy': policy };
}

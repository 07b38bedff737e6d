/**
 * Rules for responses that a browser renders under the gateway's hostname (ADR 11).
 *
 * The tailnet identifies the machine, so every page under the gateway's origin could act with the rights of
 * the user who opened it. A response of the API server may be a page of a pod, a Service, a node or an
 * aggregated API. The gateway therefore adds headers that give the document an opaque origin, without scripts
 * and storage. By default, it rejects requests for pages of programs in the cluster.
 */
import type { RequestClass } from '../../kube/interactive.ts';
import { TailcastError } from '../../errors.ts';
import { headerLines, onlyLine } from '../../kube/headers.ts';

/**
 * Treatment of pages of programs in the cluster. `refuse`: the browser gets an error that explains how to open the
 * page. `sandbox`: the browser shows the page without scripts, forms and storage.
 */
export const PROGRAM_PAGES = ['refuse', 'sandbox'] as const;
export type ProgramPages = (typeof PROGRAM_PAGES)[number];

/**
 * True if a browser will render the response under the gateway's hostname. Every browser sends a `User-Agent` with
 * `Mozilla`. Newer browsers also send `Sec-Fetch-*` headers, which pages cannot change. Pages behind `kubectl proxy`
 * are excluded, because their origin is that proxy on the user's machine. Only that proxy adds a loopback address to
 * `X-Forwarded-For`. A page cannot set this header on requests whose response the browser renders.
 *
 * @param rawHeaders flat, as received
 */
export function isShownByBrowser(rawHeaders: readonly string[]): boolean {
  let browser = false;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]?.toLowerCase() ?? '';
    if (name.startsWith('sec-fetch-')) browser = true;
    else if (name === 'user-agent' && rawHeaders[index + 1]?.startsWith('Mozilla/') === true) browser = true;
  }
  return browser && !LOOPBACK.test(onlyLine(rawHeaders, 'x-forwarded-for') ?? '');
}

const LOOPBACK = /^(?:127(?:\.\d{1,3}){3}|::1)$/;

/**
 * Values of `Sec-Fetch-Dest` for requests whose response goes to a script and is not shown: `fetch` and
 * WebSockets.
 */
const DATA_USES: ReadonlySet<string> = new Set(['empty', 'websocket']);
/** Request classes whose responses come from a program in the cluster. */
const PROGRAMS: ReadonlySet<RequestClass> = new Set([
  'nodeProxy',
  'podProxy',
  'serviceProxy',
  'otherProxy',
  'unknownSubresource',
]);

/**
 * @param request.shown result of `isShownByBrowser`
 * @throws TailcastError `POLICY_REFUSED` for every service worker, and for a web page of a program in the cluster if
 *   `pages` does not allow it
 */
export function refusePages(
  request: {
    readonly rawHeaders: readonly string[];
    readonly shown: boolean;
    readonly requestClass: RequestClass;
  },
  pages: ProgramPages,
): void {
  const { rawHeaders, shown, requestClass } = request;
  const uses = headerLines(rawHeaders, 'sec-fetch-dest').map((use) => use.toLowerCase());
  if (headerLines(rawHeaders, 'service-worker').length > 0 || uses.includes('serviceworker')) {
    throw new TailcastError('POLICY_REFUSED', 'service workers are not allowed behind the gateway');
  }
  if (!shown || pages === 'sandbox' || !PROGRAMS.has(requestClass)) return;
  const navigates = headerLines(rawHeaders, 'sec-fetch-mode').some(
    (mode) => mode.toLowerCase() === 'navigate',
  );
  if (navigates || uses.some((use) => !DATA_USES.has(use))) {
    throw new TailcastError(
      'POLICY_REFUSED',
      'a page of a program in the cluster would act as you under this name; open it with kubectl proxy or kubectl port-forward',
    );
  }
}

/** Response headers that a browser may get: they describe the response and have no lasting effect. */
const SHOWN_FIELDS: ReadonlySet<string> = new Set([
  'accept-patch',
  'accept-ranges',
  'age',
  'allow',
  'audit-id',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-length',
  'content-range',
  'content-type',
  'date',
  'etag',
  'last-modified',
  'retry-after',
  'vary',
  'warning',
]);

/**
 * Headers that forbid scripts, forms, frames, workers, plugins, popups and automatic downloads. The page gets an opaque
 * origin, so the gateway rejects its requests as foreign. The page cannot be framed or cached.
 */
const POLICY: readonly string[] = [
  'Content-Security-Policy',
  "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options',
  'nosniff',
  'X-Frame-Options',
  'DENY',
  'Cross-Origin-Opener-Policy',
  'same-origin',
  'Cross-Origin-Resource-Policy',
  'same-origin',
  'Referrer-Policy',
  'no-referrer',
  'Cache-Control',
  'no-store',
];

/**
 * Returns the response headers for a browser: `SHOWN_FIELDS`, `X-Kubernetes-*` and `POLICY`. All other headers are
 * removed, for example cookies, redirects, `Link`, `Service-Worker-Allowed`, `WWW-Authenticate` and all CORS headers.
 *
 * @param fields flat, without hop-by-hop headers
 */
export function fieldsForBrowser(fields: readonly string[]): readonly string[] {
  const kept: string[] = [];
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? '';
    const lower = name.toLowerCase();
    if (SHOWN_FIELDS.has(lower) || lower.startsWith('x-kubernetes-'))
      kept.push(name, fields[index + 1] ?? '');
  }
  return [...kept, ...POLICY];
}

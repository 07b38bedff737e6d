/**
 * What a browser may be shown under the gateway's name (ADR 11).
 *
 * The tailnet vouches for the machine, so every page of the gateway's origin would act as whoever looks at it. What comes
 * from the API server may be a page: of a pod, a service, a node, an aggregated API. So a browser gets it as a document
 * of no origin, in which nothing runs, and nothing of it stays behind. Programs are not shown as pages at all unless the
 * policy says so.
 */
import type { RequestClass } from '../../kube/interactive.ts';
import { TailcastError } from '../../errors.ts';
import { headerLines, onlyLine } from '../../kube/header-lines.ts';

/** `refuse`: a browser that wants a page of a program is told how to see it; `sandbox`: it is shown, and may do nothing. */
export const PROGRAM_PAGES = ['refuse', 'sandbox'] as const;
export type ProgramPages = (typeof PROGRAM_PAGES)[number];

/**
 * Whether a browser shows the answer under the gateway's name. Every browser calls itself Mozilla; newer ones also say
 * what a request is for, which pages cannot change. Behind `kubectl proxy` a page has the origin of that proxy, on the
 * user's own machine; it is the only one whose client is on loopback, and no page can make a browser say so.
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

/** Uses of an answer in which it is data for a script that was let in: `fetch` and WebSockets. */
const DATA_USES: ReadonlySet<string> = new Set(['empty', 'websocket']);
/** Classes of which a program in the cluster gives the answer. */
const PROGRAMS: ReadonlySet<RequestClass> = new Set([
  'nodeProxy',
  'podProxy',
  'serviceProxy',
  'otherProxy',
  'unknownSubresource',
]);

/**
 * @param request.shown see `isShownByBrowser`
 * @throws TailcastError `POLICY_REFUSED` for a service worker, and for a program's page unless `pages` allows it
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
    throw new TailcastError('POLICY_REFUSED', 'nothing behind the gateway may be a service worker');
  }
  if (!shown || pages === 'sandbox' || !PROGRAMS.has(requestClass)) return;
  const navigates = headerLines(rawHeaders, 'sec-fetch-mode').some(
    (mode) => mode.toLowerCase() === 'navigate',
  );
  if (navigates || uses.some((use) => !DATA_USES.has(use))) {
    throw new TailcastError(
      'POLICY_REFUSED',
      'a page of a program in the cluster would act as you under this name; look at it through kubectl proxy or kubectl port-forward',
    );
  }
}

/** Fields that say what the body is, or what is asked of the client, and that leave nothing behind. */
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
 * No scripts, forms, frames, workers, plugins, popups or downloads that a page begins; an origin of its own, which the
 * gateway takes for foreign; framed by nobody; not kept.
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
 * The fields of a response as a browser gets them. What is left out, among others: cookies, redirects, `Refresh`, `Link`,
 * `Clear-Site-Data`, `Service-Worker-Allowed`, `Strict-Transport-Security`, `WWW-Authenticate`, and everything that
 * would let other origins in.
 *
 * @param fields flat, with what ends at this proxy already removed
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

/** What a browser keeps of an answer to a handshake, whatever becomes of the connection. */
const KEPT_OF_HANDSHAKES: ReadonlySet<string> = new Set([
  'alt-svc',
  'clear-site-data',
  'nel',
  'report-to',
  'reporting-endpoints',
  'set-cookie',
  'set-cookie2',
  'strict-transport-security',
  'www-authenticate',
]);

/** The fields of an answer to a WebSocket handshake as a browser gets them. */
export function handshakeForBrowser(fields: readonly string[]): readonly string[] {
  return fields.filter(
    (_, index) => !KEPT_OF_HANDSHAKES.has((fields[index - (index % 2)] ?? '').toLowerCase()),
  );
}

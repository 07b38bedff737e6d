/**
 * Values of the `Warning` header (RFC 7234 section 5.5), which kubectl prints. They have the form that the parser in
 * `k8s.io/apimachinery/pkg/util/net` accepts.
 */
import { bearerSubprotocols, headerLines } from './headers.ts';

const MAX_WARNING_LENGTH = 512;

/**
 * Returns the header value `299 - "text"`. Characters other than printable ASCII become `?`. Long texts are truncated.
 */
export function formatWarning(text: string): string {
  const printable = text.slice(0, MAX_WARNING_LENGTH).replaceAll(/[^ -~]/g, '?');
  return `299 - "${printable.replaceAll(/["\\]/g, '\\$&')}"`;
}

/**
 * Returns the texts of the `Warning: 299` headers that the gateway adds to a response of the API server.
 *
 * @param request the admitted request, with the headers that were sent to the API server
 * @param status status code of the response
 */
export function responseWarnings(
  request:
    | {
        readonly headers: readonly string[];
        readonly impersonation?: object | undefined;
        readonly elevation?: { readonly warning: string } | undefined;
      }
    | undefined,
  status: number,
): readonly string[] {
  if (request?.elevation !== undefined) return [request.elevation.warning];
  if (status !== UNAUTHORIZED || request === undefined || request.impersonation !== undefined)
    return NO_WARNINGS;
  return hasCredential(request.headers) ? NO_WARNINGS : NO_CREDENTIAL;
}

const UNAUTHORIZED = 401;
const NO_WARNINGS: readonly string[] = [];
/** TLS ends at the gateway, so a client certificate never reaches the API server. */
const NO_CREDENTIAL: readonly string[] = [
  'the request has no Authorization header; client certificates do not pass through this gateway: ' +
    'use a token or an exec plugin in the kubeconfig',
];

function hasCredential(headers: readonly string[]): boolean {
  return (
    headerLines(headers, 'authorization').some((value) => value !== '') ||
    headerLines(headers, 'sec-websocket-protocol').some((value) => bearerSubprotocols(value).length > 0)
  );
}

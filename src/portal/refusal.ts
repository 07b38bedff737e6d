/** The response of a refusal: a page if the client accepts HTML, a `metav1.Status` otherwise. */
import { STATUS_CODES } from 'node:http';
import { errorText, TailcastError } from '../errors.ts';
import { statusOf } from '../kube/status.ts';
import { headerLines } from '../kube/header-lines.ts';
import { DATA_HEADERS } from './page-headers.ts';

export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** @param rawHeaders of the request, as received */
export function refusalOf(error: unknown, rawHeaders: readonly string[]): Refusal {
  const { httpStatus, body, retryAfterSeconds } = statusOf(error);
  const wantsPage = headerLines(rawHeaders, 'accept').some((line) => /(?:^|[,\s])text\/html\b/i.test(line));
  const bytes = Buffer.from(wantsPage ? pageOf(httpStatus, error) : body);
  const headers = {
    ...DATA_HEADERS,
    'content-type': wantsPage ? 'text/html; charset=utf-8' : 'application/json',
    'cache-control': 'no-store',
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    ...(httpStatus === 405 ? { allow: 'GET' } : {}),
  };
  return { status: httpStatus, headers, body: bytes };
}

function pageOf(status: number, error: unknown): string {
  const sentence = error instanceof TailcastError ? errorText(error) : 'internal error in tailcast';
  const title = escapeHtml(`${status} ${STATUS_CODES[status] ?? ''}`.trim());
  return (
    '<!doctype html>\n<html lang="en"><meta ' +
    `charset="utf-8"><title>${title}</title>\n<h1>${title}</h1>\n<p>${escapeHtml(sentence)}</p>\n</html>\n`
  );
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

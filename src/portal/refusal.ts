/** What somebody sees who is refused: a page for a browser that asked for one, a `metav1.Status` for everybody else. */
import { STATUS_CODES } from 'node:http';
import { errorText, TailcastError } from '../errors.ts';
import { statusOf } from '../kube/status.ts';
import { headerLines } from '../kube/header-lines.ts';
import { DATA_HEADERS } from './pages.ts';

export interface Refusal {
  readonly status: number;
  /** Flat list. */
  readonly fields: readonly string[];
  readonly body: Buffer;
}

/** @param rawHeaders of the request, as received */
export function refusalOf(error: unknown, rawHeaders: readonly string[]): Refusal {
  const { httpStatus, body, retryAfterSeconds } = statusOf(error);
  const wantsPage = headerLines(rawHeaders, 'accept').some((line) => /(?:^|[,\s])text\/html\b/i.test(line));
  const bytes = Buffer.from(wantsPage ? pageOf(httpStatus, error) : body);
  const fields = [
    ...DATA_HEADERS,
    'content-type',
    wantsPage ? 'text/html; charset=utf-8' : 'application/json',
    'cache-control',
    'no-store',
    ...(retryAfterSeconds === undefined ? [] : ['retry-after', String(retryAfterSeconds)]),
    ...(httpStatus === 405 ? ['allow', 'GET'] : []),
  ];
  return { status: httpStatus, fields, body: bytes };
}

function pageOf(status: number, error: unknown): string {
  const sentence = error instanceof TailcastError ? errorText(error) : 'internal error in tailcast';
  const title = escapeHtml(`${status} ${STATUS_CODES[status] ?? ''}`.trim());
  return `<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>${title}</title>\n<h1>${title}</h1>\n<p>${escapeHtml(sentence)}</p>\n</html>\n`;
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

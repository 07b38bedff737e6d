/** Creates error responses: a page if the client accepts HTML, a `metav1.Status` otherwise. */
import { STATUS_CODES } from 'node:http';
import { errorText, TailcastError } from '../errors.ts';
import { statusOf } from '../kube/status.ts';
import { headerLines } from '../kube/headers.ts';
import { DATA_HEADERS } from './page-headers.ts';

export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** The request that is refused. */
export interface RefusedRequest {
  readonly method: string;
  /** Path without its query. */
  readonly path: string;
  /** Headers as received: a flat list of names and values. */
  readonly rawHeaders: readonly string[];
  /** Login or node name of the viewer; undefined before the gateway has admitted the request. */
  readonly viewer: string | undefined;
}

/**
 * Returns the refusal for an error. A refusal with 403 contains the name of the viewer, as in refusals of recorders.
 */
export function refusalOf(error: unknown, request: RefusedRequest): Refusal {
  const { httpStatus, body, retryAfterSeconds } = statusOf(error, request.viewer);
  const accepted = headerLines(request.rawHeaders, 'accept');
  const wantsPage = accepted.some((line) => /(?:^|[,\s])text\/html\b/i.test(line));
  const advice = httpStatus === 403 ? adviceFor(request) : [];
  const bytes = Buffer.from(wantsPage ? pageOf(httpStatus, [sentenceOf(error), ...advice]) : body);
  const headers = {
    ...DATA_HEADERS,
    'content-type': wantsPage ? 'text/html; charset=utf-8' : 'application/json',
    'cache-control': 'no-store',
    ...(retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) }),
    ...(httpStatus === 405 ? { allow: 'GET' } : {}),
  };
  return { status: httpStatus, headers, body: bytes };
}

function sentenceOf(error: unknown): string {
  return error instanceof TailcastError ? errorText(error) : 'internal error in tailcast';
}

function adviceFor({ method, path, viewer }: RefusedRequest): readonly string[] {
  return [
    viewer === undefined ? 'This response does not contain your name.' : `You are ${viewer}.`,
    `You requested: ${method} ${path}`,
    'The tailnet policy and the settings of the gateway decide who may use it. ' +
      'Ask the administrator of the gateway for access, and quote the sentences above.',
  ];
}

function pageOf(status: number, sentences: readonly string[]): string {
  const title = escapeHtml(`${status} ${STATUS_CODES[status] ?? ''}`.trim());
  const paragraphs = sentences.map((sentence) => `<p>${escapeHtml(sentence)}</p>`).join('\n');
  return (
    '<!doctype html>\n<html lang="en"><meta ' +
    `charset="utf-8"><title>${title}</title>\n<h1>${title}</h1>\n${paragraphs}\n</html>\n`
  );
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

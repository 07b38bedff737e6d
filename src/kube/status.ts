/**
 * Converts errors to a `metav1.Status`, which Kubernetes clients expect. kubectl prints its `message`, and client
 * libraries read `reason` and `code`. `details.causes` contains tailcast's stable error code.
 */
import { ERROR_TABLE, TailcastError, type ErrorCode } from '../errors.ts';
import { safeLine } from '../safe-text.ts';

export interface StatusResponse {
  readonly httpStatus: number;
  /** JSON text without a trailing newline. */
  readonly body: string;
  /** Value of the `Retry-After` header, if the client should retry. */
  readonly retryAfterSeconds: number | undefined;
}

/** Maximum length of `message`, in characters. */
const MAX_MESSAGE_LENGTH = 2048;
const RETRY_AFTER_SECONDS = 1;
const RETRYABLE: ReadonlySet<ErrorCode> = new Set([
  'OVERLOADED',
  'SHUTTING_DOWN',
  'IDENTITY_UNAVAILABLE',
  'ACCESS_REVIEW_FAILED',
  'UPSTREAM_REFUSED_ACCOUNT',
  'SEARCH_BUSY',
]);

/**
 * Converts an error to a response. An error that is not a `TailcastError` becomes a 500 without internal details.
 *
 * @param viewer name of the viewer, which a 403 of the portal contains
 */
export function statusOf(error: unknown, viewer?: string): StatusResponse {
  const code: ErrorCode = error instanceof TailcastError ? error.code : 'INTERNAL';
  const message = error instanceof TailcastError ? error.message : ERROR_TABLE.INTERNAL.message;
  const { status, reason } = ERROR_TABLE[code];
  const retryAfterSeconds = RETRYABLE.has(code) ? RETRY_AFTER_SECONDS : undefined;
  const body = {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: safeLine(message.slice(0, MAX_MESSAGE_LENGTH)),
    reason,
    details: {
      causes: [{ reason: 'TailcastCode', message: code }],
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    },
    code: status,
    ...(status === 403 && viewer !== undefined ? { viewer } : {}),
  };
  return { httpStatus: status, body: escapeForHtml(JSON.stringify(body)), retryAfterSeconds };
}

/** Headers of every status response, except those for length and framing. */
export const STATUS_HEADERS: readonly string[] = [
  'Content-Type',
  'application/json',
  'X-Content-Type-Options',
  'nosniff',
  'Cache-Control',
  'no-cache, private',
];

/**
 * Returns a complete HTTP/1.1 response for a socket without a response object. The connection closes after this
 * response.
 */
export function rawStatusResponse(error: unknown): Uint8Array {
  const { httpStatus, body, retryAfterSeconds } = statusOf(error);
  const retry = retryAfterSeconds === undefined ? [] : ['Retry-After', String(retryAfterSeconds)];
  const headers = [
    ...STATUS_HEADERS,
    ...retry,
    'Content-Length',
    String(Buffer.byteLength(body)),
    'Connection',
    'close',
  ];
  let head = `HTTP/1.1 ${httpStatus} ${PHRASES[httpStatus] ?? 'Error'}\r\n`;
  for (let index = 0; index < headers.length; index += 2)
    head += `${headers[index]}: ${headers[index + 1]}\r\n`;
  return Buffer.from(`${head}\r\n${body}`);
}

/** Reason phrases (RFC 9110 section 15) of the HTTP statuses in the error table, and of similar statuses. */
const PHRASES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  408: 'Request Timeout',
  409: 'Conflict',
  410: 'Gone',
  412: 'Precondition Failed',
  413: 'Content Too Large',
  414: 'URI Too Long',
  415: 'Unsupported Media Type',
  416: 'Range Not Satisfiable',
  421: 'Misdirected Request',
  422: 'Unprocessable Content',
  426: 'Upgrade Required',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  500: 'Internal Server Error',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
  507: 'Insufficient Storage',
};

/** Escapes `<`, `>` and `&` like Go's JSON encoder, so that a browser that sniffs the content type finds no markup. */
function escapeForHtml(json: string): string {
  return json.replaceAll(
    /[&<>\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

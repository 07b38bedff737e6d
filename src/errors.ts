/**
 * The error class for all expected failures, and the table of all error codes.
 *
 * Codes are stable, because clients, dashboards and `docs/errors.md` use them. A Kubernetes client gets `status` and
 * `reason` in a `metav1.Status`. `message` is a sentence for the user. The code that throws can add a `detail`, which
 * is appended after a colon. Message and detail must not contain secrets.
 */

import { safeLines } from './safe-text.ts';

/** Meaning of an error code. `status` is the HTTP status, `reason` the `metav1.StatusReason`. */
export interface ErrorEntry {
  readonly status: number;
  readonly reason: string;
  readonly message: string;
}

/** Reason that Kubernetes uses for each HTTP status. */
const REASONS = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  408: 'Timeout',
  409: 'Conflict',
  413: 'RequestEntityTooLarge',
  414: 'BadRequest',
  421: 'BadRequest',
  429: 'TooManyRequests',
  431: 'BadRequest',
  500: 'InternalError',
  502: 'ServiceUnavailable',
  503: 'ServiceUnavailable',
  507: 'ServiceUnavailable',
} as const;

function entry(status: keyof typeof REASONS, message: string, reason: string = REASONS[status]): ErrorEntry {
  return { status, reason, message };
}

/** All error codes with their texts. */
export const ERROR_TABLE = {
  INTERNAL: entry(500, 'internal error in tailcast'),
  CONFIG_INVALID: entry(500, 'the configuration is not valid'),
  USAGE: entry(400, 'wrong usage'),
  START_FAILED: entry(500, 'tailcast cannot start'),
  ALREADY_RUNNING: entry(409, 'tailcast is already running'),

  // identity of the caller
  IDENTITY_UNKNOWN: entry(401, 'tailscaled does not know the caller of this connection'),
  IDENTITY_UNAVAILABLE: entry(503, 'tailscaled cannot identify the caller at the moment'),
  IDENTITY_MALFORMED: entry(401, 'tailscaled returned an invalid identity'),
  TOKEN_REQUIRED: entry(401, 'the gateway of the demo requires the token of its kubeconfig'),
  GRANT_MALFORMED: entry(403, 'a tailnet grant for this connection is invalid, so nothing is allowed'),

  // tailnet
  TAILNET_UNAVAILABLE: entry(503, 'tailscaled is not available'),
  TAILNET_DIAL_FAILED: entry(502, 'an address could not be reached through the tailnet'),
  CERTIFICATE_UNAVAILABLE: entry(503, 'there is no TLS certificate for this name'),

  // clusters
  CLUSTER_MISSING: entry(
    404,
    'this address serves several clusters and the request names none; use the host name or the path of a cluster',
  ),
  CLUSTER_REFUSED: entry(403, 'there is no such cluster, or no grant of yours names it'),
  CLUSTER_MISMATCH: entry(
    421,
    'the host name, the address and the path of the request name different clusters',
  ),

  // request
  REQUEST_NOT_CANONICAL: entry(400, 'the request target is ambiguous and was refused'),
  HEADER_REFUSED: entry(400, 'a request header was refused'),
  HEADERS_TOO_LARGE: entry(431, 'the request headers are too large'),
  TARGET_TOO_LONG: entry(414, 'the request target is too long'),
  REQUEST_MALFORMED: entry(400, 'the request is not well-formed HTTP'),
  REQUEST_TIMEOUT: entry(408, 'the request did not arrive in time'),
  NOT_FOUND: entry(404, 'the gateway has no such page'),
  METHOD_REFUSED: entry(405, 'the method is not supported'),
  UPGRADE_REFUSED: entry(400, 'the upgrade request is invalid and cannot be recorded'),
  ACCESS_ENDED: entry(403, 'the access to this cluster has ended'),
  SESSION_ENDED: entry(403, 'the session was ended on request'),
  SESSION_REFUSED: entry(403, 'the API server refused the session'),
  SESSION_LIMIT: entry(403, 'the session has reached a limit of the gateway'),
  IMPERSONATION_REFUSED: entry(
    403,
    'the gateway runs each request as your own tailnet identity and refuses --as, --as-group and --as-uid for ' +
      'any other identity',
  ),
  POLICY_REFUSED: entry(403, 'refused by policy'),
  ACCESS_REVIEW_REFUSED: entry(403, 'your rights in the cluster do not allow this request'),
  ACCESS_REVIEW_FAILED: entry(
    503,
    'the API server cannot check at the moment whether this request is allowed',
  ),

  // access on request
  ACCESS_REQUEST_PENDING: entry(403, 'this access needs an approval'),
  ACCESS_REQUEST_REFUSED: entry(403, 'this access is not granted'),
  ACCESS_REQUEST_UNAVAILABLE: entry(503, 'access requests cannot be checked at the moment'),
  ACCESS_REQUEST_UNKNOWN: entry(404, 'there is no such access request'),
  ACCESS_REQUEST_CONFLICT: entry(409, 'someone else changed this access request at the same time'),

  // recording
  RECORDING_REQUIRED: entry(403, 'this session must be recorded, but no recorder accepted it'),
  RECORDER_UNAVAILABLE: entry(503, 'no session recorder could be reached'),
  PORTAL_UNTRUSTED: entry(502, 'the recorder does not trust this gateway to name viewers'),
  RECORDER_LOST: entry(503, 'the session recorder was lost, and this session must be recorded'),
  OUTPUT_LOST: entry(
    500,
    'buffered output cannot be read from the disk of the gateway, so the session was ended',
  ),
  SESSION_VIOLATED: entry(400, 'the session was ended because its stream is invalid'),

  // the recorder
  UPLOAD_REFUSED: entry(403, 'the recorder does not accept this uploader'),
  UPLOAD_MALFORMED: entry(400, 'the upload is not a session recording'),
  UPLOAD_TOO_LARGE: entry(413, 'the upload exceeds a limit of the recorder'),
  SEARCH_UNAVAILABLE: entry(503, 'the search index is not available'),
  SEARCH_BUSY: entry(429, 'too many searches are running; try again in a moment'),
  UPLOAD_CONFLICT: entry(409, 'the upload does not continue a session that the recorder has'),
  STORE_FULL: entry(507, 'the recorder has no space left'),
  ARCHIVE_DAMAGED: entry(500, 'a stored recording is a damaged archive'),
  ARCHIVE_SEALED: entry(500, 'a stored recording is encrypted with a key that is not in the key file'),
  STORE_FAILED: entry(500, 'the store of recordings failed'),
  RECORDER_BUSY: entry(503, 'the recorder is at its limit'),
  VIEW_REFUSED: entry(403, 'you may not see recordings of this recorder'),
  RECORDING_UNKNOWN: entry(404, 'there is no such recording'),
  PLAY_INDEX_UNAVAILABLE: entry(404, 'the recording can be played from its start only'),
  ORDER_REFUSED: entry(403, 'you may not control this session'),
  ORDER_IMPOSSIBLE: entry(409, 'the recorder cannot reach the gateway of this session'),
  ORDER_UNCONFIRMED: entry(503, 'the gateway did not confirm the session order; the session may continue'),
  HOST_REFUSED: entry(421, 'the recorder does not serve this host name'),

  // upstream
  UPSTREAM_UNAVAILABLE: entry(502, 'the Kubernetes API server cannot be reached'),
  UPSTREAM_BROKEN: entry(502, 'the Kubernetes API server returned an invalid response', 'InternalError'),
  UPSTREAM_REFUSED_ACCOUNT: entry(
    503,
    'the Kubernetes API server does not let the gateway’s own account impersonate; this says nothing about your rights',
  ),
  OVERLOADED: entry(429, 'too many requests are in flight'),
  SHUTTING_DOWN: entry(503, 'the gateway is shutting down'),

  // the operator
  CONTROL_FAILED: entry(502, 'the control server of the tailnet refused a request or is not available'),
  CLEANUP_INCOMPLETE: entry(500, 'the operator could not remove all of its objects and nodes'),
  OBJECT_NOT_OURS: entry(409, 'a required object belongs to another owner'),

  // tools
  AUDIT_LOG_UNUSABLE: entry(400, 'the audit log is invalid, so its coverage cannot be judged'),
  RECORDING_MALFORMED: entry(500, 'the recording cannot be read'),
  RECORDER_UNREACHABLE: entry(503, 'the recorder is not available'),

  // wire
  WIRE_MALFORMED: entry(400, 'malformed bytes'),
  WIRE_LIMIT: entry(413, 'a limit of the wire format was exceeded'),
};

export type ErrorCode = keyof typeof ERROR_TABLE;

/** An expected failure with a stable code. `message` is the table's sentence, then `detail` if there is one. */
export class TailcastError extends Error {
  override readonly name = 'TailcastError';
  readonly code: ErrorCode;
  readonly detail: string | undefined;

  constructor(code: ErrorCode, detail?: string, options?: { readonly cause?: unknown }) {
    const { message } = ERROR_TABLE[code];
    // a detail from another error with the same code may already begin with the sentence of the table
    const isComplete = detail === message || detail?.startsWith(`${message}: `) === true;
    // a detail may contain text of a client, a recorder or the API server, which must be safe on terminals
    const safe = detail === undefined ? undefined : safeLines(detail);
    super(safe === undefined ? message : isComplete ? safe : `${message}: ${safe}`, options);
    this.code = code;
    this.detail = safe;
  }

  get entry(): ErrorEntry {
    return ERROR_TABLE[this.code];
  }
}

/**
 * Returns the text of any thrown value, for a `detail` or a log field. For an error of the OS or of TLS, the text is a
 * sentence that contains the file or address, but not the name of the errno.
 */
export function errorText(thrown: unknown): string {
  if (thrown instanceof AggregateError && thrown.message === '') {
    return [...new Set(thrown.errors.map(errorText))].join('; ');
  }
  if (!(thrown instanceof Error)) return String(thrown);
  const reason = reasonOf(thrown);
  if (reason === undefined) return thrown.message;
  const subject = subjectOf(thrown);
  return subject === undefined ? reason : `${subject}: ${reason}`;
}

/**
 * Like {@link errorText}, but without the file or address. Use this function if the message already contains the file
 * or address.
 */
export function errorReason(thrown: unknown): string {
  return (thrown instanceof Error ? reasonOf(thrown) : undefined) ?? errorText(thrown);
}

/** Sentences for error codes of the OS, of TLS and of the HTTP client of Node.js. */
const REASON_TEXTS: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'there is no such file or folder'],
  ['EACCES', 'permission denied'],
  ['EPERM', 'the operation is not permitted'],
  ['EEXIST', 'it exists already'],
  ['EISDIR', 'it is a folder'],
  ['ENOTDIR', 'a part of the path is a file'],
  ['ENOTEMPTY', 'the folder is not empty'],
  ['ENAMETOOLONG', 'the name is too long'],
  ['ELOOP', 'the path has too many symbolic links'],
  ['ENOSPC', 'the disk is full'],
  ['EDQUOT', 'the disk quota is used up'],
  ['EFBIG', 'the file is too large'],
  ['EROFS', 'the file system is read-only'],
  ['EIO', 'the disk reported an error'],
  ['EMFILE', 'this process has too many open files'],
  ['ENFILE', 'the OS has too many open files'],
  ['EADDRINUSE', 'the address is in use'],
  ['EADDRNOTAVAIL', 'this machine does not have the address'],
  ['ECONNREFUSED', 'connection refused'],
  ['ECONNRESET', 'the connection was reset'],
  ['ECONNABORTED', 'the connection was aborted'],
  ['EPIPE', 'the other side closed the connection'],
  ['ETIMEDOUT', 'the connection timed out'],
  ['EHOSTUNREACH', 'no route to the host'],
  ['ENETUNREACH', 'no route to the network'],
  ['ENOTFOUND', 'the host name does not exist'],
  ['EAI_AGAIN', 'the host name cannot be resolved at the moment'],
  ['EPROTO', 'the TLS handshake failed'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'the server does not speak TLS'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'the certificate is for another host name'],
  ['CERT_HAS_EXPIRED', 'the certificate has expired'],
  ['CERT_NOT_YET_VALID', 'the certificate is not valid yet'],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', 'the certificate is self-signed by an unknown CA'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'the certificate is signed by an unknown CA'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'the certificate is signed by an unknown CA'],
  ['UNABLE_TO_GET_ISSUER_CERT', 'the certificate is signed by an unknown CA'],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'the certificate is signed by an unknown CA'],
  ['UND_ERR_CONNECT_TIMEOUT', 'the connection timed out'],
  ['UND_ERR_HEADERS_TIMEOUT', 'the response timed out'],
  ['UND_ERR_BODY_TIMEOUT', 'the response timed out'],
  ['UND_ERR_SOCKET', 'the other side closed the connection'],
]);

function reasonOf(error: Error): string | undefined {
  return 'code' in error ? REASON_TEXTS.get(String(error.code)) : undefined;
}

/** Returns the file, address or host name in an error of the OS. */
function subjectOf(error: Error): string | undefined {
  const { path, address, port, hostname }: Readonly<Record<string, unknown>> = Object.fromEntries(
    Object.entries(error),
  );
  if (typeof path === 'string' && path !== '') return path;
  if (typeof address !== 'string') return typeof hostname === 'string' ? hostname : undefined;
  if (typeof port !== 'number' || port < 0) return address;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Advice for errors of the OS that occur at the start or during an installation. */
const ADVICE: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'another process listens there: stop it (ss -ltnp names it), or choose another port'],
  ['EADDRNOTAVAIL', 'choose an address of this machine'],
  ['ENOSPC', 'free space on the disk, or choose a folder on a larger one; no recording was changed'],
  ['EDQUOT', 'free space within the quota, or choose another folder; no recording was changed'],
  ['EROFS', 'choose a folder on a writable file system'],
  [
    'EACCES listen',
    'ports below 1024 need the capability CAP_NET_BIND_SERVICE: add it, or choose a higher port',
  ],
  ['ENOENT mkdir', 'choose a folder that can be created'],
  ['EACCES mkdir', 'give the folder to the user of this process, or choose another folder'],
  ['EACCES open', 'give the file to the user of this process, or choose another file'],
]);

/** Returns the advice for an error of the OS, or undefined. */
export function adviceOn(thrown: unknown): string | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const code = 'code' in error ? String(error.code) : '';
    const call = 'syscall' in error ? String(error.syscall) : '';
    const advice = ADVICE.get(`${code} ${call}`) ?? ADVICE.get(code);
    if (advice !== undefined) return advice;
  }
  return undefined;
}

/** Returns true for a system error with one of `codes`. */
export function isSystemError(error: unknown, ...codes: readonly string[]): boolean {
  return (
    error instanceof Error && 'code' in error && typeof error.code === 'string' && codes.includes(error.code)
  );
}

/**
 * Waits for an operation on a file or directory.
 * @returns undefined if the file or directory does not exist
 */
export async function ifPresent<T>(operation: Promise<T>): Promise<T | undefined> {
  try {
    return await operation;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Returns the thrown value as an `Error`. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}

/** Returns the thrown value as a TailcastError, by default with the code `INTERNAL`. */
export function asTailcastError(thrown: unknown): TailcastError {
  return thrown instanceof TailcastError
    ? thrown
    : new TailcastError('INTERNAL', errorText(thrown), { cause: thrown });
}

/**
 * Returns a function that throws an error of the OS as a TailcastError `START_FAILED`.
 *
 * @param place one or several addresses
 */
export function cannotListen(place: string): (error: unknown) => never {
  return (error) => {
    const detail = `cannot listen on ${place}: ${errorReason(error)}`;
    throw new TailcastError('START_FAILED', detail, { cause: error });
  };
}

/**
 * The one error class of the project and the table of everything that can go wrong.
 *
 * A code is stable: clients, dashboards and `docs/errors.md` name it. `status` and `reason` are what a Kubernetes
 * client sees in a `metav1.Status`; `message` is written for the person at the terminal and may be refined per
 * throw by `detail`, which is appended after a colon. Never put a secret in either.
 */
export const ERROR_TABLE = {
  INTERNAL: { status: 500, reason: 'InternalError', message: 'internal error in tailcast' },
  CONFIG_INVALID: { status: 500, reason: 'InternalError', message: 'the configuration is not valid' },
  USAGE: { status: 400, reason: 'BadRequest', message: 'wrong usage' },

  // who is calling
  IDENTITY_UNKNOWN: {
    status: 401,
    reason: 'Unauthorized',
    message: 'tailscaled does not know who is behind this connection',
  },
  IDENTITY_UNAVAILABLE: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'tailscaled could not be asked who is calling',
  },
  IDENTITY_MALFORMED: {
    status: 401,
    reason: 'Unauthorized',
    message: 'tailscaled answered with an identity that cannot be used',
  },
  GRANT_MALFORMED: {
    status: 403,
    reason: 'Forbidden',
    message: 'a tailnet grant for this connection could not be understood, so nothing is allowed',
  },

  // the tailnet itself
  TAILNET_UNAVAILABLE: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'tailscaled could not be asked',
  },
  TAILNET_DIAL_FAILED: {
    status: 502,
    reason: 'ServiceUnavailable',
    message: 'an address could not be reached through the tailnet',
  },
  CERTIFICATE_UNAVAILABLE: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'there is no TLS certificate to serve with',
  },

  // what is being asked
  REQUEST_NOT_CANONICAL: {
    status: 400,
    reason: 'BadRequest',
    message: 'the request target is ambiguous and was refused',
  },
  HEADER_REFUSED: { status: 400, reason: 'BadRequest', message: 'a request header was refused' },
  HEADERS_TOO_LARGE: {
    status: 431,
    reason: 'BadRequest',
    message: 'the request has more or longer headers than are accepted',
  },
  REQUEST_MALFORMED: { status: 400, reason: 'BadRequest', message: 'the request is not well-formed HTTP' },
  REQUEST_TIMEOUT: { status: 408, reason: 'Timeout', message: 'the request did not arrive in time' },
  NOT_FOUND: { status: 404, reason: 'NotFound', message: 'the gateway has nothing here' },
  METHOD_REFUSED: { status: 405, reason: 'MethodNotAllowed', message: 'the method is not supported' },
  UPGRADE_REFUSED: {
    status: 400,
    reason: 'BadRequest',
    message: 'the upgrade request cannot be understood, so it cannot be recorded and is refused',
  },
  ACCESS_ENDED: { status: 403, reason: 'Forbidden', message: 'the access to this cluster has ended' },
  SESSION_LIMIT: {
    status: 403,
    reason: 'Forbidden',
    message: 'the session has reached a limit of the gateway',
  },
  POLICY_REFUSED: { status: 403, reason: 'Forbidden', message: 'refused by policy' },
  ACCESS_REVIEW_REFUSED: {
    status: 403,
    reason: 'Forbidden',
    message: 'the cluster does not allow this to you',
  },
  ACCESS_REVIEW_FAILED: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'the API server could not be asked whether this is allowed',
  },

  // recording
  RECORDING_REQUIRED: {
    status: 403,
    reason: 'Forbidden',
    message: 'this session must be recorded, but no recorder accepted it',
  },
  RECORDER_UNAVAILABLE: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'no session recorder could be reached',
  },
  PORTAL_UNTRUSTED: {
    status: 502,
    reason: 'ServiceUnavailable',
    message: 'the recorder does not take this gateway’s word for who is looking',
  },
  RECORDER_LOST: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'the session recorder was lost, and this session must be recorded',
  },
  OUTPUT_LOST: {
    status: 500,
    reason: 'InternalError',
    message: 'output that waited on the disk of the gateway cannot be read back, and the session was ended',
  },
  SESSION_VIOLATED: {
    status: 400,
    reason: 'BadRequest',
    message: 'the session was ended because its stream could not be understood',
  },

  // the recorder
  UPLOAD_REFUSED: { status: 403, reason: 'Forbidden', message: 'the recorder does not accept this uploader' },
  UPLOAD_MALFORMED: { status: 400, reason: 'BadRequest', message: 'the upload is not a session recording' },
  UPLOAD_TOO_LARGE: {
    status: 413,
    reason: 'RequestEntityTooLarge',
    message: 'the upload exceeds a limit of the recorder',
  },
  SEARCH_UNAVAILABLE: {
    status: 503,
    reason: 'ServiceUnavailable',
    message: 'the search index cannot answer',
  },
  SEARCH_BUSY: {
    status: 429,
    reason: 'TooManyRequests',
    message: 'too many searches at a time; try again in a moment',
  },
  UPLOAD_CONFLICT: {
    status: 409,
    reason: 'Conflict',
    message: 'the upload does not continue a session that the recorder has',
  },
  STORE_FULL: {
    status: 507,
    reason: 'ServiceUnavailable',
    message: 'the recorder has no room for another session',
  },
  ARCHIVE_DAMAGED: {
    status: 500,
    reason: 'InternalError',
    message: 'a stored recording is a damaged archive',
  },
  STORE_FAILED: {
    status: 500,
    reason: 'InternalError',
    message: 'the recorder could not store what it received',
  },
  RECORDER_BUSY: { status: 503, reason: 'ServiceUnavailable', message: 'the recorder is at its limit' },
  VIEW_REFUSED: { status: 403, reason: 'Forbidden', message: 'the recorder shows you nothing' },
  RECORDING_UNKNOWN: { status: 404, reason: 'NotFound', message: 'there is no such recording' },
  PLAY_INDEX_UNAVAILABLE: {
    status: 404,
    reason: 'NotFound',
    message: 'the recording can only be played from its beginning',
  },
  HOST_REFUSED: {
    status: 421,
    reason: 'BadRequest',
    message: 'the recorder does not answer under this host name',
  },

  // upstream
  UPSTREAM_UNAVAILABLE: {
    status: 502,
    reason: 'ServiceUnavailable',
    message: 'the Kubernetes API server cannot be reached',
  },
  UPSTREAM_BROKEN: {
    status: 502,
    reason: 'InternalError',
    message: 'the Kubernetes API server gave an answer that cannot be relayed',
  },
  OVERLOADED: { status: 429, reason: 'TooManyRequests', message: 'too many requests are in flight' },
  WORKER_FAILED: {
    status: 500,
    reason: 'InternalError',
    message: 'a worker process could not be started',
  },
  SHUTTING_DOWN: { status: 503, reason: 'ServiceUnavailable', message: 'the gateway is shutting down' },

  // the operator
  CONTROL_FAILED: {
    status: 502,
    reason: 'ServiceUnavailable',
    message: 'the tailnet’s control server did not do what it was asked',
  },
  OBJECT_NOT_OURS: {
    status: 409,
    reason: 'Conflict',
    message: 'an object that is needed belongs to somebody else',
  },

  // tools
  AUDIT_LOG_UNUSABLE: {
    status: 400,
    reason: 'BadRequest',
    message: 'the audit log cannot be used, so nothing is said about what it covers',
  },
  RECORDING_MALFORMED: { status: 500, reason: 'InternalError', message: 'the recording cannot be read' },
  RECORDER_UNREACHABLE: { status: 503, reason: 'ServiceUnavailable', message: 'the recorder did not answer' },

  // wire
  WIRE_MALFORMED: { status: 400, reason: 'BadRequest', message: 'malformed bytes' },
  WIRE_LIMIT: {
    status: 413,
    reason: 'RequestEntityTooLarge',
    message: 'a limit of the wire format was exceeded',
  },
} as const satisfies Record<string, ErrorEntry>;

/** What a code means to a client. `status` is an HTTP status, `reason` a `metav1.StatusReason`. */
export interface ErrorEntry {
  readonly status: number;
  readonly reason: string;
  readonly message: string;
}

export type ErrorCode = keyof typeof ERROR_TABLE;

/** An expected failure with a stable code. `message` is the table's sentence, then `detail` if there is one. */
export class TailcastError extends Error {
  override readonly name = 'TailcastError';
  readonly code: ErrorCode;
  readonly detail: string | undefined;

  constructor(code: ErrorCode, detail?: string, options?: { readonly cause?: unknown }) {
    const { message } = ERROR_TABLE[code];
    super(detail === undefined ? message : `${message}: ${detail}`, options);
    this.code = code;
    this.detail = detail;
  }

  get entry(): ErrorEntry {
    return ERROR_TABLE[this.code];
  }
}

/** The text of anything that was thrown, for a `detail` or a log field. */
export function errorText(thrown: unknown): string {
  if (thrown instanceof AggregateError && thrown.message === '') {
    return thrown.errors.map(errorText).join('; ');
  }
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** What to do about what the operating system says to whoever starts or installs something. */
const ADVICE: ReadonlyMap<string, string> = new Map([
  [
    'EADDRINUSE',
    'something listens there already: end it (ss -ltnp says what it is), or choose another port',
  ],
  ['EADDRNOTAVAIL', 'this machine has no such address: choose one that it has'],
  ['ENOSPC', 'make room on the disk, or name a folder on a larger one; nothing that is recorded was changed'],
  ['EDQUOT', 'make room within the quota, or name a folder elsewhere; nothing that is recorded was changed'],
  ['EROFS', 'that file system is read-only: name a folder that may be written to'],
  ['EACCES listen', 'ports below 1024 take a right (CAP_NET_BIND_SERVICE): give it, or choose a port above'],
  ['EACCES mkdir', 'give it to the user that this runs as, or name another folder'],
  ['EACCES open', 'give it to the user that this runs as, or name another file'],
]);

/** How to mend what the operating system refused; undefined: nothing is known of it. */
export function adviceOn(thrown: unknown): string | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const code = 'code' in error ? String(error.code) : '';
    const call = 'syscall' in error ? String(error.syscall) : '';
    const advice = ADVICE.get(`${code} ${call}`) ?? ADVICE.get(code);
    if (advice !== undefined) return advice;
  }
  return undefined;
}

/** What was thrown, as an `Error`. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}

/** What was thrown, as an error of ours: `INTERNAL` unless it is one already. */
export function asTailcastError(thrown: unknown): TailcastError {
  return thrown instanceof TailcastError
    ? thrown
    : new TailcastError('INTERNAL', errorText(thrown), { cause: thrown });
}

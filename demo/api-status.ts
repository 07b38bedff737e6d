import type { Json, ApiObject } from './json.ts';

/**
 * An error with the same content as an error of the API server. `status` is the `metav1.Status` for the client. The
 * messages are those of k8s.io/apimachinery `pkg/api/errors/errors.go`, because scripts match them.
 */
export class ApiStatusError extends Error {
  override readonly name = 'ApiStatusError';
  readonly httpStatus: number;
  readonly status: ApiObject;

  constructor(httpStatus: number, reason: string, message: string, details?: ApiObject) {
    super(message);
    this.httpStatus = httpStatus;
    this.status = {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message,
      reason,
      ...(details === undefined ? {} : { details }),
      code: httpStatus,
    };
  }
}

/** Resource that an error names: `{group, resource}` from the URL. */
export interface Named {
  readonly group: string;
  readonly plural: string;
}

/** Returns the name of a resource for messages, such as `pods` or `deployments.apps`. */
export function qualified({ group, plural }: Named): string {
  return group === '' ? plural : `${plural}.${group}`;
}

/** Returns the `details` of a status about one object. */
export function detailsOf({ group, plural }: Named, name: string): ApiObject {
  return { name, ...(group === '' ? {} : { group }), kind: plural };
}

export function notFound(resource: Named, name: string): ApiStatusError {
  const message = `${qualified(resource)} "${name}" not found`;
  return new ApiStatusError(404, 'NotFound', message, detailsOf(resource, name));
}

/** Error for a path without a resource. */
export function noSuchPath(): ApiStatusError {
  return new ApiStatusError(404, 'NotFound', 'the server could not find the requested resource', {});
}

export function alreadyExists(resource: Named, name: string): ApiStatusError {
  const message = `${qualified(resource)} "${name}" already exists`;
  return new ApiStatusError(409, 'AlreadyExists', message, detailsOf(resource, name));
}

export function conflict(resource: Named, name: string): ApiStatusError {
  const message =
    `Operation cannot be fulfilled on ${qualified(resource)} "${name}": the object has been modified; ` +
    'please apply your changes to the latest version and try again';
  return new ApiStatusError(409, 'Conflict', message, { name, kind: resource.plural });
}

export function badRequest(message: string): ApiStatusError {
  return new ApiStatusError(400, 'BadRequest', message);
}

export function unauthorized(): ApiStatusError {
  return new ApiStatusError(401, 'Unauthorized', 'Unauthorized');
}

export function forbidden(message: string, details?: ApiObject): ApiStatusError {
  return new ApiStatusError(403, 'Forbidden', message, details);
}

export function methodNotAllowed(): ApiStatusError {
  const message = 'the server does not allow this method on the requested resource';
  return new ApiStatusError(405, 'MethodNotAllowed', message, {});
}

export function tooLarge(limitBytes: number): ApiStatusError {
  return new ApiStatusError(
    413,
    'RequestEntityTooLarge',
    `Request entity too large: limit is ${String(limitBytes)}`,
  );
}

export function unsupportedMediaType(accepted: readonly string[]): ApiStatusError {
  const message =
    'the body of the request was in an unknown format - accepted media types include: ' +
    `${accepted.join(', ')}`;
  return new ApiStatusError(415, 'UnsupportedMediaType', message);
}

/** Error for an invalid field. The text contains `field`, and then `message`. `kind` is the object's kind. */
export function invalid(
  kind: string,
  name: string,
  field: string,
  message: string,
  cause = 'FieldValueInvalid',
): ApiStatusError {
  return new ApiStatusError(422, 'Invalid', `${kind} "${name}" is invalid: ${field}: ${message}`, {
    name,
    kind,
    causes: [{ reason: cause, message, field }],
  });
}

export function expired(message: string): ApiStatusError {
  return new ApiStatusError(410, 'Expired', message);
}

export function tooManyRequests(message: string): ApiStatusError {
  return new ApiStatusError(429, 'TooManyRequests', message, { retryAfterSeconds: 1 });
}

function internalError(message: string): ApiStatusError {
  return new ApiStatusError(500, 'InternalError', `Internal error occurred: ${message}`, {
    causes: [{ message }],
  });
}

/** `metav1.Status` of a completed delete. */
export function successStatus(details: ApiObject): ApiObject {
  return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details };
}

/** Converts a thrown value to a status. An unexpected error becomes a 500 that contains its message. */
export function asApiStatus(thrown: unknown): ApiStatusError {
  if (thrown instanceof ApiStatusError) return thrown;
  return internalError(thrown instanceof Error ? thrown.message : String(thrown));
}

/** Encodes a body. Escapes `& < >` like the API server. */
export function encodeBody(value: Json): string {
  return `${JSON.stringify(value).replaceAll('&', '\\u0026').replaceAll('<', '\\u003c').replaceAll('>', '\\u003e')}\n`;
}

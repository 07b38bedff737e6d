/**
 * Keeps secrets out of API request events. A body is kept only if it can be read well enough to know where its secret
 * values are; of anything else about a secret, nothing is kept. Pure.
 */
import type { RequestInfo } from '../kube/request-info.ts';

const REDACTED = '[redacted by tailcast]';
/** What kubectl puts the whole object into. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
const NOTHING = new Uint8Array(0);

/**
 * The body as it may be recorded.
 * @param truncated the body goes on after `body`
 */
export function redactBody(
  info: Pick<RequestInfo, 'apiGroup' | 'resource'>,
  body: Uint8Array,
  truncated: boolean,
): Uint8Array {
  const redact = redactorFor(info);
  if (redact === undefined || body.length === 0) return body;
  if (truncated) return NOTHING;
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    return NOTHING;
  }
  return new TextEncoder().encode(JSON.stringify(redact(json)));
}

type Redactor = (json: unknown) => unknown;

function redactorFor({
  apiGroup,
  resource,
}: Pick<RequestInfo, 'apiGroup' | 'resource'>): Redactor | undefined {
  if (apiGroup === '' && resource === 'secrets') return redactSecret;
  if (apiGroup === 'authentication.k8s.io' && resource === 'tokenreviews') return redactToken;
  return undefined;
}

/** An object, a merge patch of one, or a JSON patch (RFC 6902), whose values can be anything of the object. */
function redactSecret(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(redactOperation);
  return replaceIn(json, (key, value) => {
    if (key === 'data' || key === 'stringData') return redactAll(value);
    if (key === 'metadata') return redactLastApplied(value);
    return value;
  });
}

function redactOperation(operation: unknown): unknown {
  return replaceIn(operation, (key, value) => (key === 'value' ? redactAll(value) : value));
}

function redactLastApplied(metadata: unknown): unknown {
  return replaceIn(metadata, (key, value) =>
    key === 'annotations'
      ? replaceIn(value, (name, text) => (name === LAST_APPLIED ? REDACTED : text))
      : value,
  );
}

function redactToken(json: unknown): unknown {
  return replaceIn(json, (key, value) => (key === 'spec' ? redactAll(value) : value));
}

/** The shape stays, so that the keys of a secret can be seen; every leaf but null goes. */
function redactAll(value: unknown): unknown {
  if (value === null) return null;
  if (Array.isArray(value)) return value.map(redactAll);
  return typeof value === 'object' ? replaceIn(value, (_, inner) => redactAll(inner)) : REDACTED;
}

function replaceIn(json: unknown, replace: (key: string, value: unknown) => unknown): unknown {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return REDACTED;
  return Object.fromEntries(Object.entries(json).map(([key, value]) => [key, replace(key, value)]));
}

/**
 * Finds sessions in the API server's audit log (audit.k8s.io/v1, one JSON object per line, level Metadata or higher).
 * Pure.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { AUDIT_EXTRA } from './audit-extras.ts';

/** A session that the API server allowed. */
export interface AuditedSession {
  /** Audit ID of the request. If a gateway sent the request, the gateway's logs and recordings contain the same ID. */
  readonly auditId: string;
  /** Time in RFC 3339 format. */
  readonly time: string;
  /** The (impersonated) user. */
  readonly user: string;
  /** The impersonating user, if there was one. */
  readonly impersonatedBy: string | undefined;
  /**
   * Subresource: `exec`, `attach`, `portforward`, `proxy` or `ephemeralcontainers`. Other upgrades have another
   * subresource, or none.
   */
  readonly subresource: string;
  /**
   * Resource of the request; empty for an upgrade request to a path without a resource. `name` then contains the path.
   */
  readonly resource: string;
  readonly namespace: string;
  readonly name: string;
  /** The gateway's id of the session; absent without a gateway or without `auditExtras`. */
  readonly gatewayId: string | undefined;
}

const text = z.string().default('');
const EVENT = z.object({
  auditID: z.string(),
  verb: z.string(),
  requestReceivedTimestamp: text,
  user: z.object({ username: text }),
  impersonatedUser: z
    .object({
      username: z.string().optional(),
      extra: z.record(z.string(), z.array(z.string())).default({}),
    })
    .default({ extra: {} }),
  requestURI: text,
  objectRef: z.object({ resource: text, namespace: text, name: text, subresource: text }).optional(),
  responseStatus: z.object({ code: z.number().default(0) }).default({ code: 0 }),
});

const MARKED_EVENT = EVENT.extend({ kind: z.literal('Event'), apiVersion: z.literal('audit.k8s.io/v1') });

const STREAMS: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward']);
const WRITES: ReadonlySet<string> = new Set(['create', 'update', 'patch']);
const SWITCHING = 101;
const SWITCHING_IN_JSON = '"code":101';

/**
 * Returns the session that an audit event describes; `undefined` for other events, refused requests, and invalid
 * lines. Several events with the same id may describe one session.
 */
export function parseAuditedSession(line: string): AuditedSession | undefined {
  // This fast check skips most lines, because they are about other requests.
  if (!line.includes('"subresource"') && !line.includes(SWITCHING_IN_JSON)) return undefined;
  const parsed = EVENT.safeParse(jsonOrUndefined(line));
  if (!parsed.success) return undefined;
  const { auditID, requestURI, responseStatus, impersonatedUser, user, verb } = parsed.data;
  const [path = ''] = requestURI.split('?', 1);
  const { objectRef = { resource: '', namespace: '', name: path, subresource: '' } } = parsed.data;
  if (!happened(objectRef, verb, responseStatus.code)) return undefined;
  const { username: impersonated, extra } = impersonatedUser;
  return {
    auditId: auditID,
    time: parsed.data.requestReceivedTimestamp,
    user: impersonated ?? user.username,
    impersonatedBy: impersonated === undefined ? undefined : user.username,
    ...objectRef,
    gatewayId:
      extra[AUDIT_EXTRA.session]?.[0] ?? (extra[AUDIT_EXTRA.node] === undefined ? undefined : auditID),
  };
}

/**
 * True if a line is a complete audit event. A search for unrecorded sessions must not skip an invalid line, because
 * this line may have contained sessions.
 */
export function isAuditEvent(line: string): boolean {
  return MARKED_EVENT.safeParse(jsonOrUndefined(line)).success;
}

function happened(
  { resource, subresource }: Pick<AuditedSession, 'resource' | 'subresource'>,
  verb: string,
  code: number,
): boolean {
  // A refused upgrade has an error status. API servers up to version 1.33 log a successful upgrade with status 200.
  if (STREAMS.has(subresource)) return code === SWITCHING || code === 200;
  if (subresource === 'proxy') return code !== 403 && code !== 0;
  if (subresource === 'ephemeralcontainers') return WRITES.has(verb) && code >= 200 && code < 300;
  // Any other upgrade may be a session, unless it is a one-way stream.
  const isOneWay = (verb === 'watch' && subresource === '') || (resource === 'pods' && subresource === 'log');
  return code === SWITCHING && !isOneWay;
}

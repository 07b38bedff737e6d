/**
 * Recognises the API server's refusal of the gateway's own right to impersonate. Kubernetes answers such a request with
 * 403, as if the caller had no right, and clients treat a 403 as final.
 *
 * The caller chooses parts of the request that the API server repeats in a 403: resource, name, namespace and path. So the
 * message is parsed from its first byte: `details` says how long the caller's part is, names are quoted, and the verb that
 * follows is `impersonate…` only when the impersonation filter refused. No verb of a request of the caller begins so.
 * Source: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`, `apimachinery/pkg/api/errors` (NewForbidden).
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../wire/json-value.ts';

/** Largest body that is examined, in bytes. A refusal repeats one user, group or extra. */
const MAX_ACCOUNT_REFUSAL_BYTES = 8 * 1024;

/**
 * Returns true if a response may be such a refusal, so that its body is worth reading. The impersonation filter runs before
 * priority and fairness, which marks all later responses.
 *
 * @param headers flat list
 */
export function mayBeAccountRefusal(status: number, bodyBytes: number, headers: readonly string[]): boolean {
  if (status !== 403 || bodyBytes === 0 || bodyBytes > MAX_ACCOUNT_REFUSAL_BYTES) return false;
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index]?.toLowerCase().startsWith('x-kubernetes-pf-') === true) return false;
  }
  return true;
}

/**
 * Returns the API server's sentence about the gateway's account, such as `User "gateway" cannot impersonate resource
 * "users" …`; undefined for every other body.
 *
 * @param body the complete body, as JSON or in Kubernetes' protobuf form
 */
export function accountRefusal(body: Uint8Array): string | undefined {
  const status = readStatus(body);
  if (status?.code !== 403 || status.reason !== 'Forbidden') return undefined;
  const { group, kind } = status.details;
  const resource = group === '' ? kind : `${kind}.${group}`;
  const { message } = status;
  if (!message.startsWith(resource)) return undefined;
  const prefix = kind === '' && group === '' ? NO_RESOURCE : RESOURCE;
  const sentence = prefix.exec(message.slice(resource.length))?.[1];
  return sentence?.slice(0, MAX_SENTENCE_LENGTH);
}

/** Go's `%q`: quotes and backslashes within the text are escaped. */
const QUOTED = String.raw`"(?:[^"\\]|\\.)*"`;
/** `impersonate`, or with constrained impersonation `impersonate:user-info` and `impersonate-on:user-info:list`. */
const SENTENCE = String.raw`(User ${QUOTED} cannot impersonate(?:-on)?(?::[a-z-]*)* (?:resource|path) ${QUOTED}[^]*)`;
const RESOURCE = new RegExp(`^(?: ${QUOTED})? is forbidden: ${SENTENCE}$`);
const NO_RESOURCE = new RegExp(`^forbidden: ${SENTENCE}$`);
const MAX_SENTENCE_LENGTH = 512;

const text = z
  .string()
  .nullish()
  .transform((value) => value ?? '');
const STATUS = z.looseObject({
  kind: z.literal('Status'),
  message: text,
  reason: text,
  code: z.number(),
  details: z.looseObject({ group: text, kind: text }),
});
type Status = Pick<z.infer<typeof STATUS>, 'message' | 'reason' | 'code' | 'details'>;

function readStatus(body: Uint8Array): Status | undefined {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (bytes.subarray(0, PROTOBUF_MAGIC.length).equals(PROTOBUF_MAGIC)) {
    return readProtobufStatus(bytes.subarray(PROTOBUF_MAGIC.length));
  }
  return STATUS.safeParse(jsonOrUndefined(bytes.toString())).data;
}

const PROTOBUF_MAGIC = Buffer.from('k8s\0');

/** Field numbers of `runtime.Unknown` (raw 2), `metav1.Status` and `StatusDetails`. */
function readProtobufStatus(bytes: Buffer): Status | undefined {
  const unknown = readFields(bytes);
  if (textOf(readFields(unknown?.get(1)), 2) !== 'Status') return undefined;
  const status = readFields(unknown?.get(2));
  const details = readFields(status?.get(5));
  return {
    message: textOf(status, 3),
    reason: textOf(status, 4),
    code: readVarint(status?.get(6) ?? Buffer.alloc(0), 0)?.value ?? 0,
    details: { group: textOf(details, 2), kind: textOf(details, 3) },
  };
}

function textOf(fields: ReadonlyMap<number, Buffer> | undefined, number: number): string {
  return fields?.get(number)?.toString() ?? '';
}

/** The last value of each field of a protobuf message, varints as their bytes; undefined for malformed bytes. */
function readFields(bytes: Buffer | undefined): ReadonlyMap<number, Buffer> | undefined {
  const fields = new Map<number, Buffer>();
  if (bytes === undefined) return fields;
  let at = 0;
  while (at < bytes.length) {
    const tag = readVarint(bytes, at);
    const next = tag === undefined ? undefined : readVarint(bytes, tag.end);
    if (tag === undefined || next === undefined) return undefined;
    const isDelimited = (tag.value & 7) === 2;
    if (!isDelimited && (tag.value & 7) !== 0) return undefined;
    const start = isDelimited ? next.end : tag.end;
    const end = isDelimited ? next.end + next.value : next.end;
    if (end > bytes.length) return undefined;
    fields.set(tag.value >>> 3, bytes.subarray(start, end));
    at = end;
  }
  return fields;
}

/** An unsigned number below 2³⁵: longer ones do not occur in the fields that matter. */
function readVarint(
  bytes: Buffer,
  from: number,
): { readonly value: number; readonly end: number } | undefined {
  let value = 0;
  for (let index = 0; index < 5; index++) {
    const byte = bytes[from + index];
    if (byte === undefined) return undefined;
    value += (byte & 0x7f) * 2 ** (7 * index);
    if (byte < 0x80) return { value, end: from + index + 1 };
  }
  return undefined;
}

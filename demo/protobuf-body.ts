import { badRequest } from './api-status.ts';
import { isArray, isObject, type Json, type ApiObject } from './json.ts';
import { MESSAGES, type FieldType } from './protobuf-messages.ts';

/** Content type of create requests from kubectl 1.32 and newer. */
export const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf';

const MAGIC = Buffer.from('k8s\0');
const WIRE = { varint: 0, fixed64: 1, lengthDelimited: 2, fixed32: 5 } as const;

/**
 * Decodes Kubernetes' protobuf format: a magic number, and a `runtime.Unknown` that contains the kind and the message.
 * Omits unknown fields, and empty fields as `omitempty` does. Throws a 400 error for invalid bytes or an unknown kind.
 * Source: apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`.
 */
export function decodeProtobufObject(bytes: Uint8Array): ApiObject {
  if (!Buffer.from(bytes.subarray(0, MAGIC.byteLength)).equals(MAGIC))
    throw malformed('it has no magic number');
  let typeMeta: ApiObject = {};
  let raw: Uint8Array = new Uint8Array(0);
  for (const { number, value } of readFields(bytes.subarray(MAGIC.byteLength))) {
    if (!(value instanceof Uint8Array)) continue;
    if (number === 1) typeMeta = decodeMessage(value, 'TypeMeta');
    if (number === 2) raw = value;
  }
  const { kind, apiVersion } = typeMeta;
  if (typeof kind !== 'string' || MESSAGES[kind] === undefined) {
    throw malformed(`the kind ${JSON.stringify(kind ?? '')} is not known in this form; send JSON`);
  }
  return { kind, apiVersion, ...decodeMessage(raw, kind) };
}

function malformed(reason: string): Error {
  return badRequest(`the object provided is unrecognized: ${reason}`);
}

function decodeMessage(bytes: Uint8Array, name: string): ApiObject {
  const fields = MESSAGES[name] ?? {};
  const result = new Map<string, Json>();
  for (const { number, value } of readFields(bytes)) {
    const field = fields[number];
    if (field === undefined) continue;
    const [key, type] = field;
    if (type === 'map' || type === 'bytesMap') {
      const [entryKey, entryValue] = decodeEntry(value, type);
      const entries = result.get(key);
      result.set(key, { ...(isObject(entries) ? entries : {}), [entryKey]: entryValue });
    } else if (type.startsWith('[]')) {
      const members = result.get(key);
      result.set(key, [...(isArray(members) ? members : []), decodeValue(value, type.slice(2)) ?? '']);
    } else {
      const decoded = decodeValue(value, type);
      if (decoded !== undefined) result.set(key, decoded);
    }
  }
  return Object.fromEntries(result);
}

/** A map entry is a message with the fields key (1) and value (2). */
function decodeEntry(value: FieldValue, type: FieldType): readonly [string, string] {
  let key = '';
  let text = '';
  if (!(value instanceof Uint8Array)) throw malformed('a map entry has the wrong type');
  for (const field of readFields(value)) {
    if (!(field.value instanceof Uint8Array)) continue;
    if (field.number === 1) key = utf8(field.value);
    if (field.number === 2)
      text = type === 'bytesMap' ? Buffer.from(field.value).toString('base64') : utf8(field.value);
  }
  return [key, text];
}

function decodeValue(value: FieldValue, type: string): Json | undefined {
  if (typeof value === 'bigint') {
    if (type === 'bool') return value === 0n ? undefined : true;
    const number = Number(BigInt.asIntN(64, value));
    return number === 0 && type !== 'count' ? undefined : number;
  }
  if (type === 'string') return value.byteLength === 0 ? undefined : utf8(value);
  if (type === 'intOrString') {
    const { type: kind, intVal, strVal } = decodeMessage(value, 'IntOrString');
    return kind === 1 ? strVal : intVal;
  }
  const message = decodeMessage(value, type);
  return Object.keys(message).length === 0 ? undefined : message;
}

function utf8(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8');
}

type FieldValue = bigint | Uint8Array;

interface WireField {
  readonly number: number;
  readonly value: FieldValue;
}

/** Returns the fields of a message in wire order. Throws a 400 error for an invalid length or wire type. */
function readFields(bytes: Uint8Array): readonly WireField[] {
  const fields: WireField[] = [];
  let offset = 0;
  const varint = (): bigint => {
    let result = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[offset];
      if (byte === undefined) throw malformed('it ends inside a number');
      offset += 1;
      result |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return result;
    }
    throw malformed('a number is too long');
  };
  const take = (length: number): Uint8Array => {
    if (length > bytes.byteLength - offset) throw malformed('a field is longer than what is left');
    offset += length;
    return bytes.subarray(offset - length, offset);
  };
  while (offset < bytes.byteLength) {
    const tag = Number(varint());
    const number = Math.floor(tag / 8);
    switch (tag % 8) {
      case WIRE.varint:
        fields.push({ number, value: varint() });
        break;
      case WIRE.lengthDelimited:
        fields.push({ number, value: take(Number(varint())) });
        break;
      case WIRE.fixed64:
        take(8);
        break;
      case WIRE.fixed32:
        take(4);
        break;
      default:
        throw malformed('a field has an unknown wire type');
    }
  }
  return fields;
}

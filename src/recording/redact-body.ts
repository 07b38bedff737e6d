/**
 * Keeps secrets out of API request events: of a body that can be read there is what `kept-fields.ts` lists, of any other
 * there is nothing. Pure.
 */
import type { RequestInfo } from '../kube/request-info.ts';
import { keptOfBody, type Shape } from './kept-fields.ts';

const REDACTED = '[redacted by tailcast]';
const NOTHING = new Uint8Array(0);

/**
 * The body as it may be recorded: JSON, or empty.
 * @param truncated the body goes on after `body`
 */
export function redactBody(info: RequestInfo, body: Uint8Array, truncated: boolean): Uint8Array {
  const shape = keptOfBody(info);
  if (shape === undefined || truncated || body.length === 0) return NOTHING;
  try {
    const json: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    const kept = Array.isArray(json) ? json.map((item) => keepOperation(item, shape)) : keep(json, shape);
    return new TextEncoder().encode(JSON.stringify(kept));
  } catch {
    // no JSON, or nested more deeply than anybody can follow
    return NOTHING;
  }
}

function keep(json: unknown, shape: Shape | undefined): unknown {
  if (json === null || shape === 'all') return json;
  if (shape === undefined) return REDACTED;
  if (shape === 'names') return namesOf(json);
  if ('each' in shape) {
    return Array.isArray(json)
      ? json.map((item) => keep(item, shape.each))
      : mapMembers(json, (_, value) => keep(value, shape.each));
  }
  return mapMembers(json, (name, value) => keep(value, memberOf(shape.fields, name)));
}

/** One operation of a JSON patch (RFC 6902): its value is a part of the object, and kept as that part would be. */
function keepOperation(operation: unknown, shape: Shape): unknown {
  return mapMembers(operation, (name, value) => {
    if (name === 'op' || name === 'path' || name === 'from')
      return typeof value === 'string' ? value : REDACTED;
    const path: unknown = typeof operation === 'object' ? Reflect.get(operation ?? {}, 'path') : undefined;
    return name === 'value' && typeof path === 'string' ? keep(value, shapeAt(shape, path)) : REDACTED;
  });
}

/** @param pointer RFC 6901 */
function shapeAt(shape: Shape, pointer: string): Shape | undefined {
  if (pointer !== '' && !pointer.startsWith('/')) return undefined;
  let found: Shape | undefined = shape;
  for (const token of pointer.split('/').slice(1)) {
    if (found === undefined || found === 'all') return found;
    // below names there are only values
    if (found === 'names') return undefined;
    found =
      'each' in found
        ? found.each
        : memberOf(found.fields, token.replaceAll('~1', '/').replaceAll('~0', '~'));
  }
  return found;
}

function memberOf(named: Readonly<Record<string, Shape>>, name: string): Shape | undefined {
  return Object.hasOwn(named, name) ? named[name] : undefined;
}

function namesOf(value: unknown): unknown {
  if (value === null) return null;
  if (Array.isArray(value)) return value.map(namesOf);
  return typeof value === 'object' ? mapMembers(value, (_, inner) => namesOf(inner)) : REDACTED;
}

function mapMembers(json: unknown, change: (name: string, value: unknown) => unknown): unknown {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) return REDACTED;
  return Object.fromEntries(Object.entries(json).map(([name, value]) => [name, change(name, value)]));
}

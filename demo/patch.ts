import { at, isArray, isObject, equalJson, stringAt, type Json, type ApiObject } from './json.ts';

/** Patch functions by content type. */
export const PATCHES: ReadonlyMap<string, (target: ApiObject, patch: Json) => Json> = new Map([
  ['application/merge-patch+json', mergePatch],
  ['application/strategic-merge-patch+json', strategicMergePatch],
  ['application/apply-patch+yaml', strategicMergePatch],
]);

/**
 * Merge patch of RFC 7386. Fields of `patch` replace those of `target`, null removes a field, and arrays are replaced
 * completely.
 */
function mergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result = new Map(Object.entries(isObject(target) ? target : {}));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null || value === undefined) result.delete(key);
    else result.set(key, mergePatch(result.get(key), value));
  }
  return Object.fromEntries(result);
}

/**
 * Keys by which a strategic merge patch merges lists of core types. Source: `patchMergeKey` tags in k8s.io/api core/v1
 * and apps/v1.
 */
const MERGE_KEYS: Readonly<Record<string, readonly string[]>> = {
  containers: ['name'],
  initContainers: ['name'],
  ephemeralContainers: ['name'],
  env: ['name'],
  volumes: ['name'],
  volumeMounts: ['mountPath'],
  volumeDevices: ['devicePath'],
  imagePullSecrets: ['name'],
  secrets: ['name'],
  hostAliases: ['ip'],
  topologySpreadConstraints: ['topologyKey'],
  ports: ['containerPort', 'port'],
  conditions: ['type'],
  ownerReferences: ['uid'],
  taints: ['key'],
  addresses: ['type'],
};

/** Lists of primitive values that are merged as sets. */
const MERGED_SETS: readonly string[] = ['finalizers', 'podCIDRs'];

/**
 * Strategic merge patch. A strategic merge patch works like a merge patch of RFC 7386, but merges lists of core types
 * by their keys. Supported directives: `$patch`, `$retainKeys` and `$deleteFromPrimitiveList/…`. `$setElementOrder/…`
 * is accepted, but the order of elements never changes. Source: apimachinery `pkg/util/strategicpatch/patch.go`.
 */
function strategicMergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  if (at(patch, '$patch') === 'replace') return withoutDirectives(patch);
  const result = new Map(Object.entries(isObject(target) ? target : {}));
  const retained = at(patch, '$retainKeys');
  if (isArray(retained)) {
    for (const key of result.keys()) if (!retained.includes(key)) result.delete(key);
  }
  for (const [key, value] of Object.entries(patch)) mergeMember(result, key, value ?? null);
  return Object.fromEntries(result);
}

function mergeMember(result: Map<string, Json | undefined>, key: string, value: Json): void {
  const removal = /^\$deleteFromPrimitiveList\/(.+)$/.exec(key)?.[1];
  const current = result.get(removal ?? key);
  if (removal !== undefined && isArray(value)) {
    if (isArray(current))
      result.set(
        removal,
        current.filter((member) => !value.includes(member)),
      );
  } else if (key.startsWith('$')) {
    return;
  } else if (value === null || at(value, '$patch') === 'delete') {
    result.delete(key);
  } else {
    result.set(key, isArray(value) ? mergeList(key, current, value) : strategicMergePatch(current, value));
  }
}

function mergeList(field: string, target: Json | undefined, patch: readonly Json[]): Json {
  const current = isArray(target) ? target : [];
  if (MERGED_SETS.includes(field)) return [...new Set([...current, ...patch])];
  const key = mergeKeyOf(field, [...patch, ...current]);
  if (
    key === undefined ||
    patch.some((member) => isObject(member) && stringAt(member, '$patch') === 'replace')
  ) {
    return patch.filter((member) => stringAt(member, '$patch') !== 'replace').map(withoutDirectives);
  }
  const result = [...current];
  for (const member of patch) {
    const index = result.findIndex((candidate) => equalJson(at(candidate, key), at(member, key)));
    if (stringAt(member, '$patch') === 'delete') {
      if (index !== -1) result.splice(index, 1);
    } else if (index === -1) {
      result.push(withoutDirectives(member));
    } else {
      result[index] = strategicMergePatch(result[index], member);
    }
  }
  return result;
}

function mergeKeyOf(field: string, members: readonly Json[]): string | undefined {
  return MERGE_KEYS[field]?.find((key) => members.every((member) => at(member, key) !== undefined));
}

function withoutDirectives(value: Json): Json {
  if (isArray(value)) return value.map(withoutDirectives);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, member]) => !key.startsWith('$') && member !== null)
      .map(([key, member]) => [key, member === undefined ? undefined : withoutDirectives(member)]),
  );
}

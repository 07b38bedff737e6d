import { badRequest, noSuchPath } from './api-status.ts';
import { findResource, type Resource } from './resources.ts';

/** A path of the API. The path is decoded once and split at slashes, as in the API server. */
export interface ApiPath {
  readonly segments: readonly string[];
  /** Joined segments with one leading slash. */
  readonly text: string;
}

/** Splits a request target. Throws a 400 error for an invalid path or an invalid percent-encoding. */
export function parsePath(target: string): { readonly path: ApiPath; readonly query: URLSearchParams } {
  const cut = target.indexOf('?');
  const raw = cut === -1 ? target : target.slice(0, cut);
  let decoded: string;
  try {
    decoded = decodeURIComponent(raw);
  } catch {
    throw badRequest(`invalid URL escape in ${JSON.stringify(raw)}`);
  }
  if (!decoded.startsWith('/')) throw badRequest('the request target is not a path');
  const segments = decoded.slice(1).split('/');
  return {
    path: { segments, text: decoded },
    query: new URLSearchParams(cut === -1 ? '' : target.slice(cut + 1)),
  };
}

/** Parts of a path below /api/v1 or /apis/{group}/{version}. Missing parts are empty strings. */
export interface ResourcePath {
  readonly resource: Resource;
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string;
}

/**
 * Parses a resource path. Throws a 404 error like the API server for unsupported paths, such as a namespace for a
 * cluster-scoped resource, an unknown subresource or an empty segment.
 */
export function parseResourcePath(path: ApiPath): ResourcePath {
  const { group, version, rest } = splitGroup(path);
  if (rest.length === 0 || rest.includes('')) throw noSuchPath();
  const scoped = rest[0] === 'namespaces' && rest.length > 2 && !isNamespaceSubresource(rest);
  const [plural = '', name = '', subresource = '', ...extra] = scoped ? rest.slice(2) : rest;
  const resource = findResource(group, version, plural);
  const namespace = scoped ? (rest[1] ?? '') : '';
  if (resource === undefined || extra.length > 0) throw noSuchPath();
  checkScope(resource, namespace, name);
  checkSubresource(resource, subresource);
  return { resource, namespace, name, subresource };
}

interface GroupPath {
  readonly group: string;
  readonly version: string;
  readonly rest: readonly string[];
}

function splitGroup({ segments }: ApiPath): GroupPath {
  const [root, first = '', second = '', ...others] = segments;
  if (root === 'api') return { group: '', version: first, rest: segments.slice(2) };
  if (root === 'apis') return { group: first, version: second, rest: others };
  throw noSuchPath();
}

function checkScope(resource: Resource, namespace: string, name: string): void {
  const misplaced = resource.namespaced ? namespace === '' && name !== '' : namespace !== '';
  if (misplaced) throw noSuchPath();
}

function checkSubresource(resource: Resource, name: string): void {
  if (name !== '' && !resource.subresources.some((sub) => sub.name === name)) throw noSuchPath();
}

function isNamespaceSubresource(rest: readonly string[]): boolean {
  return rest.length === 3 && (rest[2] === 'status' || rest[2] === 'finalize');
}

/**
 * Parses a boolean query parameter as the API server does. A parameter is false if it is absent, or if its value is "0"
 * or "false" (in upper or lower case). If the parameter occurs several times, the first value is used.
 */
export function flagOf(query: URLSearchParams, name: string): boolean {
  const value = query.get(name);
  return value !== null && value !== '0' && value.toLowerCase() !== 'false';
}

/**
 * Parses an integer query parameter. Returns undefined if the parameter is absent, and throws a 400 error if the value
 * is not an integer.
 */
export function queryNumber(query: URLSearchParams, name: string): number | undefined {
  const value = query.get(name);
  if (value === null || value === '') return undefined;
  if (!/^-?\d{1,15}$/.test(value)) {
    throw badRequest(
      `unable to decode query: strconv.ParseInt: parsing ${JSON.stringify(value)}: invalid syntax`,
    );
  }
  return Number(value);
}

/**
 * Resource, verb and namespace of a request as the API server interprets them. This is a port of
 * `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go` with the prefixes `api` (no group) and `apis`.
 * Authorization, auditing and routing in Kubernetes use the same information. Parsing succeeds for every canonical
 * target with selectors of a usual length.
 *
 * One addition to the original: some servers serve the APIs of several clusters below prefixes (`/clusters/<name>` of
 * kcp, `/k8s/clusters/<id>` of Rancher). The path after the prefix is parsed as a request to that cluster.
 */
import { TailcastError } from '../errors.ts';
import { firstQueryValue, queryFlag, type TargetQuery, type Target } from './canonical-target.ts';
import { isLabelSelector, readFieldSelector, type FieldRequirement } from './selectors.ts';

/** The fields of Kubernetes' `RequestInfo`; absent text is the empty string, as in Go. */
export interface RequestInfo {
  readonly isResourceRequest: boolean;
  /** The decoded path, including a trailing slash. */
  readonly path: string;
  /**
   * One of `get list watch create update patch delete deletecollection proxy`; empty for an unknown method. For
   * non-resource requests, the lower-case HTTP method.
   */
  readonly verb: string;
  /** Prefix that selects a cluster: `/clusters/<name>`, `/k8s/clusters/<id>`, or the empty string. */
  readonly clusterPrefix: string;
  /** First path segment: `api` or `apis`. Empty for other paths. */
  readonly apiPrefix: string;
  readonly apiGroup: string;
  readonly apiVersion: string;
  readonly namespace: string;
  readonly resource: string;
  readonly subresource: string;
  readonly name: string;
  /** Resource, name, subresource and further segments. */
  readonly parts: readonly string[];
  /**
   * First values of the query parameters `fieldSelector` and `labelSelector`, decoded. Set only for list, watch and
   * deletecollection.
   */
  readonly fieldSelector: string;
  readonly labelSelector: string;
}

/** Verbs that can precede the resource in the path (`/api/v1/watch/pods`). */
const PATH_VERBS: ReadonlySet<string> = new Set(['proxy', 'watch']);
const NAMESPACE_SUBRESOURCES: ReadonlySet<string> = new Set(['status', 'finalize']);
const VERBS_WITH_SELECTORS: ReadonlySet<string> = new Set(['list', 'watch', 'deletecollection']);

/**
 * @param method the HTTP method as received; methods are case-sensitive
 * @throws TailcastError `TARGET_TOO_LONG` for long selectors
 */
export function parseRequestInfo(
  method: string,
  target: Pick<Target, 'path' | 'segments' | 'query'>,
): RequestInfo {
  const prefixLength = lengthOfClusterPrefix(target.segments);
  if (prefixLength === 0) return requestInfo(method, target);
  const segments = target.segments.slice(prefixLength);
  const clusterPrefix = `/${target.segments.slice(0, prefixLength).join('/')}`;
  const info = requestInfo(method, { ...target, segments });
  return info.isResourceRequest ? { ...info, clusterPrefix } : info;
}

/** Matches names of logical clusters (`root:org:team`, `*`) and cluster ids. */
const CLUSTER_NAME = /^(?:\*|[A-Za-z0-9][A-Za-z0-9.:_-]*)$/;

function lengthOfClusterPrefix(segments: readonly string[]): number {
  const [first, second = '', third = ''] = segments;
  if (first === 'clusters') return CLUSTER_NAME.test(second) ? 2 : 0;
  return first === 'k8s' && second === 'clusters' && CLUSTER_NAME.test(third) ? 3 : 0;
}

function requestInfo(method: string, target: Pick<Target, 'path' | 'segments' | 'query'>): RequestInfo {
  const { path, segments } = target;
  const [apiPrefix = '', second = ''] = segments;
  if (segments.length < 3 || (apiPrefix !== 'api' && apiPrefix !== 'apis')) {
    return { ...NON_RESOURCE, path, verb: method.toLowerCase() };
  }
  if (apiPrefix === 'api') {
    return resourceRequest(method, target, { apiPrefix, apiGroup: '', apiVersion: second, start: 2 });
  }
  if (segments.length < 4) return { ...NON_RESOURCE, path, verb: method.toLowerCase(), apiPrefix };
  return resourceRequest(method, target, {
    apiPrefix,
    apiGroup: second,
    apiVersion: segments[2] ?? '',
    start: 3,
  });
}

const NON_RESOURCE = {
  isResourceRequest: false,
  path: '',
  verb: '',
  clusterPrefix: '',
  apiPrefix: '',
  apiGroup: '',
  apiVersion: '',
  namespace: '',
  resource: '',
  subresource: '',
  name: '',
  parts: [],
  fieldSelector: '',
  labelSelector: '',
} as const satisfies RequestInfo;

interface GroupVersion {
  readonly apiPrefix: string;
  readonly apiGroup: string;
  readonly apiVersion: string;
  /** Index of the first segment after the version. */
  readonly start: number;
}

function resourceRequest(
  method: string,
  target: Pick<Target, 'path' | 'segments' | 'query'>,
  { apiPrefix, apiGroup, apiVersion, start }: GroupVersion,
): RequestInfo {
  const { path, segments, query } = target;
  const found = { ...NON_RESOURCE, isResourceRequest: true, path, apiPrefix, apiGroup, apiVersion };
  const first = segments[start] ?? '';
  const verbInPath = PATH_VERBS.has(first);
  // Kubernetes responds with 500 to a request whose path ends after the verb.
  if (verbInPath && segments.length < start + 2) return { ...found, verb: method.toLowerCase() };
  const { namespace, parts } = splitNamespace(segments.slice(verbInPath ? start + 1 : start));
  const [resource = '', nameInPath = '', third = ''] = parts;
  const { verb, name } = namedVerb(verbInPath ? first : verbOf(method), nameInPath, query);
  const selectors = verbInPath || !VERBS_WITH_SELECTORS.has(verb) ? NO_SELECTORS : selectorsOf(query);
  const subresource = verb === 'proxy' ? '' : third;
  return { ...found, ...selectors, verb, namespace, resource, subresource, name, parts };
}

const NO_SELECTORS = { fieldSelector: '', labelSelector: '' } as const;

function selectorsOf(query: TargetQuery): Pick<RequestInfo, 'fieldSelector' | 'labelSelector'> {
  return {
    fieldSelector: firstQueryValue(query, 'fieldSelector') ?? '',
    labelSelector: firstQueryValue(query, 'labelSelector') ?? '',
  };
}

/**
 * Returns verb and name. Without a name in the path, a get is a list or a watch, and a delete is a deletecollection.
 * For a list or a watch, a field selector may contain the name.
 */
function namedVerb(verb: string, name: string, query: TargetQuery): { verb: string; name: string } {
  if (name !== '') return { verb, name };
  if (verb === 'get') {
    return { verb: watches(query) ? 'watch' : 'list', name: nameFromSelector(query) };
  }
  return { verb: verb === 'delete' ? 'deletecollection' : verb, name };
}

function verbOf(method: string): string {
  switch (method) {
    case 'POST':
      return 'create';
    case 'GET':
    case 'HEAD':
      return 'get';
    case 'PUT':
      return 'update';
    case 'PATCH':
      return 'patch';
    case 'DELETE':
      return 'delete';
    default:
      return '';
  }
}

/**
 * Separates the namespace from the other segments. `namespaces/<name>` is the resource itself if it is the end of the
 * path, or if a subresource of namespaces follows.
 */
function splitNamespace(parts: readonly string[]): { namespace: string; parts: readonly string[] } {
  if (parts[0] !== 'namespaces') return { namespace: '', parts };
  const namespace = parts[1] ?? '';
  const third = parts[2];
  if (third === undefined || NAMESPACE_SUBRESOURCES.has(third)) return { namespace, parts };
  return { namespace, parts: parts.slice(2) };
}

function watches(query: TargetQuery): boolean {
  if (queryFlag(query, 'watch')) return true;
  // NOTE: if the list options are invalid, Kubernetes ignores the letter case of this value with `strings.ToLower`
  // instead of `strings.EqualFold`. Only `EqualFold` treats the long s (ſ) as s.
  const text = firstQueryValue(query, 'watch')?.toLowerCase() ?? 'false';
  return text !== 'false' && text !== '0' && decodeListOptions(query) === undefined;
}

/** Returns the name in a `metadata.name=x` field selector, if all list options can be decoded. */
function nameFromSelector(query: TargetQuery): string {
  if (firstQueryValue(query, 'fieldSelector') === undefined) return '';
  const terms = decodeListOptions(query) ?? [];
  const name = terms.find(({ field, equal }) => equal && field === 'metadata.name')?.value ?? '';
  return name === '.' || name === '..' || /[/%]/.test(name) ? '' : name;
}

/**
 * Returns the field selector; undefined if any list option is invalid, because Kubernetes then decodes none of them.
 * @throws TailcastError `TARGET_TOO_LONG`
 */
function decodeListOptions(query: TargetQuery): readonly FieldRequirement[] | undefined {
  const numbers = [firstQueryValue(query, 'limit'), firstQueryValue(query, 'timeoutSeconds')];
  if (!numbers.every((text) => text === undefined || isInt64(text))) return undefined;
  const labels = firstQueryValue(query, 'labelSelector') ?? '';
  const fields = firstQueryValue(query, 'fieldSelector') ?? '';
  if (labels.length + fields.length > MAX_SELECTOR_LENGTH)
    throw new TailcastError('TARGET_TOO_LONG', 'its field selector and label selector are over 16 KiB');
  return isLabelSelector(labels) ? readFieldSelector(fields) : undefined;
}

/** Maximum length of the field selector and the label selector together, if the gateway must parse them. */
const MAX_SELECTOR_LENGTH = 16 * 1024;

const INT64_MAX = 2n ** 63n;

/** True if Go's `strconv.ParseInt(text, 10, 64)` accepts the text. */
function isInt64(text: string): boolean {
  if (!/^[+-]?\d{1,64}$/.test(text)) return false;
  const value = BigInt(text.replace(/^\+/, ''));
  return value >= -INT64_MAX && value < INT64_MAX;
}

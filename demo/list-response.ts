import { asApiStatus } from './api-status.ts';
import { flagOf, queryNumber, type ResourcePath } from './api-path.ts';
import type { ApiExchange } from './exchange.ts';
import type { ChangeEvent, Watcher } from './journal.ts';
import { stringAt, withValue, type ApiObject } from './json.ts';
import { apiVersionOf, type Resource } from './resources.ts';
import { parseFieldSelector, parseLabelSelector, type Selector } from './selectors.ts';
import type { Store } from './store.ts';
import { encodeTable, parseTableRequest, type TableOptions, type TableRequest } from './table.ts';

/** Default duration of a watch without `timeoutSeconds`, in ms. Kubernetes uses 30 to 60 minutes. */
const DEFAULT_WATCH_MS = 45 * 60_000;
/**
 * Interval of bookmark events, which send the current resource version to a watcher. Source: apiserver
 * `bookmarkFrequency`.
 */
const BOOKMARK_MS = 60_000;

export interface ListDependencies {
  readonly store: Store;
  readonly now: () => Date;
}

/** Selectors of a list, watch or deletecollection. `name` limits the request to one object. Throws 400. */
export function selectorOf(query: URLSearchParams, resource: Resource, name = ''): Selector {
  const labels = parseLabelSelector(query.get('labelSelector') ?? '');
  const fields = parseFieldSelector(query.get('fieldSelector') ?? '', resource);
  return (object) =>
    labels(object) && fields(object) && (name === '' || stringAt(object, 'metadata', 'name') === name);
}

/** Sends one object, or a table with one row if the client requested a table. */
export function sendObject(
  exchange: ApiExchange,
  { now }: ListDependencies,
  resource: Resource,
  object: ApiObject,
  httpStatus = 200,
): void {
  const request = tableRequest(exchange);
  const shown = request === undefined ? object : objectTable(resource, object, { request, now: now() });
  exchange.send(httpStatus, shown);
}

/** Sends a complete list. The parameter `limit` is ignored, which the API permits. */
export function sendList(
  exchange: ApiExchange,
  dependencies: ListDependencies,
  { resource, namespace }: ResourcePath,
): void {
  const { store, now } = dependencies;
  const items = store.list(resource, namespace, selectorOf(exchange.query, resource));
  const metadata = { resourceVersion: String(store.resourceVersion) };
  const request = tableRequest(exchange);
  exchange.send(
    200,
    request === undefined
      ? { kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata, items }
      : encodeTable(resource, items, { request, metadata, now: now() }),
  );
}

/** Returns a table with one row and the resource version of its object. */
function objectTable(
  resource: Resource,
  object: ApiObject,
  options: Omit<TableOptions, 'metadata'>,
): ApiObject {
  const metadata = { resourceVersion: stringAt(object, 'metadata', 'resourceVersion') };
  return encodeTable(resource, [object], { ...options, metadata });
}

function tableRequest(exchange: ApiExchange): TableRequest | undefined {
  return parseTableRequest(exchange.accept, exchange.query.get('includeObject'));
}

/**
 * Streams changes as newline-delimited JSON until `timeoutSeconds` is over, the client disconnects or the cluster
 * closes. Without a resource version, the stream starts with the existing objects. With `sendInitialEvents`, a bookmark
 * follows the existing objects. Source: apiserver `pkg/endpoints/handlers/watch.go`.
 */
export async function sendWatch(
  exchange: ApiExchange,
  { store, now }: ListDependencies,
  { resource, namespace, name }: ResourcePath,
): Promise<void> {
  const { query, signal } = exchange;
  const selector = selectorOf(query, resource, name);
  const version = query.get('resourceVersion') ?? '';
  const marked = flagOf(query, 'sendInitialEvents');
  const initial = marked || version === '' || version === '0';
  const fromVersion = initial ? store.resourceVersion : (queryNumber(query, 'resourceVersion') ?? 0);
  const encode = createEventEncoder(exchange, resource, now);
  const stream = exchange.stream('application/json');
  const existing = initial ? store.list(resource, namespace, selector) : [];
  let watcher: Watcher;
  try {
    watcher = store.watch({ resource, namespace, selector, fromVersion });
  } catch (error) {
    await stream.write(line('ERROR', asApiStatus(error).status));
    stream.end();
    return;
  }
  const timeoutMs = (queryNumber(query, 'timeoutSeconds') ?? 0) * 1000 || DEFAULT_WATCH_MS;
  const stop = (): void => watcher.close();
  const timer = setTimeout(stop, timeoutMs);
  signal.addEventListener('abort', stop);
  const bookmark = (initialEnd: boolean): string => encode.bookmark(store.resourceVersion, initialEnd);
  const bookmarks = flagOf(query, 'allowWatchBookmarks')
    ? setInterval(() => void stream.write(bookmark(false)), BOOKMARK_MS)
    : undefined;
  try {
    for (const object of existing) await stream.write(encode.event({ type: 'ADDED', object }));
    if (marked) await stream.write(bookmark(true));
    for (let event = await watcher.next(); event !== undefined; event = await watcher.next()) {
      await stream.write(encode.event(event));
    }
  } finally {
    clearTimeout(timer);
    clearInterval(bookmarks);
    signal.removeEventListener('abort', stop);
    watcher.close();
    stream.end();
  }
}

interface EventEncoder {
  event(event: ChangeEvent): string;
  bookmark(version: number, initialEnd: boolean): string;
}

/** Encodes events as lines. If the client requested tables, only the first table contains the columns. */
function createEventEncoder(exchange: ApiExchange, resource: Resource, now: () => Date): EventEncoder {
  const request = tableRequest(exchange);
  let withoutColumns = false;
  return {
    event({ type, object }) {
      if (request === undefined) return line(type, object);
      const table = objectTable(resource, object, { request, now: now(), withoutColumns });
      withoutColumns = true;
      return line(type, table);
    },
    bookmark(version, initialEnd) {
      const empty: ApiObject = {
        kind: resource.kind,
        apiVersion: apiVersionOf(resource),
        metadata: { resourceVersion: String(version), creationTimestamp: null },
      };
      const annotated = withValue(empty, ['metadata', 'annotations'], {
        'k8s.io/initial-events-end': 'true',
      });
      return line('BOOKMARK', initialEnd ? annotated : empty);
    },
  };
}

function line(type: string, object: ApiObject): string {
  return `${JSON.stringify({ type, object })}\n`;
}

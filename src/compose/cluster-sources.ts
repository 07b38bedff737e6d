/** Reads the clusters of each source: entries of the file, contexts of a kubeconfig, a directory, API objects. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, parse } from 'node:path';
import { z } from 'zod';
import { forEachConcurrent } from '../async/for-each-concurrent.ts';
import { createLoopTurns } from '../async/loop-turns.ts';
import { AnswerTooLargeError, createApiClient, type ApiAnswer } from '../doctor/api-client.ts';
import { asTailcastError, TailcastError } from '../errors.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { describeCluster, FORMAT_LABELS, type ClusterFormat } from '../kube/cluster-objects.ts';
import {
  parseKubeconfigContext,
  readKubeconfigContext,
  readKubeconfigContexts,
  type KubeconfigContext,
} from '../kube/kubeconfig.ts';
import { olderFirst } from '../kube/object-age.ts';
import type { EndpointAddress } from '../proxy/upstream/endpoints.ts';
import { CLUSTER_NAME } from '../wire/asciicast/header.ts';
import type { ClusterEntry, ClusterFile, Discovery } from './cluster-file.ts';
import type { GatewayCluster } from '../proxy/gate/cluster.ts';

/** A cluster as its source describes it. */
export interface ClusterSpec extends Pick<
  GatewayCluster,
  'name' | 'hosts' | 'addresses' | 'service' | 'kcp'
> {
  readonly identity: ClusterEntry['identity'];
  readonly listen: string | undefined;
  readonly endpoints: readonly EndpointAddress[];
  /** Kubeconfig context with server and credentials. Default: the ServiceAccount of the pod. */
  readonly context: KubeconfigContext | undefined;
  /** False if an API object, and not the configuration of the gateway, determines the server. */
  readonly isTrusted: boolean;
}

/**
 * Returns the prefix for the paths of the gateway's own requests. A kcp server handles access reviews only below the
 * path of a workspace.
 */
export function ownPrefix({ kcp }: Pick<ClusterSpec, 'kcp'>): string {
  return kcp ? '/clusters/root' : '';
}

/** Result of reading a source: a cluster or an error for each file, context or object. */
export type FoundClusters = ReadonlyMap<string, ClusterSpec | TailcastError>;

export interface ClusterSource {
  /** Name of the source in logs and in the readiness response. */
  readonly name: string;
  /** @throws TailcastError if the source itself cannot be read */
  read(signal: AbortSignal): Promise<FoundClusters>;
}

/** Interval at which the list of API objects is read again, in milliseconds. */
const LIST_EVERY_MS = 15_000;
const MAX_FOUND = 1000;
/** Placeholder for the name of a cluster in `hosts` and `service`. */
const NAME = '{name}';
/** Maximum number of objects in a page, if the list is too large for one response. */
const PAGE = 50;
/** Maximum number of bytes of one object, and of all objects together, in a list that is read in pages. */
const MAX_OBJECT_BYTES = 512 * 1024;
const MAX_TOTAL_BYTES = 32 * 1024 ** 2;

/** Opens one source for the entries in `clusters`, and one for each item of `discover`. */
export function openSources(
  file: ClusterFile,
  parts: {
    readonly apiServer: () => Promise<ApiServer>;
    /** Returns the host names of the gateway, in lower case. */
    readonly ownHosts: () => Promise<ReadonlySet<string>>;
    readonly now: () => number;
  },
): readonly ClusterSource[] {
  return [
    followFiles({
      name: 'clusters',
      files: async () => file.clusters.flatMap(({ kubeconfig }) => kubeconfig?.file ?? []),
      read: async () => new Map(file.clusters.map((entry) => [entry.name, attempt(() => fromEntry(entry))])),
    }),
    ...file.discover.map((discovery) => {
      if ('kubeconfig' in discovery) return reserveHosts(contextsOf(discovery), discovery, parts);
      const source = 'directory' in discovery ? filesOf(discovery) : objectsOf(discovery, parts);
      return reserveHosts(source, discovery, parts);
    }),
  ];
}

/** Refuses a discovered cluster if a template in `hosts` would give the cluster a host name of the gateway. */
function reserveHosts(
  source: ClusterSource,
  { hosts }: Discovery,
  { ownHosts }: Parameters<typeof openSources>[1],
): ClusterSource {
  const templates = hosts.filter((host) => host.includes(NAME));
  if (templates.length === 0) return source;
  return {
    name: source.name,
    async read(signal) {
      const own = await ownHosts();
      const found = new Map(await source.read(signal));
      for (const [key, spec] of found) {
        if (spec instanceof TailcastError) continue;
        const host = templates.map((one) => one.replaceAll(NAME, spec.name)).find((one) => own.has(one));
        if (host === undefined) continue;
        const problem =
          `the host name ${host} of the cluster ${spec.name} is reserved for the gateway; ` +
          'use another name';
        found.set(key, new TailcastError('CONFIG_INVALID', problem));
      }
      return found;
    },
  };
}

function fromEntry(entry: ClusterEntry): ClusterSpec {
  const { kubeconfig, identity, addresses, listen, endpoints } = entry;
  const context =
    kubeconfig === undefined ? undefined : readKubeconfigContext([kubeconfig.file], kubeconfig.context);
  return {
    ...common(entry.name, entry),
    identity,
    addresses,
    listen,
    endpoints: endpoints.map(parseEndpoint),
    context,
    isTrusted: true,
  };
}

function contextsOf(discovery: Extract<Discovery, { kubeconfig: string }>): ClusterSource {
  const { kubeconfig } = discovery;
  return followFiles({
    name: kubeconfig,
    files: async () => [kubeconfig],
    read: async () =>
      new Map(
        readKubeconfigContexts([kubeconfig]).map((context) => [
          context.name,
          attempt(() => discovered(context.name, context, discovery, true)),
        ]),
      ),
  });
}

function filesOf(discovery: Extract<Discovery, { directory: string }>): ClusterSource {
  const { directory } = discovery;
  const list = async (): Promise<readonly string[]> => {
    const entries = await readdir(directory);
    // Hidden files are ignored, because mounted volumes contain links such as `..data`.
    return entries.filter((entry) => !entry.startsWith('.')).map((entry) => join(directory, entry));
  };
  return followFiles({
    name: directory,
    files: list,
    async read(files) {
      const found = new Map<string, ClusterSpec | TailcastError>();
      for (const path of files) {
        const text = await readFile(path, 'utf8');
        const read = (): ClusterSpec =>
          discovered(parse(path).name, parseKubeconfigContext(text, path), discovery, true);
        found.set(path, attempt(read));
      }
      return found;
    },
  });
}

/** Returns a source that reads its files again only after one of the files has changed. */
function followFiles(source: {
  readonly name: string;
  readonly files: () => Promise<readonly string[]>;
  readonly read: (files: readonly string[]) => Promise<FoundClusters>;
}): ClusterSource {
  let version: string | undefined;
  let found: FoundClusters = new Map();
  return {
    name: source.name,
    async read() {
      try {
        const files = await source.files();
        const versions = await Promise.all(
          files.map(async (path) => {
            const { ino, size, mtimeNs } = await stat(path, { bigint: true });
            return `${path} ${ino} ${size} ${mtimeNs}`;
          }),
        );
        const seen = versions.join('\n');
        if (seen === version) return found;
        found = await source.read(files);
        version = seen;
        return found;
      } catch (error) {
        version = undefined;
        throw asTailcastError(error);
      }
    },
  };
}

const METADATA = z.looseObject({
  name: z.string(),
  namespace: z.string().default(''),
  // every stored object has a creation time; an object without one is sorted last
  creationTimestamp: z.string().default('9999'),
});
const LIST = z.looseObject({
  metadata: z.looseObject({ continue: z.string().default('') }).default({ continue: '' }),
  items: z.array(z.looseObject({ metadata: METADATA })),
});
const VERSIONED = z.object({ metadata: z.object({ uid: z.string(), resourceVersion: z.string() }) });
type Listed = z.infer<typeof LIST>['items'];
/** An object of a list that is read in pages. */
interface PagedObject {
  readonly object: Pick<Listed[number], 'metadata'>;
  /** Size as JSON, in bytes; 0 if the object is left out. */
  readonly bytes: number;
  /** Reason why the object is left out. The object then has only its metadata. */
  readonly problem?: TailcastError;
}
const PATHS: Readonly<Record<ClusterFormat, readonly [prefix: string, resource: string]>> = {
  capi: ['/api/v1', 'secrets'],
  argocd: ['/api/v1', 'secrets'],
  clusterProfile: ['/apis/multicluster.x-k8s.io/v1alpha1', 'clusterprofiles'],
};
/** Maximum number of concurrent requests for named objects. */
const MAX_GETS = 4;

type ObjectDiscovery = Extract<Discovery, { objects: ClusterFormat }>;

function objectsOf(
  discovery: ObjectDiscovery,
  { apiServer, now }: Parameters<typeof openSources>[1],
): ClusterSource {
  const { objects: format, namespace } = discovery;
  const [prefix, resource] = PATHS[format];
  const where = `/namespaces/${encodeURIComponent(namespace)}`;
  let found: FoundClusters | undefined;
  let readAtMs = 0;
  /** Results of earlier reads. An unchanged object is not parsed again. */
  const known = new Map<string, KnownObject>();
  return {
    name: `${format} ${resource}${where}`,
    async read(signal) {
      if (found !== undefined && now() - readAtMs < LIST_EVERY_MS) return found;
      readAtMs = now();
      const client = createApiClient(await apiServer(), Date.now);
      const limit = AbortSignal.any([signal, AbortSignal.timeout(LIST_EVERY_MS)]);
      const objects = await readObjects(discovery, (path) =>
        client.get(`${prefix}${where}/${resource}${path}`, limit),
      );
      const credentials = new Map(
        Object.entries(discovery.users).map(([provider, { file, context }]) => [
          provider,
          readKubeconfigContext([file], context).user,
        ]),
      );
      const describe = (object: unknown): KnownObject['spec'] =>
        attempt(() => {
          if (object instanceof TailcastError) throw object;
          const described = describeCluster(format, object, credentials);
          return described && discovered(described.name, described.context, discovery, false);
        });
      const next = new Map<string, ClusterSpec | TailcastError>();
      const users = JSON.stringify([...credentials]);
      // Lets the event loop run between objects, because the author of an object determines, within limits, how long
      // its parsing takes.
      const turns = createLoopTurns(limit, 1);
      for (const key of known.keys()) if (!objects.has(key)) known.delete(key);
      for (const [key, object] of objects) {
        const version = versionOf(object, users);
        let result = known.get(key);
        if (result === undefined || version === undefined || result.version !== version) {
          if (turns.isDue()) await turns.turn();
          result = { version, spec: describe(object) };
          known.set(key, result);
        }
        if (result.spec !== undefined) next.set(key, result.spec);
      }
      found = next;
      return found;
    },
  };
}

/** Result for one object: the cluster that the object describes, or an error; undefined if it describes no cluster. */
interface KnownObject {
  /** Version of the object and of the credentials; undefined if it is unknown. */
  readonly version: string | undefined;
  readonly spec: ClusterSpec | TailcastError | undefined;
}

function versionOf(object: unknown, users: string): string | undefined {
  const { data } = VERSIONED.safeParse(object);
  return data === undefined ? undefined : `${data.metadata.uid} ${data.metadata.resourceVersion} ${users}`;
}

/**
 * Lists objects by label, or reads the objects whose names are configured. Objects in `names` that do not exist are
 * ignored. If the API server refuses another object in `names`, the result contains an error for this object.
 *
 * @throws TailcastError if the list cannot be read
 */
async function readObjects(
  { objects: format, namespace, label = FORMAT_LABELS[format], names }: ObjectDiscovery,
  get: (path: string) => Promise<Pick<ApiAnswer, 'status' | 'body'>>,
): Promise<ReadonlyMap<string, unknown>> {
  const objects = new Map<string, unknown>();
  if (names !== undefined) {
    await forEachConcurrent(names, MAX_GETS, async (name) => {
      const { status, body } = await get(`/${encodeURIComponent(name)}`);
      const key = `${namespace}/${name}`;
      if (status === 200) objects.set(key, body);
      else if (status !== 404)
        objects.set(key, new TailcastError('UPSTREAM_BROKEN', `${key} returned ${status}`));
    });
    return objects;
  }
  const list = async (query: string): Promise<z.infer<typeof LIST>> => {
    const { status, body } = await get(`?${query}labelSelector=${encodeURIComponent(label)}`);
    const found = LIST.safeParse(body);
    if (status === 200 && found.success) return found.data;
    throw new TailcastError('UPSTREAM_BROKEN', `the list of ${PATHS[format][1]} returned ${status}`);
  };
  const found = await list('resourceVersion=0&').then(
    ({ items }) => items.map((object) => ({ object, bytes: 0, problem: undefined })),
    (error: unknown) => (error instanceof AnswerTooLargeError ? readPages(list) : Promise.reject(error)),
  );
  // If several clusters have the same name, the first cluster keeps the name. The oldest object comes first, so that a
  // user of another namespace cannot take the name.
  for (const { object, problem: reason } of found.toSorted((a, b) => olderFirst(a.object, b.object))) {
    if (objects.size >= MAX_FOUND) {
      const problem = `there are more than ${MAX_FOUND} ${PATHS[format][1]}; the newest are left out`;
      objects.set('', new TailcastError('CONFIG_INVALID', problem));
      break;
    }
    const key = `${object.metadata.namespace}/${object.metadata.name}`;
    objects.set(key, reason ?? object);
  }
  return objects;
}

/**
 * Reads a list that is too large for one response, page by page. For an object that is too large, the result contains
 * only the metadata and the reason. If the objects are too large in total, this applies to the newest objects.
 */
async function readPages(
  list: (query: string) => Promise<z.infer<typeof LIST>>,
): Promise<readonly PagedObject[]> {
  let items: PagedObject[] = [];
  let size = PAGE;
  for (let next: string | undefined = ''; next !== undefined;) {
    const page: z.infer<typeof LIST> | undefined = await list(`limit=${size}&${next}`).catch(
      (error: unknown) =>
        error instanceof AnswerTooLargeError && size > 1 ? undefined : Promise.reject(error),
    );
    size = page === undefined ? Math.ceil(size / 4) : Math.min(PAGE, size * 2);
    if (page === undefined) continue;
    for (const object of page.items) items.push({ object, bytes: JSON.stringify(object).length });
    items = dropContent(items);
    const token: string = page.metadata.continue;
    next = token === '' ? undefined : `continue=${encodeURIComponent(token)}&`;
  }
  return items;
}

/**
 * Removes the content of objects that are too large. If the total size is too large, also removes the content of the
 * newest objects.
 */
function dropContent(items: readonly PagedObject[]): PagedObject[] {
  let sum = 0;
  return items
    .toSorted((one, other) => olderFirst(one.object, other.object))
    .map((item) => {
      if (item.bytes <= MAX_OBJECT_BYTES && (sum += item.bytes) <= MAX_TOTAL_BYTES) return item;
      const { name, namespace, creationTimestamp } = item.object.metadata;
      const detail = `${namespace}/${name} is left out: it is larger than 512 KiB, or the list than 32 MiB`;
      const problem = new TailcastError('CONFIG_INVALID', detail);
      return { object: { metadata: { name, namespace, creationTimestamp } }, bytes: 0, problem };
    });
}

function discovered(
  name: string,
  context: KubeconfigContext,
  discovery: Discovery,
  isTrusted: boolean,
): ClusterSpec {
  if (!CLUSTER_NAME.test(name)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${context.cluster.file}: ${name} is not a DNS label; list the cluster under clusters, with a name`,
    );
  }
  const none = { identity: 'impersonate', addresses: [], listen: undefined, endpoints: [] } as const;
  return { ...common(name, discovery), ...none, context, isTrusted };
}

function common(
  name: string,
  { hosts, service, kcp }: Pick<ClusterEntry, 'hosts' | 'service' | 'kcp'>,
): Pick<ClusterSpec, 'name' | 'hosts' | 'service' | 'kcp'> {
  const filled = (text: string): string => text.replaceAll(NAME, name);
  return {
    name,
    hosts: hosts.map(filled),
    service: service === undefined ? undefined : filled(service),
    kcp,
  };
}

function parseEndpoint(text: string): EndpointAddress {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  if (host !== undefined) return { host, port: Number(match?.[3]) };
  throw new TailcastError('CONFIG_INVALID', `endpoints: host:port is expected, not ${text}`);
}

function attempt<T>(read: () => T): T | TailcastError {
  try {
    return read();
  } catch (error) {
    return asTailcastError(error);
  }
}

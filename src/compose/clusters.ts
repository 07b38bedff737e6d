/**
 * Opens the clusters that the sources describe. After a change, publishes a new snapshot of all clusters.
 *
 * An unchanged cluster keeps its connections and caches. If a source or one of its clusters cannot be read, the last
 * valid state stays in use. A name is never given to another cluster while the process runs.
 */
import { hash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { pause } from '../async/pause.ts';
import { createApiClient } from '../doctor/api-client.ts';
import { runChecks } from '../doctor/checks.ts';
import { permissionChecks } from '../doctor/permission-checks.ts';
import { asTailcastError, errorText, TailcastError } from '../errors.ts';
import { createApiServer, type ApiServer } from '../kube/api-server.ts';
import { guardedLookup } from '../kube/guarded-lookup.ts';
import type { ReadinessCheck } from '../observe/ops-server.ts';
import { createSnapshot, type GatewayCluster, type ClusterSnapshot } from '../proxy/gate/cluster.ts';
import type { GatedCluster } from '../proxy/gate/cluster-gate.ts';
import type { Gate } from '../proxy/gate/gate.ts';
import { createEndpoints, type Endpoints } from '../proxy/upstream/endpoints.ts';
import { DEFAULT_POOL_LIMITS, UpstreamPool } from '../proxy/upstream/upstream-pool.ts';
import { openAccountRefusals } from './account-refusals.ts';
import { parseClusterFile, type ClusterFile } from './cluster-file.ts';
import type { GatewayParts } from './gateway-parts.ts';
import { openRequestHeaders } from './request-headers.ts';
import { openSources, ownPrefix, type ClusterSource, type ClusterSpec } from './cluster-sources.ts';

const RELOAD_EVERY_MS = 1000;
/**
 * Time after a reload until the connections of a removed or changed cluster close, in milliseconds. Until then,
 * requests that were admitted before the reload can use them.
 */
const RETIRE_MS = 60_000;
const CHECK_TIMEOUT_MS = 2_000;
/** Interval of health checks for a cluster with several API servers, in milliseconds. */
const CHECK_EVERY_MS = 1_000;
/** Interval of health checks for a cluster with a single API server, in milliseconds. */
const CHECK_ONLY_EVERY_MS = 15_000;
/** Maximum number of concurrent health checks. */
const MAX_CHECKS = 16;

export interface ClustersOptions extends Pick<
  GatewayParts,
  'config' | 'environment' | 'log' | 'metrics' | 'signal'
> {
  readonly path: string;
  /** Returns the API server with the objects that describe clusters. */
  readonly managementServer: () => Promise<ApiServer>;
  /** Returns the host names of the gateway, in lower case. A discovered cluster must not have one of these names. */
  readonly ownHosts: () => Promise<ReadonlySet<string>>;
  readonly openGate: (apiServer: ApiServer, cluster: GatewayCluster) => Gate;
  /** Maximum number of in-flight requests to one cluster. */
  readonly maxRequests: number;
}

interface OpenCluster {
  readonly spec: ClusterSpec;
  readonly key: string;
  readonly entry: GatedCluster;
  readonly apiServer: ApiServer;
  readonly endpoints: Endpoints;
  readonly pool: UpstreamPool;
  checkedAtMs: number;
}

/**
 * The server and the CA that a cluster name stands for. The name stands for another cluster if the server has changed
 * and the new kubeconfig does not contain the same CA.
 */
interface Binding {
  readonly id: string;
  readonly server: string;
  readonly authorities: string;
}

/**
 * Opens the clusters of a file.
 *
 * @throws TailcastError `CONFIG_INVALID` if the file is invalid or no cluster can be opened
 */
export async function openClusters(options: ClustersOptions): Promise<Clusters> {
  const file = await readClusterFile(options.path);
  const manager = new Clusters(options, file);
  await manager.reload();
  manager.requireClusters();
  void manager.follow(options.signal);
  return manager;
}

/** @throws TailcastError `CONFIG_INVALID` if the file cannot be read or is invalid */
export async function readClusterFile(path: string): Promise<ClusterFile> {
  return parseClusterFile(await readText(path), path);
}

/**
 * Returns address and credentials of a cluster's API server. Does not connect.
 *
 * @throws TailcastError if the credentials are unusable
 */
export async function createClusterServer(
  spec: ClusterSpec,
  { config, environment, log }: Pick<ClustersOptions, 'config' | 'environment' | 'log'>,
): Promise<ApiServer> {
  const server = await createApiServer({
    ...(spec.context === undefined ? inCluster(environment) : { resolved: spec.context }),
    ...(spec.isTrusted ? {} : { lookup: guardedLookup }),
    anonymous: config.mode === 'noauth',
    environment: Object.fromEntries(environment),
    onUnusable: (error) => log.error({ cluster: spec.name, error: errorText(error) }, UNUSABLE),
    now: () => performance.now(),
    wallClock: Date.now,
  });
  if (spec.identity !== 'requestHeader') return server;
  return openRequestHeaders(server, spec, {
    mode: config.mode,
    onFailure: (error) => log.error({ cluster: spec.name, error: error.message }, 'the cluster is refused'),
  });
}

export class Clusters {
  file: ClusterFile;
  readonly check: ReadinessCheck = { name: 'clusters', check: async () => this.#ready() };
  readonly #options: ClustersOptions;
  readonly #bindings = new Map<string, Binding>();
  #sources: readonly ClusterSource[];
  /** Last valid description of each cluster. Map keys: source and key of the cluster. */
  #good = new Map<string, ClusterSpec>();
  #open = new Map<string, OpenCluster>();
  #snapshot: ClusterSnapshot<GatedCluster> = createSnapshot([]);
  #problems = new Map<string, string>();
  #text = '';

  constructor(options: ClustersOptions, file: ClusterFile) {
    this.#options = options;
    this.file = file;
    this.#sources = this.#openSources();
  }

  readonly current = (): ClusterSnapshot<GatedCluster> => this.#snapshot;

  /** Addresses (`host:port`) of listeners that serve only one cluster. Map keys: name of the cluster. */
  get listeners(): ReadonlyMap<string, string> {
    const named = [...this.#open.values()].flatMap(({ spec }) =>
      spec.listen === undefined ? [] : [[spec.name, spec.listen] as const],
    );
    return new Map(named);
  }

  /** @throws TailcastError `CONFIG_INVALID` */
  requireClusters(): void {
    if (this.#open.size > 0) return;
    const reasons = [...this.#problems.values()].join('\n  ');
    throw new TailcastError('CONFIG_INVALID', `${this.#options.path}: no cluster can be used\n  ${reasons}`);
  }

  /** Total number of connections to the API servers of all clusters, and the number of idle connections among them. */
  size(): { readonly total: number; readonly idle: number } {
    let [total, idle] = [0, 0];
    for (const { pool } of this.#open.values()) {
      total += pool.size.total;
      idle += pool.size.idle;
    }
    return { total, idle };
  }

  async follow(signal: AbortSignal): Promise<void> {
    while (await pause(RELOAD_EVERY_MS, signal)) {
      await this.reload();
      this.#checkHealth();
    }
  }

  /** Reads all sources immediately. Never rejects. */
  async reload(): Promise<void> {
    const problems = new Map<string, string>();
    await this.#readFile(problems);
    const good = await this.#collect(problems);
    const next = await this.#openAll(good, problems);
    try {
      const entries = [...next.values()].map(({ entry }) => entry);
      if (next.size !== this.#open.size || entries.some((entry) => !this.#has(entry))) {
        this.#snapshot = createSnapshot(entries);
      }
      this.#retire(next);
      this.#open = next;
      this.#good = good;
    } catch (error) {
      problems.set('clusters', errorText(error));
      for (const [name, one] of next) if (this.#open.get(name) !== one) one.pool.close();
    }
    this.#report(problems);
  }

  close(): void {
    for (const { pool } of this.#open.values()) pool.close();
  }

  #has(entry: GatedCluster): boolean {
    return this.#open.get(entry.name)?.entry === entry;
  }

  #openSources(): readonly ClusterSource[] {
    const { managementServer, ownHosts } = this.#options;
    let server: Promise<ApiServer> | undefined;
    let own: Promise<ReadonlySet<string>> | undefined;
    return openSources(this.file, {
      now: () => performance.now(),
      apiServer: () => {
        server ??= managementServer();
        server.catch(() => (server = undefined));
        return server;
      },
      ownHosts: () => {
        own ??= ownHosts();
        own.catch(() => (own = undefined));
        return own;
      },
    });
  }

  /** Reads the file of clusters. If the file is invalid, the previous sources stay in use. */
  async #readFile(problems: Map<string, string>): Promise<void> {
    const { path } = this.#options;
    try {
      const text = await readText(path);
      if (text === this.#text) return;
      const file = parseClusterFile(text, path);
      const isFirst = this.#text === '';
      this.#text = text;
      if (isFirst) return;
      this.file = file;
      this.#sources = this.#openSources();
    } catch (error) {
      problems.set(path, errorText(error));
    }
  }

  async #collect(problems: Map<string, string>): Promise<Map<string, ClusterSpec>> {
    const good = new Map<string, ClusterSpec>();
    for (const source of this.#sources) {
      const before = [...this.#good].filter(([key]) => key.startsWith(`${source.name}\n`));
      try {
        for (const [item, found] of await source.read(this.#options.signal)) {
          const key = `${source.name}\n${item}`;
          const last = this.#good.get(key);
          if (!(found instanceof TailcastError)) good.set(key, found);
          else {
            problems.set(key, found.message);
            if (last !== undefined) good.set(key, last);
          }
        }
      } catch (error) {
        problems.set(source.name, errorText(error));
        for (const [key, spec] of before) good.set(key, spec);
      }
    }
    return good;
  }

  async #openAll(
    good: ReadonlyMap<string, ClusterSpec>,
    problems: Map<string, string>,
  ): Promise<Map<string, OpenCluster>> {
    const next = new Map<string, OpenCluster>();
    const owners = new Map<string, string>();
    // If two clusters have the same name, the cluster that is already open keeps the name.
    const ordered = [...good].toSorted(([, one], [, other]) => this.#rank(one) - this.#rank(other));
    for (const [key, spec] of ordered) {
      const names = namesOf(spec);
      const taken = names.find((name) => owners.has(name));
      if (taken !== undefined) {
        const owner = owners.get(taken)?.replace('\n', ': ') ?? '';
        problems.set(key, `${taken} is already used by ${owner}; the first one stays`);
        continue;
      }
      for (const name of names) owners.set(name, key);
      const before = this.#open.get(spec.name);
      try {
        const one = await this.#openOne(spec, before);
        next.set(spec.name, one);
      } catch (error) {
        problems.set(key, asTailcastError(error).message);
        if (before !== undefined) next.set(spec.name, before);
      }
    }
    return next;
  }

  #rank(spec: ClusterSpec): number {
    const open = this.#open.get(spec.name)?.spec;
    return open !== undefined && sourceOf(open) === sourceOf(spec) ? 0 : 1;
  }

  async #openOne(spec: ClusterSpec, before: OpenCluster | undefined): Promise<OpenCluster> {
    const isDefault = this.file.unscopedRules === 'all';
    if (before?.spec === spec && before.entry.isDefault === isDefault) return before;
    const key = hash('sha256', JSON.stringify([spec, isDefault]));
    if (before?.key === key) return before;
    const { config, openGate, maxRequests } = this.#options;
    const apiServer = await createClusterServer(spec, this.#options);
    const binding = this.#bind(spec.name, apiServer);
    if (apiServer.open !== undefined && spec.endpoints.length > 0) {
      throw new TailcastError('CONFIG_INVALID', `cluster ${spec.name}: endpoints do not work with proxy-url`);
    }
    const addresses = spec.endpoints.length > 0 ? spec.endpoints : [apiServer];
    const endpoints = createEndpoints(apiServer, addresses, `${apiServer.basePath}/readyz`);
    const pool = new UpstreamPool(endpoints, DEFAULT_POOL_LIMITS, () => performance.now());
    let inFlight = 0;
    const cluster: GatewayCluster = Object.freeze({
      name: spec.name,
      id: binding.id,
      hosts: spec.hosts,
      addresses: spec.addresses,
      service: spec.service,
      kcp: spec.kcp,
      isDefault,
      upstream: Object.freeze({
        basePath: apiServer.basePath,
        pool,
        connect: () => endpoints.connectStream(),
        accountRefusals: openAccountRefusals(config, apiServer, ownPrefix(spec)),
        credentialRefused: () => apiServer.refused(),
        enter() {
          if (inFlight >= maxRequests) throw new TailcastError('OVERLOADED', `cluster ${spec.name}`);
          inFlight += 1;
          return () => void (inFlight -= 1);
        },
      }),
    });
    this.#bindings.set(spec.name, binding);
    if (spec.kcp && spec.identity === 'impersonate') void this.#reviewRights(spec, apiServer);
    const entry = Object.freeze({ ...cluster, gate: openGate(apiServer, cluster) });
    return { spec, key, entry, apiServer, endpoints, pool, checkedAtMs: -Infinity };
  }

  /**
   * Checks the rights of the gateway's account at a kcp server. Logs a warning if the account is not allowed to
   * impersonate, or has additional rights. Never rejects.
   */
  async #reviewRights(spec: ClusterSpec, apiServer: ApiServer): Promise<void> {
    const { config, log, signal } = this.#options;
    const client = createApiClient(apiServer, Date.now, ownPrefix(spec));
    const { mode } = config;
    const checks = permissionChecks({ client: async () => client, mode, namespace: 'default' });
    try {
      for (const finding of await runChecks(checks, signal)) {
        const { status, summary } = finding;
        if (status !== 'warning' && status !== 'failed') continue;
        log.warn(
          { cluster: spec.name, summary, remedy: finding.remedy },
          'check the account of the kcp server',
        );
      }
    } catch {
      // an error is expected only if the gateway stops, which aborts the checks
    }
  }

  /** @throws TailcastError `CONFIG_INVALID` if the name belonged to another cluster */
  #bind(name: string, { host, port, basePath, tls }: ApiServer): Binding {
    const server = `${host}:${port}${basePath}`;
    const authorities = hash('sha256', tls.ca ?? '');
    const known = this.#bindings.get(name);
    if (known === undefined)
      return { id: hash('sha256', `${server} ${authorities}`).slice(0, 16), server, authorities };
    if (known.server === server || (tls.ca !== undefined && known.authorities === authorities)) {
      return { id: known.id, server, authorities };
    }
    throw new TailcastError(
      'CONFIG_INVALID',
      `the name ${name} belonged to another cluster, whose grants would apply; use another name or restart the gateway`,
    );
  }

  #retire(next: ReadonlyMap<string, OpenCluster>): void {
    for (const [name, { pool }] of this.#open) {
      if (next.get(name)?.pool === pool) continue;
      setTimeout(() => pool.close(), RETIRE_MS).unref();
    }
  }

  #checkHealth(): void {
    const now = performance.now();
    const due = [...this.#open.values()].filter(({ endpoints, checkedAtMs }) => {
      const everyMs = endpoints.states.length > 1 ? CHECK_EVERY_MS : CHECK_ONLY_EVERY_MS;
      return now - checkedAtMs >= everyMs;
    });
    for (const one of due.slice(0, MAX_CHECKS)) {
      one.checkedAtMs = now;
      void one.endpoints.check(CHECK_TIMEOUT_MS);
      // In mode noauth, no other component reloads the CA.
      one.apiServer.followAuthorities().catch(() => {});
    }
    this.#measure();
  }

  #measure(): void {
    const { up, endpointUp } = this.#options.metrics.clusterGauges;
    up.reset();
    endpointUp.reset();
    for (const [cluster, { endpoints }] of this.#open) {
      const { states } = endpoints;
      up.set({ cluster }, states.some(({ problem }) => problem === undefined) ? 1 : 0);
      for (const { address, problem } of states) {
        endpointUp.set({ cluster, endpoint: address }, problem === undefined ? 1 : 0);
      }
    }
  }

  #report(problems: Map<string, string>): void {
    const { log, metrics } = this.#options;
    for (const [key, error] of problems) {
      if (this.#problems.get(key) === error) continue;
      log.error(
        { source: key.replace('\n', ': '), error },
        'a cluster cannot be read; its last good state stays',
      );
    }
    this.#problems = problems;
    metrics.clusterGauges.problems.set(problems.size);
  }

  /**
   * Returns the problems of clusters, or undefined. Throws only if no cluster is available, because failed clusters
   * must not make the other clusters unavailable.
   */
  #ready(): string | undefined {
    const remarks = [...this.#problems.values()];
    const states = [...this.#open].map(([name, { endpoints }]) => {
      const down = endpoints.states.filter(({ problem }) => problem !== undefined);
      for (const { address, problem } of down) remarks.push(`${name}: ${address}: ${problem ?? ''}`);
      return down.length < endpoints.states.length;
    });
    if (!states.includes(true)) throw new Error(`no cluster is available; ${remarks.join('; ')}`);
    return remarks.length === 0 ? undefined : remarks.join('; ');
  }
}

const UNUSABLE = 'replaced certificates cannot be used, the last ones stay';

function sourceOf({ context }: ClusterSpec): string {
  return context?.cluster.file ?? '';
}

function inCluster(environment: ReadonlyMap<string, string>) {
  const host = environment.get('KUBERNETES_SERVICE_HOST') ?? '';
  return { inCluster: { host, port: environment.get('KUBERNETES_SERVICE_PORT') ?? '' } };
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new TailcastError('CONFIG_INVALID', `clusters: ${errorText(cause)}`, { cause });
  }
}

/**
 * Returns the name, host names and addresses of a cluster, as phrases for messages. No other cluster may have one of
 * these values.
 */
function namesOf({ name, hosts, addresses }: ClusterSpec): readonly string[] {
  return [
    `the name ${name}`,
    ...hosts.map((host) => `the host name ${host}`),
    ...addresses.map((address) => `the address ${address}`),
  ];
}

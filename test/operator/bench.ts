/** Runs reconcilers with an API server and a control server in memory. */
import type { V1StatefulSet } from '@kubernetes/client-node';
import type { TailnetControl } from '../../src/operator/auth-keys.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { connectCluster } from '../../src/operator/cluster-connection.ts';
import { createEventRecorder } from '../../src/operator/event-recorder.ts';
import { createKubeClient, type KubeClient } from '../../src/operator/kube-client.ts';
import { KINDS, pathOf, type ResourceKind } from '../../src/operator/kube-object.ts';
import { KeyKeeper } from '../../src/operator/workload/keys.ts';
import type { Condition } from '../../src/operator/workload/status.ts';
import { createTagPolicy } from '../../src/operator/workload/tags.ts';
import type { SpecOptions } from '../../src/operator/workload/workload.ts';
import type { ReconcilerDeps } from '../../src/operator/workload/reconciler.ts';
import { createOperatorMetrics } from '../../src/operator/operator-metrics.ts';
import { createListedObjects } from '../../src/operator/object-cache.ts';
import { createTailnets } from '../../src/operator/tailnet/tailnets.ts';
import {
  COLLECTIONS,
  startApiServerDouble,
  type ApiServerDouble,
  type StoredObject,
} from './api-server-double.ts';
import { createFakeClock, type FakeClock } from './fake-clock.ts';
import { createControlDouble, type ControlDouble } from './recorder/control-double.ts';
import { OPTIONS } from './recorder/recorders.ts';

export const CORE = '/api/v1/namespaces';
export const OWN = `${CORE}/tailcast`;
export const SETS = '/apis/apps/v1/namespaces/tailcast/statefulsets';
export const TAILSCALE = '/apis/tailscale.com/v1alpha1';
const NAMES = `${OWN}/configmaps/tailnet-name.`;

export interface Bench {
  readonly api: ApiServerDouble;
  readonly control: ControlDouble;
  readonly clock: FakeClock;
  readonly signal: AbortSignal;
  /**
   * Returns the dependencies of a new operator process that uses both servers. The process is killed after `limit`
   * writes.
   */
  deps(limit?: number): ReconcilerDeps;
  /** Number of writes to both servers so far. */
  readonly writes: number;
  object(path: string): StoredObject | undefined;
  /**
   * Creates or replaces a resource, as a user does: its finalizers and its status stay. Returns its path. The default
   * creation time is the start of 2026.
   *
   * @param status replaces the status, as an operator does
   */
  put(kind: ResourceKind, metadata: WrittenMetadata, spec: object, status?: object): string;
  /** Creates or replaces a ProxyClass that the operator has validated. */
  putClass(name: string, spec: object, annotations?: Readonly<Record<string, string>>): void;
  /** Returns the conditions in the status of a resource. */
  conditions(path: string): readonly Condition[];
  /** Returns the condition of a type. Default: the first condition. */
  condition(path: string, type?: string): Condition | undefined;
  /** Returns the environment variables of a container of a StatefulSet. Default: the first container. */
  variables(set: string, container?: number): Readonly<Record<string, string | undefined>>;
  /**
   * Returns the paths of objects in the operator's namespace, except events and the ConfigMaps that record owners of
   * names.
   */
  left(): readonly string[];
  /** Owner of each tailnet name, as `<name>: <kind> <namespace>/<name>`. */
  names(): readonly string[];
  events(): readonly string[];
  /** Returns a decoded value of a Secret. */
  data(path: string, key: string): string | undefined;
  /** Returns a parsed JSON file in the Secret of a pod; an empty object if the file is missing. */
  file(pod: string, key: string): unknown;
  /** Marks an object as deleted. */
  markDeleted(path: string): void;
  /** Simulates values that containerboot writes into the Secret of its pod. */
  say(name: string, data: Readonly<Record<string, string>>): void;
  /** Simulates a started pod, which reports its device as containerboot does. */
  startPod(name: string, uid?: string): void;
  /** Simulates the tailscaled of a started pod: its node has joined, and its rules are installed. */
  join(
    name: string,
    node?: { readonly id?: string; readonly fqdn?: string; readonly addresses?: string[] },
  ): void;
  /**
   * Simulates a pod that registers its node and exits before it reports its device. The pod's Secret then contains only
   * the machine key.
   */
  joinAndDie(name: string): void;
  close(): Promise<void>;
}

/** Metadata in the manifest of a resource. */
interface WrittenMetadata {
  readonly name: string;
  readonly namespace?: string;
  readonly [key: string]: unknown;
}

/** A machine key: the private key in the format of tailscaled, the public key in the format of control servers. */
export const MACHINE = {
  privateKey: 'privkey:40ab1b58e9076c7a4d9d07291f5edf9d1aa017eb949624ba683317f48a640369',
  publicKey: 'mkey:50d20b455ecf12bc453f83c2cfdb2a24925d06cf2598dcaa54e91af82ce9f765',
} as const;

/** Thrown to simulate the crash of a process. */
export class Killed extends Error {}

/** @param more settings of the operator that differ from `OPTIONS` */
export async function createBench(more: Partial<SpecOptions> = {}): Promise<Bench> {
  const options = { ...OPTIONS, ...more };
  const api = await startApiServerDouble();
  const clock = createFakeClock(Date.now());
  const control = createControlDouble(() => clock.now());
  const connection = connectCluster({ kubeconfig: api.kubeconfig, context: undefined }, new Map());
  let writes = 0;
  let id = 0;

  function counted<T extends object>(target: T, methods: readonly string[], limit: () => number): T {
    return new Proxy(target, {
      get(object, name: string) {
        const value: unknown = Reflect.get(object, name);
        if (typeof value !== 'function') return value;
        return async (...args: unknown[]): Promise<unknown> => {
          if (methods.includes(name)) {
            if (limit() <= 0) throw new Killed(`killed before ${name}`);
            spend();
          }
          return (value as (...args: unknown[]) => unknown).apply(object, args);
        };
      },
    });
    function spend(): void {
      writes += 1;
    }
  }

  function deps(limit = Number.POSITIVE_INFINITY): ReconcilerDeps {
    const until = writes + limit;
    const left = (): number => until - writes;
    const log = createSilentLogger();
    const { signal } = new AbortController();
    const client: KubeClient = counted(
      createKubeClient(connection, signal),
      ['apply', 'create', 'patch', 'remove'],
      left,
    );
    const own: TailnetControl = counted<TailnetControl>(
      control,
      ['createKey', 'revokeKey', 'deleteDevice', 'approveRoutes', 'setTags'],
      left,
    );
    const metrics = createOperatorMetrics();
    return {
      client,
      cache: createListedObjects(client),
      options,
      metrics,
      clock,
      log,
      keys: new KeyKeeper({ metrics, nowMs: () => clock.now(), log }),
      tags: createTagPolicy({ client, options, clock }),
      events: createEventRecorder({ client, clock, log, createId: () => String((id += 1)) }),
      tailnets: createTailnets({
        client,
        namespace: options.namespace,
        own,
        defaultLoginServer: 'https://login.example.com',
        nowMs: () => clock.now(),
        signal,
      }),
      signal,
    };
  }

  const object = (path: string): StoredObject | undefined => api.objects.get(path);
  const conditions = (path: string): readonly Condition[] =>
    (object(path)?.['status'] as { conditions?: Condition[] } | undefined)?.conditions ?? [];
  const data = (path: string, key: string): string | undefined => {
    const value = (object(path)?.['data'] as Record<string, string> | undefined)?.[key];
    return value === undefined ? undefined : Buffer.from(value, 'base64').toString();
  };
  const encode = (text: string): string => Buffer.from(text).toString('base64');

  function put(kind: ResourceKind, metadata: WrittenMetadata, spec: object, status?: object): string {
    if (!COLLECTIONS.has(kind.plural)) throw new Error(`there is no collection ${kind.plural}`);
    const path = pathOf(kind, metadata);
    const before = object(path);
    api.put(path, {
      apiVersion: kind.apiVersion,
      kind: kind.kind,
      metadata: {
        creationTimestamp: '2026-01-01T00:00:00Z',
        finalizers: before?.metadata.finalizers,
        ...metadata,
      },
      spec,
      status: status ?? before?.['status'],
    });
    return path;
  }

  function say(name: string, data: Readonly<Record<string, string>>): void {
    const path = `${OWN}/secrets/${name}`;
    const secret = structuredClone(object(path));
    if (secret === undefined) throw new Error(`no Secret ${name}`);
    const encoded = Object.fromEntries(Object.entries(data).map(([key, value]) => [key, encode(value)]));
    secret['data'] = { ...(secret['data'] as object | undefined), ...encoded };
    api.put(path, secret);
  }

  return {
    api,
    control,
    clock,
    signal: new AbortController().signal,
    deps,
    get writes() {
      return writes;
    },
    object,
    put,
    putClass(name, spec, annotations = {}) {
      const ready: Condition = {
        type: 'ProxyClassReady',
        status: 'True',
        reason: 'ProxyClassValid',
        message: '',
        lastTransitionTime: '2026-01-01T00:00:00Z',
        // Each change of the spec increases the generation.
        observedGeneration: 1000,
      };
      put(KINDS.proxyClass, { name, annotations }, spec, { conditions: [ready] });
    },
    conditions,
    condition: (path, type) => conditions(path).find((one) => type === undefined || one.type === type),
    variables(set, container = 0) {
      const { spec } = object(`${SETS}/${set}`) as unknown as V1StatefulSet;
      const { env = [] } = spec!.template.spec!.containers[container]!;
      return Object.fromEntries(env.map(({ name, value }) => [name, value]));
    },
    left: () =>
      [...api.objects.keys()].filter(
        (path) =>
          path.includes('/namespaces/tailcast/') && !path.includes('/events/') && !path.startsWith(NAMES),
      ),
    names: () =>
      [...api.objects].flatMap(([path, { data }]) => {
        if (!path.startsWith(NAMES)) return [];
        const { kind, namespace, name } = data as Record<string, string>;
        return [
          `${path.slice(NAMES.length)}: ${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`,
        ];
      }),
    events: () =>
      [...api.objects.values()]
        .filter(({ kind }) => kind === 'Event')
        .map((event) => `${String(event['reason'])}: ${String(event['message'])}`),
    data,
    file: (pod, key) => JSON.parse(data(`${OWN}/secrets/${pod}`, key) ?? '{}') as unknown,
    markDeleted(path) {
      const stored = object(path)!;
      const deletionTimestamp = new Date().toISOString();
      api.put(path, { ...stored, metadata: { ...stored.metadata, deletionTimestamp } });
    },
    say,
    startPod(name, uid = `pod-${name}`) {
      const set = object(`${SETS}/${name.replace(/-\d+$/, '')}`) as
        | (StoredObject & { spec: { template: { metadata: { labels: Record<string, string> } } } })
        | undefined;
      if (set === undefined) throw new Error(`no StatefulSet of ${name}`);
      const labels = set.spec.template.metadata.labels;
      api.remove(`${OWN}/pods/${name}`);
      api.put(`${OWN}/pods/${name}`, {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, namespace: 'tailcast', uid, labels },
      });
      say(name, { pod_uid: uid });
      const { generation } = set.metadata;
      const pods = [...api.objects.keys()].filter((path) =>
        path.startsWith(`${OWN}/pods/${name.replace(/\d+$/, '')}`),
      ).length;
      const status = { observedGeneration: generation, readyReplicas: pods, updatedReplicas: pods };
      api.put(`${SETS}/${set.metadata.name}`, { ...set, status });
    },
    join(name, { id: device = `node-${name}`, fqdn = `${name}.lab.ts.net`, ...node } = {}) {
      const addresses = node.addresses ?? ['100.64.0.9', 'fd7a:115c:a1e0::9'];
      control.devices.set(device, { hostname: name, addresses });
      say(name, { device_id: device, device_fqdn: `${fqdn}.`, device_ips: JSON.stringify(addresses) });
    },
    joinAndDie(name) {
      say(name, { _machinekey: MACHINE.privateKey });
      control.devices.set(`died-${name}`, { hostname: name, addresses: [] });
      control.machineKeys.set(`died-${name}`, MACHINE.publicKey);
    },
    async close() {
      connection.close();
      await api.close();
    },
  };
}

/** Runs up to three passes of an operator. Returns false if the operator was killed. */
export async function survives(pass: () => Promise<unknown>): Promise<boolean> {
  try {
    for (let count = 0; count < 3; count += 1) await pass();
    return true;
  } catch (error) {
    if (error instanceof Killed) return false;
    throw error;
  }
}

/**
 * Runs operator processes that are killed after 0, 1, 2, … writes, until a process completes the pass without being
 * killed.
 */
export async function untilSurvived(pass: (limit: number) => Promise<unknown>): Promise<void> {
  let limit = 0;
  while (!(await survives(() => pass(limit)))) limit += 1;
}

/** Runs a reconciler as its queue does, until the reconciler requests no further pass. */
export async function settle(run: () => Promise<number | undefined>): Promise<void> {
  for (let pass = 0; pass < 20; pass += 1) {
    if ((await run()) === undefined) return;
  }
  throw new Error('it never settles');
}

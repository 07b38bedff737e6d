import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorReason, TailcastError } from '../src/errors.ts';
import type { Logger } from '../src/observe/logger.ts';
import { createSelfSignedCertificate, type ServerCertificate } from './certificate.ts';
import { requireRunningPod, sendContainerLog } from './container-log.ts';
import { createClusterEvents } from './event-recorder.ts';
import type { HttpRequest, HttpResponse } from './exchange.ts';
import { openFront } from './front.ts';
import { stringAt, type ApiObject } from './json.ts';
import { prepareCreate } from './objects.ts';
import { createPodRuntime, type PodRuntime } from './pod-runtime.ts';
import { PodController } from './pods.ts';
import { CONFIGMAPS, NAMESPACES, SERVICE_ACCOUNTS, type Resource } from './resources.ts';
import type { RestDependencies } from './rest.ts';
import { answer, CLUSTER_VERSION } from './router.ts';
import { seeds, SEED_NAMESPACES } from './seed.ts';
import { createSessions } from './sessions.ts';
import { createStore, type Store, type StoreLimits } from './store.ts';
import { openTerminals } from './terminal.ts';
import { WorkloadController } from './workloads.ts';

const DEFAULT_SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin';
const MAX_PODS = 50;
const MAX_SESSIONS = 200;

export interface DemoClusterOptions {
  readonly log: Logger;
  /** Signal that closes the cluster. */
  readonly signal?: AbortSignal;
  /** Program of containers whose spec has `stdin` but no command. Default: bash if available, otherwise sh. */
  readonly shell?: string;
  /** Search path for programs, in the format of the variable PATH. */
  readonly searchPath?: string;
  /** Server certificate in PEM, and the CA that clients need. Default: a new self-signed one. */
  readonly tls?: { readonly key: string; readonly cert: string; readonly ca?: string };
  readonly now?: () => Date;
  /** Limits of the object store in memory. */
  readonly limits?: Partial<StoreLimits>;
  /** Loads the package for pseudo-terminals, or rejects if it is missing. Default: the optional `@lydell/node-pty`. */
  readonly loadPty?: () => Promise<unknown>;
}

export interface DemoCluster {
  /** `https://127.0.0.1:<port>` */
  readonly url: string;
  readonly caPem: string;
  /** Bearer token of the administrator, who may impersonate all users. */
  readonly adminToken: string;
  /** A sentence for users about the kind of terminal that shells get. */
  readonly describeTerminal: string;
  /** Kills all processes, closes all connections and removes the scratch directory. A second call has no effect. */
  close(): Promise<void>;
}

/**
 * Starts a fake API server on loopback that unmodified kubectl can use, over TLS with HTTP/2 and HTTP/1.1.
 *
 * Objects are stored in memory. Containers and exec commands are processes of this machine **without any isolation**,
 * with the rights of the user who started the demo. The server therefore listens only on 127.0.0.1, and every request
 * needs the token. `kubectl cp` reads and writes files of this machine. Rejects with `START_FAILED` if it cannot
 * listen.
 */
export async function startDemoCluster(options: DemoClusterOptions): Promise<DemoCluster> {
  const { log, signal, now = () => new Date() } = options;
  const tls = await chooseCertificate(options, now());
  const terminals = await openTerminals(options.loadPty ?? (() => import('@lydell/node-pty')));
  const scratch = await mkdtemp(join(tmpdir(), 'tailcast-demo-'));
  const adminToken = randomBytes(24).toString('base64url');
  const closing = new AbortController();
  const store = createStore(options.limits);
  const events = createClusterEvents(store, now);
  const pods: PodController = new PodController(store, () => runtime, events, now);
  const workloads = new WorkloadController(store, pods, now);
  const runtime: PodRuntime = createPodRuntime({
    terminals,
    scratch,
    shell: options.shell ?? (existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh'),
    searchPath: options.searchPath ?? DEFAULT_SEARCH_PATH,
    now,
    maxPods: MAX_PODS,
    onChange: (namespace, name) => {
      pods.publish(namespace, name);
      workloads.changed();
    },
  });
  const changed = (resource: Resource, object: ApiObject): void => {
    if (resource.kind === 'Namespace') furnishNamespace(store, object, tls.ca, now);
    workloads.changed();
  };
  const rest: RestDependencies = {
    store,
    now,
    pods,
    changed,
    sendLog: (exchange, path) => sendContainerLog(exchange, requireRunningPod(store, runtime, path), now()),
  };
  const sessions = createSessions({ store, runtime, adminToken, log, maxSessions: MAX_SESSIONS });
  const onRequest = (request: HttpRequest, response: HttpResponse): void => {
    void answer(request, response, { adminToken, closing: closing.signal, rest, log });
  };
  const front = await openFront({
    ...tls,
    onRequest,
    onUpgrade: (upgrade) => {
      sessions.serve(upgrade);
    },
  }).catch(async (error: unknown) => {
    await rm(scratch, { recursive: true, force: true });
    throw new TailcastError(
      'START_FAILED',
      `the demo cluster cannot listen on 127.0.0.1: ${errorReason(error)}`,
      {
        cause: error,
      },
    );
  });
  plant(rest, now());

  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= (async () => {
      closing.abort();
      await front.close();
      await runtime.close();
      await rm(scratch, { recursive: true, force: true });
    })();
    return closed;
  };
  signal?.addEventListener('abort', () => void close());
  return {
    url: `https://127.0.0.1:${String(front.port)}`,
    caPem: tls.ca,
    adminToken,
    describeTerminal: terminals.description,
    close,
  };
}

async function chooseCertificate({ tls }: DemoClusterOptions, now: Date): Promise<ServerCertificate> {
  return tls === undefined ? createSelfSignedCertificate(now) : { ca: tls.cert, ...tls };
}

/** Creates the initial objects. */
function plant({ store, pods, changed }: RestDependencies, now: Date): void {
  for (const name of SEED_NAMESPACES) {
    const namespace = prepareCreate(store, NAMESPACES, '', { metadata: { name } }, now);
    changed(NAMESPACES, store.create(NAMESPACES, namespace));
  }
  for (const { resource, namespace, object } of seeds(CLUSTER_VERSION, now)) {
    const prepared = prepareCreate(store, resource, namespace, object, now);
    const stored = store.create(resource, prepared);
    if (resource.kind === 'Pod') pods.started(stored);
    changed(resource, stored);
  }
}

/** Creates the objects that controllers add to every new namespace. */
function furnishNamespace(store: Store, object: ApiObject, ca: string, now: () => Date): void {
  const name = stringAt(object, 'metadata', 'name');
  if (store.get(SERVICE_ACCOUNTS, name, 'default') !== undefined) return;
  if (store.get(NAMESPACES, '', name) === undefined) return;
  const add = (resource: Resource, body: ApiObject): void => {
    store.create(resource, prepareCreate(store, resource, name, body, now()));
  };
  add(SERVICE_ACCOUNTS, { metadata: { name: 'default' } });
  add(CONFIGMAPS, { metadata: { name: 'kube-root-ca.crt' }, data: { 'ca.crt': ca } });
}

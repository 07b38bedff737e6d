/** Creates the request gates of several gateways that share one API server double. Each gate has its own watch. */
import { connectCluster } from '../../src/operator/cluster-connection.ts';
import { createKubeClient } from '../../src/operator/kube-client.ts';
import { AccessRequests, type AccessRequestsDeps, type AccessStep } from '../../src/access/requests.ts';
import { createRecordSeal } from '../../src/access/record.ts';
import { TailcastError } from '../../src/errors.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createGate, type Admission, type Gate } from '../../src/proxy/gate/gate.ts';
import { ACCESS_CAPABILITY } from '../../src/tailnet/access-rules.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { startApiServerDouble, type ApiServerDouble } from '../operator/api-server-double.ts';

export const COLLECTION = '/apis/access.tailcast.dev/v1alpha1/accessrequests';
export const KEY = Buffer.alloc(32, 7);
export const signal = new AbortController().signal;

/** A rule with several approvers. One approval is enough. */
export const RULE = {
  request: { groups: ['sre'] },
  maxDuration: '1h',
  approvers: { users: ['bob@example.com', 'carol@example.com', 'alice@example.com'] },
};

export function user(
  name: string,
  rules: readonly unknown[] = [],
  node = `n${name}`,
  kubernetes: readonly unknown[] = [{ impersonate: { groups: ['devs'] } }],
): Extract<Identity, { kind: 'user' }> {
  return {
    kind: 'user',
    nodeId: node,
    nodeName: `${name}.example.ts.net`,
    addresses: ['100.64.0.1'],
    userId: BigInt(`0x${Buffer.from(name).toString('hex')}`),
    login: `${name}@example.com`,
    displayName: name,
    capabilities: new Map([
      ['tailscale.com/cap/kubernetes', kubernetes],
      [ACCESS_CAPABILITY, rules],
    ]),
  };
}

export interface TestGateway {
  readonly access: AccessRequests;
  readonly gate: Gate;
  readonly steps: AccessStep[];
  /** Sends a request as the current caller. */
  ask(method: string, target: string, ...headers: readonly string[]): Promise<Admission>;
  caller: Identity;
}

export interface Rig {
  readonly api: ApiServerDouble;
  /** Milliseconds since 1970. */
  now: number;
  /** Milliseconds of the monotonic clock. */
  monotonic: number;
  gateway(caller: Identity, deps?: Partial<AccessRequestsDeps>): TestGateway;
  [Symbol.asyncDispose](): Promise<void>;
}

export async function startRig(): Promise<Rig> {
  const api = await startApiServerDouble();
  const stop = new AbortController();
  const connections: { close(): void }[] = [];
  const rig: Rig = {
    api,
    now: Date.UTC(2026, 10, 27, 12),
    monotonic: 1000,
    gateway(caller, deps) {
      const connection = connectCluster({ kubeconfig: api.kubeconfig, context: undefined }, new Map());
      connections.push(connection);
      const steps: AccessStep[] = [];
      const access = new AccessRequests({
        client: createKubeClient(connection, new AbortController().signal),
        seal: createRecordSeal(KEY),
        record: async (step) => void steps.push(step),
        log: createSilentLogger(),
        unixMs: () => rig.now,
        monotonicMs: () => rig.monotonic,
        signal: stop.signal,
        ...deps,
      });
      let count = 0;
      const self: TestGateway = {
        access,
        steps,
        caller,
        gate: createGate({
          mode: 'auth',
          identities: { whois: async () => self.caller },
          upstreamHost: 'kubernetes.test',
          authorization: async () => 'Bearer gateway',
          elevations: access,
          nowMs: () => 0,
          createId: () => `id${(count += 1)}`,
        }),
        ask: (method, target, ...headers) =>
          self.gate.admit(
            {
              method,
              target,
              rawHeaders: ['Host', 'gateway.ts.net', ...headers],
              peer: { address: '100.64.0.1', port: 1, source: 'socket' },
              upgrade: target.includes('/exec'),
            },
            signal,
          ),
      };
      return self;
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      for (const connection of connections) connection.close();
      await api.close();
    },
  };
  return rig;
}

/** Headers of `kubectl --as=me --as-group=…`. */
export const as = (...groups: readonly string[]): readonly string[] => [
  'Impersonate-User',
  'me',
  ...groups.flatMap((group) => ['Impersonate-Group', group]),
];

/** Returns the error of a call that must be refused. */
export async function refusalOf(asked: Promise<unknown>): Promise<TailcastError> {
  const thrown: unknown = await asked.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (thrown instanceof TailcastError) return thrown;
  throw new Error('the call was not refused', { cause: thrown });
}

/** Returns the id of the pending request that a refusal names. */
export async function pendingId(asked: Promise<unknown>): Promise<string> {
  const error = await refusalOf(asked);
  const [, id] = /request ([a-z0-9]{10}) needs/.exec(error.message) ?? [];
  if (error.code !== 'ACCESS_REQUEST_PENDING' || id === undefined) throw error;
  return id;
}

export const decider = (identity: Identity, reason = '') => ({
  identity,
  groupsIn: () => ['devs'],
  reason,
});

/** Values of a header in the request to the API server. */
export function sent({ headers }: Admission, name: string): readonly string[] {
  return headers.flatMap((field, index) =>
    index % 2 === 0 && field.toLowerCase() === name ? [headers[index + 1] ?? ''] : [],
  );
}

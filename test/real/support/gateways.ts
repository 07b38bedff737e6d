/**
 * tailcast in front of a real API server: one recorder, and one gateway for each mode. In auth mode the gateway's
 * account may only impersonate; in noauth mode it has no account.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Rig } from '../rig/rig.ts';
import { type Archive, openArchive } from './archive.ts';
import { identityOf, startTestGateway, startTestRecorder } from './product.ts';

export interface GatewayKind {
  readonly mode: 'auth' | 'noauth';
  readonly recorded: boolean;
}

export interface Gateway extends GatewayKind {
  /** Mode and recording, for example `auth, recorded`. */
  readonly name: string;
  readonly url: string;
  readonly ca: string;
  /** A kubeconfig with this gateway as its server; kubectl stores its caches next to it. */
  readonly kubeconfig: string;
  /** Token for clients: one that the API server accepts in noauth mode; in auth mode the gateway ignores the value. */
  readonly token: string;
}

export interface Gateways {
  readonly archive: Archive;
  /** `ip:port` of the recorder. */
  readonly recorder: string;
  /** A kubeconfig for the API server itself, for control runs. */
  readonly direct: string;
  readonly all: readonly Gateway[];
}

/** `REAL_EXEC_UPSTREAM`: protocol of the gateways to the API server for WebSocket clients. */
export function wantedExecUpstream(): 'same' | 'spdy' | undefined {
  return (['same', 'spdy'] as const).find((name) => name === process.env['REAL_EXEC_UPSTREAM']);
}

const ALL_KINDS: readonly GatewayKind[] = [
  { mode: 'auth', recorded: true },
  { mode: 'auth', recorded: false },
  { mode: 'noauth', recorded: true },
  { mode: 'noauth', recorded: false },
];

/**
 * Starts recorder and gateways in this process; they stop with the rig. Every caller has the identity of the rig's
 * admin, so that responses are comparable.
 */
export async function startGateways(
  rig: Rig,
  cluster: Kubernetes,
  kinds: readonly GatewayKind[] = ALL_KINDS,
  execUpstream = wantedExecUpstream(),
): Promise<Gateways> {
  const folder = join(rig.folder, `product-${cluster.version}`);
  mkdirSync(folder);
  const recorder = await startTestRecorder(folder, 'gateway.example.ts.net');
  rig.onStop(() => recorder.close());
  const upstream = {
    auth: cluster.kubeconfig('gateway-auth', { token: cluster.tokens.impersonator }),
    noauth: cluster.kubeconfig('gateway-noauth', {}),
  };

  async function start({ mode, recorded }: GatewayKind): Promise<Gateway> {
    const id = `${mode}-${recorded ? 'recorded' : 'plain'}`;
    const gateway = await startTestGateway({
      mode,
      upstream: upstream[mode],
      stateDirectory: join(folder, id),
      identity: identityOf({ login: 'rig-admin' }, recorded ? recorder.address : undefined),
      ...(execUpstream === undefined ? {} : { execUpstream }),
    });
    rig.onStop(() => gateway.close(500));
    const url = `https://127.0.0.1:${gateway.port}`;
    const ca = gateway.caPem ?? '';
    const token = mode === 'auth' ? 'unused' : cluster.tokens.admin;
    const kubeconfig = cluster.kubeconfig(`through-${id}`, { server: url, ca, token });
    const name = `${mode}, ${recorded ? 'recorded' : 'not recorded'}`;
    return { mode, recorded, name, url, ca, kubeconfig, token };
  }

  return {
    archive: openArchive(recorder.url),
    recorder: recorder.address,
    direct: cluster.kubeconfig('direct', { token: cluster.tokens.admin }),
    all: await Promise.all(kinds.map(start)),
  };
}

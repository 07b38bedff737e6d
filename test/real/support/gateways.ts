/**
 * The product in front of a real API server: one recorder, and a gateway for each way to run it. In auth mode the
 * gateway's own account may impersonate and nothing else; in noauth mode it has no account at all.
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
  /** Such as `auth, recorded`. */
  readonly name: string;
  readonly url: string;
  readonly ca: string;
  /** A kubeconfig whose server is this gateway; kubectl keeps its caches beside it. */
  readonly kubeconfig: string;
  /** What a client must send: its own credentials in noauth mode, anything in auth mode. */
  readonly token: string;
}

export interface Gateways {
  readonly archive: Archive;
  /** `ip:port` of the recorder. */
  readonly recorder: string;
  /** A kubeconfig for the API server itself: the control. */
  readonly direct: string;
  readonly all: readonly Gateway[];
}

/** `REAL_EXEC_UPSTREAM`: how the gateways ask for what clients want as a WebSocket. */
export function wantedExecUpstream(): 'same' | 'spdy' | undefined {
  return (['same', 'spdy'] as const).find((name) => name === process.env['REAL_EXEC_UPSTREAM']);
}

const ALL_KINDS: readonly GatewayKind[] = [
  { mode: 'auth', recorded: true },
  { mode: 'auth', recorded: false },
  { mode: 'noauth', recorded: true },
  { mode: 'noauth', recorded: false },
];

/** Starts them in this process; they end with the rig. Every caller is the rig's own admin, so that answers can be compared. */
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

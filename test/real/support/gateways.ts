/**
 * The product in front of a real API server: one recorder, and a gateway for each way to run it. In auth mode the
 * gateway's own account may impersonate and nothing else; in noauth mode it has no account at all.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { GATEWAY_SETTINGS } from '../../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../../src/config/recorder.ts';
import { readSettings } from '../../../src/config/settings.ts';
import { startGateway } from '../../../src/compose/gateway.ts';
import { loopbackUploader, startRecorder } from '../../../src/compose/recorder.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Rig } from '../rig/rig.ts';
import { type Archive, openArchive } from './archive.ts';

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
  readonly all: readonly Gateway[];
  of(kind: GatewayKind): Gateway;
}

export interface GatewaysOptions {
  readonly kinds?: readonly GatewayKind[];
  /** Who calls: by default the user and groups of the rig's own admin, so that answers equal those of the API server. */
  readonly login?: string;
  readonly nodeName?: string;
}

export const ALL_KINDS: readonly GatewayKind[] = [
  { mode: 'auth', recorded: true },
  { mode: 'auth', recorded: false },
  { mode: 'noauth', recorded: true },
  { mode: 'noauth', recorded: false },
];

const GATEWAY_NODE = { nodeId: 'nRIGgateway', nodeName: 'gateway.rig.ts.net' };

/** Starts them in this process; they end with the rig. */
export async function startGateways(
  rig: Rig,
  cluster: Kubernetes,
  { kinds = ALL_KINDS, login = 'rig-admin', nodeName = 'laptop.rig.ts.net' }: GatewaysOptions = {},
): Promise<Gateways> {
  const folder = join(rig.folder, `product-${cluster.version}`);
  mkdirSync(folder);
  const log = createSilentLogger();
  const recorder = await startRecorder(
    {
      ...defaultsOf(RECORDER_SETTINGS, [['store', join(folder, 'recordings')]]),
      listen: { host: '127.0.0.1', port: 0 },
      drainSeconds: 1,
    },
    { identify: loopbackUploader(GATEWAY_NODE), log },
  );
  rig.onStop(() => recorder.close());
  const recorderAddress = `${recorder.address.host}:${recorder.address.port}`;
  const upstream = {
    auth: cluster.kubeconfig('gateway-auth', { token: cluster.tokens.impersonator }),
    noauth: cluster.kubeconfig('gateway-noauth', {}),
  };

  async function start({ mode, recorded }: GatewayKind): Promise<Gateway> {
    const name = `${mode}, ${recorded ? 'recorded' : 'not recorded'}`;
    const id = `${mode}-${String(recorded)}`;
    const rule = {
      impersonate: { groups: ['system:masters'] },
      ...(recorded ? { recorderAddrs: [recorderAddress], enforceRecorder: true } : {}),
    };
    const identity: Identity = {
      kind: 'user',
      nodeId: 'nRIGlaptop',
      nodeName,
      addresses: [],
      userId: 1n,
      login,
      displayName: login,
      capabilities: new Map([['tailscale.com/cap/kubernetes', [rule]]]),
    };
    const gateway = await startGateway({
      config: defaultsOf(GATEWAY_SETTINGS, [
        ['kubeconfig', upstream[mode]],
        ['mode', mode],
        ['identity', 'static'],
        ['listen', '127.0.0.1:0'],
        ['stateDirectory', join(folder, id)],
        ['opsListen', 'off'],
        ['accessLog', false],
      ]),
      environment: new Map(),
      log,
      accessSink: process.stderr,
      identity,
    });
    rig.onStop(() => gateway.close(500));
    const url = `https://127.0.0.1:${gateway.port}`;
    const ca = gateway.caPem ?? '';
    const token = mode === 'auth' ? 'unused' : cluster.tokens.admin;
    const kubeconfig = cluster.kubeconfig(`through-${id}`, { server: url, ca, token });
    return { mode, recorded, name, url, ca, kubeconfig, token };
  }

  const all = await Promise.all(kinds.map(start));
  return {
    archive: openArchive(recorder.url),
    all,
    of({ mode, recorded }) {
      const found = all.find((gateway) => gateway.mode === mode && gateway.recorded === recorded);
      if (found === undefined) throw new Error(`no gateway was started for ${mode}, ${String(recorded)}`);
      return found;
    },
  };
}

function defaultsOf<S extends Parameters<typeof readSettings>[0]>(
  settings: S,
  flags: readonly (readonly [string, unknown])[],
): ReturnType<typeof readSettings<S>> {
  return readSettings(settings, { flags: new Map(flags), environment: new Map(), file: undefined });
}

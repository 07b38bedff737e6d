/** Starts gateway and recorder in this process with minimal settings. Loopback only. */
import { join } from 'node:path';
import { GATEWAY_SETTINGS } from '../../../src/config/gateway.ts';
import { readSettings } from '../../../src/config/settings.ts';
import { type RunningGateway, startGateway } from '../../../src/compose/gateway.ts';
import { loopbackUploader } from '../../../src/compose/recorder-identities.ts';
import { startRecorder } from '../../../src/compose/recorder.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import { recorderSettings } from '../../support/settings.ts';

export interface TestRecorder {
  readonly url: string;
  /** `host:port` for a grant. */
  readonly address: string;
  close(): Promise<void>;
}

/** A bucket of a real S3 server; the credentials are environment variables. */
export interface TestBucket {
  readonly endpoint: string;
  readonly region: string;
  readonly bucket: string;
}

/**
 * Starts a recorder that stores recordings in a folder or a bucket and serves the player. The recorder treats uploads
 * from this machine as uploads of `node`. All viewers who use the portal of `node` may see all recordings.
 *
 * @param more additional settings
 */
export async function startTestRecorder(
  folder: string,
  node: string,
  bucket?: TestBucket,
  search = false,
  more: Readonly<Record<string, unknown>> = {},
): Promise<TestRecorder> {
  const nodeId = `n-${node.split('.')[0] ?? ''}`;
  const store =
    bucket === undefined
      ? { store: join(folder, 'recordings') }
      : {
          store: `s3://${bucket.bucket}/`,
          s3Endpoint: bucket.endpoint,
          s3Region: bucket.region,
          spool: join(folder, 'spool'),
        };
  const settings = recorderSettings({ ...store, viewers: '*', trustedGateways: nodeId, search, ...more });
  const recorder = await startRecorder(
    { ...settings, listen: { host: '127.0.0.1', port: 0 }, drainSeconds: 1 },
    {
      identify: loopbackUploader({ nodeId, nodeName: node }),
      identifyViewer: () => Promise.resolve({ node, nodeId }),
      log: createSilentLogger(),
    },
  );
  return {
    url: recorder.url,
    address: `${recorder.address.host}:${recorder.address.port}`,
    close: () => recorder.close(),
  };
}

export interface TestGatewayOptions {
  readonly mode: 'auth' | 'noauth';
  /** Kubeconfig of the API server. */
  readonly upstream: string;
  readonly stateDirectory: string;
  /** Identity of every caller. */
  readonly identity: Identity;
  readonly dashboardOrigins?: readonly string[];
  /** Maximum pending bytes for a recorder. */
  readonly recorderWindow?: number;
  /** A policy file. */
  readonly policy?: string;
  /** Protocol to the API server for WebSocket clients; default: tailcast's default. */
  readonly execUpstream?: 'same' | 'spdy';
}

export function startTestGateway(options: TestGatewayOptions): Promise<RunningGateway> {
  return startGateway({
    config: readSettings(GATEWAY_SETTINGS, {
      flags: new Map<string, unknown>([
        ['kubeconfig', options.upstream],
        ['mode', options.mode],
        ['identity', 'static'],
        ...(options.recorderWindow === undefined
          ? []
          : [['recorderWindow', options.recorderWindow] as const]),
        ...(options.policy === undefined ? [] : [['policy', options.policy] as const]),
        ...(options.execUpstream === undefined ? [] : [['execUpstream', options.execUpstream] as const]),
        ['listen', '127.0.0.1:0'],
        ['stateDirectory', options.stateDirectory],
        ['opsListen', 'off'],
        ['accessLog', false],
        ['dashboardOrigins', options.dashboardOrigins ?? []],
      ]),
      environment: new Map(),
      file: undefined,
    }),
    environment: new Map(),
    log: createSilentLogger(),
    accessSink: process.stderr,
    identity: options.identity,
  });
}

/** Returns an identity with all rights in the cluster: a user, or a node if the caller has tags. */
export function identityOf(
  caller: { readonly login: string } | { readonly tags: readonly string[]; readonly nodeName: string },
  recorderAddress: string | undefined,
): Identity {
  const rule = {
    impersonate: { groups: ['system:masters'] },
    ...(recorderAddress === undefined ? {} : { recorderAddrs: [recorderAddress], enforceRecorder: true }),
  };
  const capabilities = new Map([['tailscale.com/cap/kubernetes', [rule]]]);
  if ('tags' in caller) {
    const { tags, nodeName } = caller;
    return { kind: 'tagged', nodeId: `n-${nodeName}`, nodeName, addresses: [], tags, capabilities };
  }
  const { login } = caller;
  const name = login.split('@')[0] ?? login;
  return {
    kind: 'user',
    nodeId: `n-${name}`,
    nodeName: `${name}-laptop.example.ts.net`,
    addresses: [],
    userId: 1n,
    login,
    displayName: name,
    capabilities,
  };
}

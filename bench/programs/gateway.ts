/**
 * The gateway of `tailcast gateway`, with one fixed identity and without an access log.
 *
 *   node gateway.js <json>      prints {"port":…} when it serves
 */
import { createWriteStream, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { readSettings } from '../../src/config/settings.ts';
import { startGateway } from '../../src/compose/gateway.ts';
import { createLogger } from '../../src/observe/logger.ts';
import type { Identity } from '../../src/tailnet/identity.ts';

export interface GatewayProgram {
  readonly kubeconfig: string;
  readonly cert: string;
  readonly key: string;
  readonly stateDirectory: string;
  readonly policy: string;
  /** `host:port` of the enforced recorder; undefined for no recording. */
  readonly recorder?: string;
  /** True for `--recorder-window 0`. */
  readonly durableFirst?: boolean;
  /** True if every connection starts with a PROXY header and has no TLS, as behind `tailscale serve`. */
  readonly plain?: boolean;
  /** Number of clusters in the file of the setting `clusters`; undefined for one cluster without this setting. */
  readonly clusters?: number;
}

const options = JSON.parse(process.argv[2] ?? '{}') as GatewayProgram;
const front: readonly (readonly [string, unknown])[] =
  options.plain === true
    ? [
        ['tls', 'none'],
        ['proxyProtocol', 'require'],
      ]
    : [
        ['tls', 'files'],
        ['tlsCert', options.cert],
        ['tlsKey', options.key],
      ];
/**
 * Writes a file of clusters that all use the benchmark's API server. The load uses the host name of the first cluster.
 */
function writeClusters(count: number): string {
  const clusters = Array.from({ length: count }, (_, index) => ({
    name: `cluster-${index}`,
    hosts: [index === 0 ? 'localhost' : `cluster-${index}.localhost`],
    kubeconfig: { file: options.kubeconfig },
  }));
  mkdirSync(options.stateDirectory, { recursive: true });
  const path = join(options.stateDirectory, 'clusters.yaml');
  writeFileSync(path, JSON.stringify({ clusters, unscopedRules: 'all' }));
  return path;
}

const config = readSettings(GATEWAY_SETTINGS, {
  flags: new Map<string, unknown>([
    options.clusters === undefined
      ? ['kubeconfig', options.kubeconfig]
      : ['clusters', writeClusters(options.clusters)],
    ['identity', 'static'],
    ['listen', '127.0.0.1:0'],
    ...front,
    ['stateDirectory', options.stateDirectory],
    ['policy', options.policy],
    ['opsListen', 'off'],
    ['logLevel', 'error'],
    ...(options.durableFirst === true ? [['recorderWindow', 0] as const] : []),
  ]),
  environment: new Map(),
  file: undefined,
});
const identity: Identity = {
  kind: 'user',
  nodeId: 'nBENCH',
  nodeName: 'bench.example.ts.net',
  addresses: [],
  userId: 1n,
  login: 'alice@example.com',
  displayName: 'Alice',
  capabilities: new Map<string, readonly unknown[]>([
    [
      'tailscale.com/cap/kubernetes',
      [
        {
          impersonate: { groups: ['system:masters'] },
          ...(options.recorder === undefined
            ? {}
            : { recorderAddrs: [options.recorder], enforceRecorder: true }),
        },
      ],
    ],
  ]),
};

process.once('SIGTERM', () => process.exit(0));
const gateway = await startGateway({
  config,
  environment: new Map(),
  log: createLogger({ level: 'error' }),
  accessSink: createWriteStream('/dev/null'),
  identity,
});
console.log(JSON.stringify({ port: gateway.port }));

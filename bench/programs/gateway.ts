/**
 * The gateway as `tailcast gateway` composes it, with one fixed identity and its access log to nowhere.
 *
 *   node gateway.js <json>      prints {"port":…,"of":…} for each process that serves; `of` is the process that was started
 */
import { createWriteStream } from 'node:fs';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { readSettings } from '../../src/config/settings.ts';
import { startGateway } from '../../src/compose/gateway.ts';
import { runRole } from '../../src/compose/workers.ts';
import { createLogger } from '../../src/observe/logger.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import type { WorkerLink } from '../../src/workers/worker-link.ts';

export interface GatewayProgram {
  readonly kubeconfig: string;
  readonly cert: string;
  readonly key: string;
  readonly stateDirectory: string;
  readonly policy: string;
  /** `host:port` of the recorder that every session must go to; none: nothing is recorded. */
  readonly recorder?: string;
  /** Users see nothing before it is durable. */
  readonly durableFirst?: boolean;
  /** As behind `tailscale serve`: a PROXY header on every connection, and TLS ended in front of it. */
  readonly plain?: boolean;
  /** More than one: as `--workers` does it, under a process that watches over them. */
  readonly workers: number;
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
const config = readSettings(GATEWAY_SETTINGS, {
  flags: new Map<string, unknown>([
    ['kubeconfig', options.kubeconfig],
    ['identity', 'static'],
    ['listen', '127.0.0.1:0'],
    ...front,
    ['stateDirectory', options.stateDirectory],
    ['policy', options.policy],
    ['opsListen', 'off'],
    ['checkRights', false],
    ['workers', options.workers],
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
  capabilities: new Map([
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
const environment = new Map<string, string>();
const never = new AbortController().signal;

process.once('SIGTERM', () => process.exit(0));
await runRole({
  config,
  context: { stdout: process.stdout, stderr: process.stderr, environment, signal: never },
  async run(_context, link: WorkerLink | undefined) {
    const gateway = await startGateway({
      config,
      environment,
      log: createLogger({ level: 'error' }),
      accessSink: createWriteStream('/dev/null'),
      identity,
      link,
    });
    console.log(JSON.stringify({ port: gateway.port, of: link === undefined ? process.pid : process.ppid }));
    await new Promise(() => undefined);
  },
});

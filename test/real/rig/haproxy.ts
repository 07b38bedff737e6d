/** HAProxy as a TCP load balancer that accepts and sends PROXY headers. */
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ensureDebianProgram } from './debian.ts';
import { type Program, type Rig, freePort } from './rig.ts';

export interface LoadBalancer {
  readonly port: number;
  readonly program: Program;
  /** Returns the number of servers that pass HAProxy's health check. */
  serversUp(): Promise<number>;
  /** Resolves when this number of servers pass HAProxy's health check. */
  allUp(count: number): Promise<true>;
}

export interface LoadBalancerOptions {
  /** Loopback address on which HAProxy listens. */
  readonly host: string;
  /** Version of the PROXY header from clients and to servers. */
  readonly proxyProtocol: 1 | 2;
  /** Servers, each with a port on 127.0.0.1 for health checks at `/readyz`. */
  readonly servers: readonly { readonly host: string; readonly port: number; readonly opsPort: number }[];
}

let balancers = 0;

/** Starts HAProxy, and returns when every server is up. */
export async function startLoadBalancer(rig: Rig, options: LoadBalancerOptions): Promise<LoadBalancer> {
  const path = ensureDebianProgram('haproxy');
  balancers += 1;
  const name = `haproxy-${balancers}`;
  const port = await freePort();
  const socketPath = join(rig.folder, name);
  const configPath = `${socketPath}.cfg`;
  writeFileSync(configPath, configuration(options, port, socketPath));
  const started = launch(rig, { name, path, configPath, socketPath });
  await started.allUp(options.servers.length);
  return { port, ...started };
}

export interface Router extends LoadBalancer {
  /** Port of the health check for keepalived. */
  readonly healthPort: number;
}

const EXAMPLE = new URL('../../../deploy/routers/haproxy.cfg', import.meta.url);

/**
 * Starts HAProxy with the configuration in `deploy/routers`, which is for two gateways. Returns when both gateways are
 * up.
 *
 * @param changes texts that occur once in the configuration, and their replacements
 */
export async function startRouter(
  rig: Rig,
  host: string,
  [one, two]: LoadBalancerOptions['servers'],
  changes: readonly (readonly [from: string, to: string])[] = [],
): Promise<Router> {
  if (one === undefined || two === undefined) throw new Error('the configuration is for two gateways');
  const path = ensureDebianProgram('haproxy');
  const [port, healthPort] = [await freePort(), await freePort()];
  balancers += 1;
  const name = `haproxy-${balancers}`;
  const socketPath = join(rig.folder, name);
  const configPath = `${socketPath}.cfg`;
  const config = [
    ['global\n', `global\n  stats socket ${socketPath} mode 600\n`],
    ['127.0.0.78:8443', `${host}:${port}`],
    ['127.0.0.1:9100', `127.0.0.1:${healthPort}`],
    ['127.0.0.77:8443', `${one.host}:${one.port}`],
    ['127.0.0.77:8444', `${two.host}:${two.port}`],
    ['port 9002 inter 1s', `port ${one.opsPort} inter 200ms`],
    ['port 9012 inter 1s', `port ${two.opsPort} inter 200ms`],
    ...changes,
  ].reduce(
    (text, [from = '', to = '']) => {
      if (text.split(from).length !== 2) throw new Error(`${from} does not occur once in ${text}`);
      return text.replace(from, to);
    },
    readFileSync(EXAMPLE, 'utf8'),
  );
  writeFileSync(configPath, config);
  const started = launch(rig, { name, path, configPath, socketPath });
  await started.allUp(2);
  return { port, healthPort, ...started };
}

interface LaunchOptions {
  readonly name: string;
  readonly path: string;
  readonly configPath: string;
  readonly socketPath: string;
}

function launch(rig: Rig, { name, path, configPath, socketPath }: LaunchOptions) {
  // -db: stay in the foreground.
  const program = rig.launch({ name, path, args: ['-db', '-f', configPath] });
  const serversUp = async (): Promise<number> => {
    const socket = connect(socketPath);
    socket.write('show stat\n');
    const lines = (await text(socket)).split('\n').map((line) => line.split(','));
    return lines.filter(
      ([proxy, server, ...rest]) => proxy === 'gateways' && server !== 'BACKEND' && rest.includes('UP'),
    ).length;
  };
  const allUp = (count: number): Promise<true> =>
    rig.until(name, async () => ((await serversUp()) === count ? true : undefined), { watch: [program] });
  return { program, serversUp, allUp };
}

function configuration(
  { host, proxyProtocol, servers }: LoadBalancerOptions,
  port: number,
  socketPath: string,
): string {
  const send = proxyProtocol === 1 ? 'send-proxy' : 'send-proxy-v2';
  const lines = servers.map(
    (server, index) =>
      `  server gateway-${index} ${server.host}:${server.port} ${send} check addr 127.0.0.1 port ` +
      `${server.opsPort} inter 200ms fall 1 rise 1`,
  );
  return `global
  stats socket ${socketPath} mode 600
defaults
  mode tcp
  timeout connect 5s
  # sessions and watches may be silent for long
  timeout client 1h
  timeout server 1h
frontend tailnet
  bind ${host}:${port} accept-proxy
  default_backend gateways
backend gateways
  balance roundrobin
  option httpchk GET /readyz
${lines.join('\n')}
`;
}

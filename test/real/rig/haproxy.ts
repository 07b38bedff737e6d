/** HAProxy as a TCP load balancer that accepts and sends PROXY headers. */
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ensureDebianProgram } from './debian.ts';
import { type Program, type Rig, freePort } from './rig.ts';

export interface LoadBalancer {
  readonly port: number;
  readonly program: Program;
  /** Returns the number of its servers that pass their health check. */
  serversUp(): Promise<number>;
}

export interface LoadBalancerOptions {
  /** Loopback address it listens on. */
  readonly host: string;
  /** Version of the PROXY header from clients and to servers. */
  readonly proxyProtocol: 1 | 2;
  /** Servers, each with a port on 127.0.0.1 for health checks at `/readyz`. */
  readonly servers: readonly { readonly host: string; readonly port: number; readonly opsPort: number }[];
}

let started = 0;

/** Starts it and returns when every server is up. */
export async function startLoadBalancer(rig: Rig, options: LoadBalancerOptions): Promise<LoadBalancer> {
  const path = ensureDebianProgram('haproxy');
  started += 1;
  const name = `haproxy-${started}`;
  const port = await freePort();
  const socketPath = join(rig.folder, name);
  const configPath = `${socketPath}.cfg`;
  writeFileSync(configPath, configuration(options, port, socketPath));
  // -db: stay in the foreground.
  const program = rig.launch({ name, path, args: ['-db', '-f', configPath] });
  const serversUp = async (): Promise<number> => {
    const socket = connect(socketPath);
    socket.write('show stat\n');
    const lines = (await text(socket)).split('\n').map((line) => line.split(','));
    return lines.filter(
      ([proxy, server, ...rest]) =>
        proxy === 'gateways' && server?.startsWith('gateway-') === true && rest.includes('UP'),
    ).length;
  };
  await rig.until(name, async () => ((await serversUp()) === options.servers.length ? true : undefined), {
    watch: [program],
  });
  return { port, program, serversUp };
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

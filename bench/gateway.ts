/**
 * The gateway's front with a static identity, as its own process for the benchmarks: the listener, the gate, the pump and
 * the access log are the product's; only the composition is smaller.
 *
 *   node bench/gateway.ts <cert> <key> <ca> <upstream port>      prints its port
 */
import { randomUUID } from 'node:crypto';
import { createWriteStream, readFileSync } from 'node:fs';
import { createAccessLog } from '../src/observe/access-log.ts';
import { createEvents } from '../src/observe/events.ts';
import { createLogger } from '../src/observe/logger.ts';
import { createMetrics } from '../src/observe/metrics.ts';
import { createGate } from '../src/proxy/gate.ts';
import { createProxyServer } from '../src/proxy/server.ts';
import { createUpstreamConnector } from '../src/proxy/upstream-connect.ts';
import { DEFAULT_POOL_LIMITS, UpstreamPool } from '../src/proxy/upstream-pool.ts';
import { openCertificateFiles } from '../src/tailnet/certificate-files.ts';
import { createTailnetListener } from '../src/tailnet/listener.ts';
import { createStaticIdentity } from '../src/tailnet/static-identity.ts';

const [cert = '', key = '', ca = '', upstreamPort = ''] = process.argv.slice(2);
const log = createLogger({ level: 'warn' });
const metrics = createMetrics();
const nowMs = (): number => performance.now();
const connector = createUpstreamConnector({
  host: '127.0.0.1',
  port: Number(upstreamPort),
  serverName: 'localhost',
  tls: { ca: readFileSync(ca, 'utf8') },
});
const proxy = await createProxyServer({
  pump: {
    gate: createGate({
      mode: 'auth',
      identities: createStaticIdentity({
        identity: {
          kind: 'user',
          nodeId: 'nBENCH',
          nodeName: 'bench.example.ts.net',
          addresses: ['100.64.0.1'],
          userId: 1n,
          login: 'alice@example.com',
          displayName: 'Alice',
          capabilities: new Map([['tailscale.com/cap/kubernetes', [{ impersonate: { groups: ['devs'] } }]]]),
        },
      }),
      upstreamHost: 'localhost',
      authorization: () => Promise.resolve('Bearer bench'),
      nowMs,
      createId: randomUUID,
    }),
    pool: new UpstreamPool(
      (onRead) => connector.connect(onRead),
      DEFAULT_POOL_LIMITS,
      () => performance.now(),
    ),
    basePath: '',
    metrics,
    accessLog: createAccessLog(createWriteStream('/dev/null')),
    events: createEvents(metrics, log),
    recordApiRequest: () => Promise.resolve(),
    eventBodyBytes: 0,
    maxInFlight: 20_000,
    keepCookies: false,
    nowMs,
  },
  upgrade: (_request, socket) => {
    socket.destroy();
    return Promise.resolve();
  },
  metrics,
  log,
});
const listener = await createTailnetListener({
  host: '127.0.0.1',
  port: 0,
  proxyProtocol: 'off',
  certificates: await openCertificateFiles({ certificatePath: cert, keyPath: key, log }),
  log,
});
listener.onConnection((socket, alpn, peer) => proxy.serve(socket, alpn, peer));
console.log(listener.address.port);
process.once('SIGTERM', () => process.exit(0));

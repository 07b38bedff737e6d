/**
 * The operations listener: `/livez`, `/readyz` and `/metrics`, over plain HTTP on a separate port. The server has no
 * access to user data, and reads only the path of a request.
 */
import { createServer, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { withTimeout } from '../async/with-timeout.ts';
import { cannotListen, errorText } from '../errors.ts';
import { listenOn, type ListenAddress } from '../listen.ts';

/** A check that must succeed for `/readyz`. */
export interface ReadinessCheck {
  readonly name: string;
  /**
   * Resolves if the check succeeds. The value of the promise is an optional remark. Rejects with the reason if the
   * check fails. The function must stop when the signal aborts.
   */
  check(signal: AbortSignal): Promise<string | void>;
}

export type OpsServer = NonNullable<Awaited<ReturnType<typeof openOpsServer>>>;

/** Source of the metrics text, such as prom-client's `Registry`. */
export interface MetricsText {
  readonly contentType: string;
  metrics(): Promise<string>;
}

/**
 * Maximum number of connections. A further connection closes the oldest connection. Probes take only milliseconds, so
 * the oldest connection is probably unused.
 */
const MAX_CONNECTIONS = 64;

interface OpsOptions {
  readonly metrics: MetricsText;
  readonly checks: readonly ReadinessCheck[];
  /** While it returns true, `/readyz` returns 503, so that no new traffic arrives. */
  readonly draining?: () => boolean;
  /** Time limit of each readiness check (default 2 s). */
  readonly timeoutMs?: number;
}

/**
 * Opens the listener, unless its address is undefined.
 *
 * @throws TailcastError `START_FAILED` if the server cannot listen on the address
 */
export async function openOpsServer(listen: ListenAddress | undefined, options: OpsOptions) {
  if (listen === undefined) return undefined;

  const server = createServer({ headersTimeout: 10_000, requestTimeout: 10_000 }, (request, response) => {
    request.resume();
    const path = (request.url ?? '/').split('?', 1)[0] ?? '/';
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return send(response, 405, 'method not allowed\n');
    route(path, response, options).catch((error: unknown) => send(response, 500, `${errorText(error)}\n`));
  });
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => {
    const [oldest] = sockets;
    if (sockets.size >= MAX_CONNECTIONS) oldest?.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const address = await listenOn(server, listen).catch(cannotListen(`${listen.host}:${listen.port}`));
  return {
    address: { host: address.address, port: address.port },
    close: (): Promise<void> =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function route(path: string, response: ServerResponse, options: OpsOptions): Promise<void> {
  switch (path) {
    case '/livez':
      return send(response, 200, 'ok\n');
    case '/readyz': {
      const { failures, remarks } = await runChecks(options.checks, options.timeoutMs ?? 2000);
      if (options.draining?.() === true) failures.push('draining');
      const lines = failures.length === 0 ? ['ok', ...remarks] : [...failures, ...remarks];
      return send(response, failures.length === 0 ? 200 : 503, lines.map((line) => `${line}\n`).join(''));
    }
    case '/metrics':
      return send(response, 200, await options.metrics.metrics(), options.metrics.contentType);
    default:
      return send(response, 404, 'not found\n');
  }
}

/** @returns one message for each check that failed or exceeded `timeoutMs` */
export async function failuresOf(checks: readonly ReadinessCheck[], timeoutMs: number): Promise<string[]> {
  return (await runChecks(checks, timeoutMs)).failures;
}

async function runChecks(
  checks: readonly ReadinessCheck[],
  timeoutMs: number,
): Promise<{ readonly failures: string[]; readonly remarks: readonly string[] }> {
  const results = await Promise.allSettled(
    checks.map((entry) => withTimeout(timeoutMs, 'the check', undefined, (signal) => entry.check(signal))),
  );
  const name = (index: number): string => checks[index]?.name ?? 'check';
  return {
    failures: results.flatMap((result, index) =>
      result.status === 'fulfilled' ? [] : [`${name(index)}: ${errorText(result.reason)}`],
    ),
    remarks: results.flatMap((result, index) =>
      result.status === 'fulfilled' && typeof result.value === 'string'
        ? [`${name(index)}: ${result.value}`]
        : [],
    ),
  };
}

function send(
  response: ServerResponse,
  status: number,
  body: string,
  type = 'text/plain; charset=utf-8',
): void {
  if (response.headersSent) return;
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
  });
  response.end(body);
}

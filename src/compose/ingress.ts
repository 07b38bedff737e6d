/** Builds the ingress role, which serves Ingresses with their own certificates. */
import type { CommandContext } from '../config/command-context.ts';
import type { IngressConfig } from '../config/ingress.ts';
import { createTableCertificates } from '../ingress/certificates.ts';
import { createIngressMetrics } from '../ingress/metrics.ts';
import { IngressServer } from '../ingress/server.ts';
import { openTableFile } from '../ingress/table-file.ts';
import { createUpstreams } from '../ingress/upstreams.ts';
import type { ListenAddress } from '../listen.ts';
import { createTailnetListener, type TailnetListenerOptions } from '../tailnet/listener.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { assertPrivateProxyListener } from '../tailnet/proxied-listener.ts';
import { createWhois } from '../tailnet/whois.ts';
import { fileCheck, tailscaledCheck } from './readiness.ts';
import { SmallRole } from './small-role.ts';
import { cannotListen } from '../errors.ts';

/** Maximum time for requests in flight after `signal` aborts, in milliseconds. */
const DRAIN_MS = 10_000;
/**
 * Listen address for plain HTTP. The operator configures tailscaled to forward port 80 to this address
 * (`operator/ingress/table.ts`).
 */
const HTTP_LISTEN: ListenAddress = { host: '127.0.0.77', port: 8080 };

/**
 * `tailcast ingress`: serves until `signal` aborts.
 *
 * @throws TailcastError `CONFIG_INVALID` if a userspace tailscaled forwards tailnet ports to the listen address;
 *   `START_FAILED` if it cannot listen
 */
export async function runIngress(config: IngressConfig, context: CommandContext): Promise<void> {
  assertPrivateProxyListener(config.listen.host);
  await using role = new SmallRole(config, context);
  const { log, registry, signal } = role;
  const certificates = createTableCertificates();
  const file = await openTableFile({ path: config.table, use: (table) => certificates.use(table), log });
  const localApi = createLocalApi({ socketPath: config.socket ?? '' });
  role.defer(() => localApi.close());
  const upstreams = createUpstreams();
  role.defer(() => upstreams.close());
  const opened: { server?: IngressServer } = {};
  const { requests } = createIngressMetrics(registry, () => opened.server?.inFlight ?? 0);
  const server = new IngressServer({
    table: () => file.current,
    // The tailnet policy decides whether users of other tailnets have access.
    identities: createWhois({ localApi, allowShared: true }),
    upstreams,
    onEnd: (outcome) => requests.inc({ outcome }),
    log,
  });
  opened.server = server;
  role.defer(() => server.close());
  const open = async (
    at: ListenAddress,
    name: string,
    tls:
      | Pick<TailnetListenerOptions & { tls: 'terminate' }, 'tls' | 'certificates'>
      | { readonly tls: 'none' },
  ): Promise<void> => {
    const common = { ...at, proxyProtocol: 'require', log } as const;
    const listener = await createTailnetListener({ ...common, ...tls }).catch(
      cannotListen(`${at.host}:${at.port} (${name})`),
    );
    listener.onConnection(server.handler(tls.tls !== 'none'));
    role.defer(() => listener.close(AbortSignal.timeout(DRAIN_MS)));
  };
  await open(config.listen, 'listen', { tls: 'terminate', certificates });
  await open(HTTP_LISTEN, 'http', { tls: 'none' });
  const ops = await role.openOps([fileCheck('table', config.table, file), tailscaledCheck(localApi)]);
  log.info({ listen: config.listen, http: HTTP_LISTEN, ops }, 'ingress is ready');
  await file.follow(signal);
}

/** The checks of `tailcast doctor gateway`. */
import { join } from 'node:path';
import { defaultStateDirectory } from '../config/environment.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import { TailcastError } from '../errors.ts';
import { apiServerChecks } from '../doctor/api-server-checks.ts';
import { certificateCheck, type CertificatePlan } from '../doctor/certificate-check.ts';
import type { Check } from '../doctor/checks.ts';
import { journalCheck } from '../doctor/journal-check.ts';
import {
  grantOf,
  grantsCheck,
  readGrants,
  type CallerGrant,
  type GrantScope,
} from '../doctor/grants-check.ts';
import { permissionChecks } from '../doctor/permission-checks.ts';
import { recordersCheck } from '../doctor/recorder-checks.ts';
import { storageChecks } from '../doctor/storage-checks.ts';
import { tailnetChecks } from '../doctor/tailnet-checks.ts';
import { createSilentLogger } from '../observe/logger.ts';
import { createLocalApiCertificates } from '../tailnet/local-api-certificates.ts';
import { assertServiceWhois, type LocalApi } from '../tailnet/local-api.ts';
import { assertPrivateProxyListener } from '../tailnet/proxied-listener.ts';
import { findJournalKey } from '../recording/journal/journal-key.ts';
import { clusterChecks, type ClusterDoctorParts } from './doctor-clusters.ts';
import { openApiServer, ownHosts } from './gateway-upstream.ts';
import { journalPlace } from './journals.ts';
import { k3sKubeconfig } from './k3s.ts';
import { readStaticIdentity } from './static-identity-file.ts';
import { createLocalTailnet, createStaticTailnet, type Tailnet, tlsKindOf } from './tailnet.ts';
import { type DoctorOptions, MIB, type LocalStatus, openStatus } from './doctor.ts';

/** Free space in the state directory below which the check warns, in bytes; enough for certificates. */
const STATE_BYTES = 8 * MIB;

/** Returns the checks of `tailcast doctor gateway`, in the order of an installation. */
export async function gatewayChecks(
  config: GatewayConfig,
  options: DoctorOptions,
): Promise<readonly Check[]> {
  const { environment } = options;
  if (config.proxyProtocol === 'require') assertPrivateProxyListener(config.listen.host);
  const stateDirectory = config.stateDirectory ?? join(defaultStateDirectory(environment), 'gateway');
  const journals = journalPlace(config, stateDirectory, environment);
  const local = config.identity === 'tailscale' ? createLocal(config, options) : undefined;
  const tailnet = local?.tailnet ?? (await createFixed(config));
  const grantsOf = (scope?: GrantScope) =>
    shareLoad(local === undefined ? fixedGrants(config, scope) : callerGrants(local, options, scope));
  const grantNeeds = local === undefined ? [] : ['connected'];
  const several = await severalClusters(config, tailnet, { ...options, grantsOf, grantNeeds });
  const grants = several?.grants ?? grantsOf();
  return [
    ...(local === undefined
      ? []
      : tailnetChecks({ ...local, proxyProtocol: config.proxyProtocol === 'require' })),
    certificateCheck({
      plan: planCertificate(config, stateDirectory, local?.localApi, options.signal),
      nodeName: async () => (await local?.status().catch(() => undefined))?.self?.name,
      unixMs: Date.now,
    }),
    ...(several?.checks ?? [
      ...onlyCluster(config, stateDirectory, options),
      grantsCheck(grants, { needs: grantNeeds, only: options.caller }),
    ]),
    recordersCheck({
      grants,
      resolveTags: tailnet.resolveRecorderTags,
      dial: tailnet.dialRecorder,
      nodeOf: tailnet.nodeOf,
    }),
    ...storageChecks({
      id: 'state',
      title: 'state directory',
      directory: stateDirectory,
      flag: '--state-directory',
      minFreeBytes: MIB,
      wantedBytes: STATE_BYTES,
    }),
    journalCheck(journals && { ...journals, loadKey: () => findJournalKey(journals.keyFile) }),
  ];
}

/** Returns the checks of the API server of a gateway with one cluster. */
function onlyCluster(
  config: GatewayConfig,
  stateDirectory: string,
  { environment }: DoctorOptions,
): readonly Check[] {
  const server = config.k3s ? { ...config, kubeconfig: k3sKubeconfig(stateDirectory) } : config;
  const api = apiServerChecks({ open: () => openApiServer(server, environment), unixMs: Date.now });
  return [
    ...api.checks,
    ...permissionChecks({
      client: api.client,
      mode: config.mode,
      namespace: environment.get('POD_NAMESPACE') ?? 'default',
      podName: environment.get('POD_NAME') ?? environment.get('HOSTNAME'),
    }),
  ];
}

/** Returns the checks of the setting `clusters`; undefined if it is not set. */
async function severalClusters(
  config: GatewayConfig,
  { localApi }: Tailnet,
  options: Pick<ClusterDoctorParts, 'grantsOf' | 'grantNeeds'> & DoctorOptions,
): Promise<Awaited<ReturnType<typeof clusterChecks>> | undefined> {
  if (config.clusters === undefined) return undefined;
  return clusterChecks({
    ...options,
    config,
    path: config.clusters,
    // another check reports that tailscaled does not respond
    ownHosts: (signal) => ownHosts(config, localApi, signal).catch(() => ownHosts(config, undefined, signal)),
    async assertServices(signal) {
      const status = await localApi?.status(signal, { peers: false });
      if (status === undefined)
        throw new TailcastError('CONFIG_INVALID', 'clusters with a service need identity=tailscale');
      assertServiceWhois(status.version);
    },
  });
}

function createLocal(
  config: GatewayConfig,
  { signal }: DoctorOptions,
): LocalStatus & { readonly tailnet: Tailnet } {
  const tailnet = createLocalTailnet(config, { log: createSilentLogger(), signal });
  return { ...openStatus(config.socket, signal), tailnet };
}

async function createFixed(config: GatewayConfig): Promise<Tailnet> {
  return createStaticTailnet(await readStaticIdentity(config.staticIdentity), config.listen.host);
}

function fixedGrants(
  config: GatewayConfig,
  scope: GrantScope | undefined,
): () => Promise<readonly CallerGrant[]> {
  return async () => [grantOf(await readStaticIdentity(config.staticIdentity), scope)];
}

function callerGrants(
  { tailnet, status }: LocalStatus & { readonly tailnet: Tailnet },
  { caller }: DoctorOptions,
  scope: GrantScope | undefined,
): (signal: AbortSignal) => Promise<readonly CallerGrant[]> {
  const facts = {
    only: caller,
    scope,
    callers: async () => {
      const { peers } = await status();
      return peers
        .filter(({ online }) => online || caller !== undefined)
        .flatMap(({ name, addresses: [address] }) => (address === undefined ? [] : [{ name, address }]));
    },
    whois: (address: string, signal: AbortSignal, service?: string) =>
      // `proxy-protocol` means that `address` is the address of a tailnet node; `whois` then ignores the port.
      tailnet.identities.whois({ address, port: 1, source: 'proxy-protocol' }, signal, service),
  };
  return (signal) => readGrants(facts, signal);
}

/** Returns a function that loads once, so that two checks share the result. */
function shareLoad<T>(load: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T> {
  let result: Promise<T> | undefined;
  return (signal) => (result ??= load(signal));
}

function planCertificate(
  config: GatewayConfig,
  directory: string,
  localApi: LocalApi | undefined,
  signal: AbortSignal,
): CertificatePlan {
  switch (tlsKindOf(config)) {
    case 'none':
      return { kind: 'none' };
    case 'self-signed':
      return { kind: 'self-signed', directory };
    case 'files': {
      const { tlsCert, tlsKey } = config;
      if (tlsCert === undefined || tlsKey === undefined) {
        throw new TailcastError('CONFIG_INVALID', 'tls=files needs both tlsCert and tlsKey');
      }
      return { kind: 'files', certificatePath: tlsCert, keyPath: tlsKey };
    }
    case 'tailscale': {
      if (localApi === undefined) {
        throw new TailcastError('CONFIG_INVALID', 'tls=tailscale needs identity=tailscale');
      }
      const certificates = createLocalApiCertificates({ localApi, log: createSilentLogger(), signal });
      return { kind: 'tailscale', load: () => certificates.certificate(undefined) };
    }
  }
}

/** The checks of `tailcast doctor` for each role, with the settings, sockets and addresses of the role. */
import { once as onceEmitted } from 'node:events';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { defaultStateDirectory } from '../config/environment.ts';
import type { GatewayConfig } from '../config/gateway.ts';
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError } from '../errors.ts';
import { apiServerChecks } from '../doctor/api-server-checks.ts';
import { bucketChecks } from '../doctor/bucket-checks.ts';
import { certificateCheck, type CertificatePlan } from '../doctor/certificate-check.ts';
import { once, type Check } from '../doctor/checks.ts';
import { formatCheck } from '../doctor/format-check.ts';
import { journalCheck } from '../doctor/journal-check.ts';
import { serverClockCheck } from '../doctor/clock-check.ts';
import { grantOf, grantsCheck, readGrants, type CallerGrant } from '../doctor/grants-check.ts';
import { permissionChecks } from '../doctor/permission-checks.ts';
import { answersCheck, trustedGatewaysCheck, uploadersCheck } from '../doctor/recorder-role-checks.ts';
import { recordersCheck } from '../doctor/recorder-checks.ts';
import { searchCheck, type SearchFacts } from '../doctor/search-check.ts';
import { storageChecks } from '../doctor/storage-checks.ts';
import { tailnetChecks } from '../doctor/tailnet-checks.ts';
import { checkFormat, GATEWAY_STATE_FORMAT, SPOOL_FORMAT } from '../folder-format.ts';
import { createSilentLogger } from '../observe/logger.ts';
import { createLocalApiCertificates } from '../tailnet/local-api-certificates.ts';
import { createLocalApi, type LocalApi } from '../tailnet/local-api.ts';
import { findJournalKey } from '../recording/journal/journal-key.ts';
import { indexDirectory } from '../tsrecorder/search/recorder-search.ts';
import { defaultSpoolOf, spoolInside } from '../tsrecorder/spool/spool-place.ts';
import { openApiServer } from './gateway-upstream.ts';
import { checkIndexDirectory, checkIndexServer } from './check-index.ts';
import { searchServer } from './search-settings.ts';
import { journalPlace } from './journals.ts';
import { examineBucket, parseBucketAddress } from './recorder-store.ts';
import { readStaticIdentity } from './static-identity-file.ts';
import {
  assertPrivateProxyListener,
  createLocalTailnet,
  createStaticTailnet,
  type Tailnet,
  tlsKindOf,
} from './tailnet.ts';

export interface DoctorOptions {
  readonly environment: ReadonlyMap<string, string>;
  /** Stops everything. Abort it in the end, because the watch of the tailnet runs until then. */
  readonly signal: AbortSignal;
  /** Limits the check of the grants to this node. */
  readonly caller: string | undefined;
  readonly unixMs?: () => number;
}

const MIB = 1024 ** 2;
/** Equal to the limit of the recorder. */
const MIN_FREE_BYTES = 64 * MIB;
/** Space for certificates and a few drafts. */
const STATE_BYTES = 8 * MIB;

/** The checks of `tailcast doctor gateway`, in the order of an installation. */
export async function gatewayChecks(
  config: GatewayConfig,
  options: DoctorOptions,
): Promise<readonly Check[]> {
  const { environment, unixMs = Date.now } = options;
  if (config.proxyProtocol === 'require') assertPrivateProxyListener(config.listen.host);
  const stateDirectory = config.stateDirectory ?? join(defaultStateDirectory(environment), 'gateway');
  const journals = journalPlace(config, stateDirectory, environment);
  const local = config.identity === 'tailscale' ? createLocal(config, options) : undefined;
  const tailnet = local?.tailnet ?? (await createFixed(config));
  const api = apiServerChecks({ open: () => openApiServer(config, environment), unixMs });
  const grants = shareLoad(local === undefined ? fixedGrants(config) : callerGrants(local, options));
  return [
    ...(local === undefined
      ? []
      : tailnetChecks({ ...local, proxyProtocol: config.proxyProtocol === 'require' })),
    certificateCheck({
      plan: planCertificate(config, stateDirectory, local?.localApi, options.signal),
      nodeName: async () => (await local?.status().catch(() => undefined))?.self?.name,
      unixMs,
    }),
    ...api.checks,
    ...permissionChecks({
      client: api.client,
      mode: config.mode,
      namespace: environment.get('POD_NAMESPACE') ?? 'default',
      podName: environment.get('POD_NAME') ?? environment.get('HOSTNAME'),
    }),
    grantsCheck(grants, { needs: local === undefined ? [] : ['connected'], only: options.caller }),
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
    formatCheck({
      id: 'state',
      title: 'state directory',
      folder: stateDirectory,
      read: (folder) => checkFormat(folder, GATEWAY_STATE_FORMAT),
    }),
    journalCheck(journals && { ...journals, loadKey: () => findJournalKey(journals.keyFile) }),
  ];
}

/** The checks of `tailcast doctor recorder`. */
export function recorderChecks(config: RecorderConfig, options: DoctorOptions): readonly Check[] {
  const { host, port } = config.listen;
  const tailscale = config.identity === 'tailscale';
  const local = tailscale ? openStatus(config.socket, options.signal) : undefined;
  const spool = config.spool === undefined ? [] : [spoolPlace(config, config.spool)];
  const store = {
    id: 'store',
    title: 'store',
    directory: config.store,
    flag: '--store',
    minFreeBytes: MIN_FREE_BYTES,
    wantedBytes: config.maxSessionBytes,
  };
  const bucket = config.store === undefined ? undefined : parseBucketAddress(config.store);
  const places = bucket === undefined ? [store, ...spool] : spool;
  const spools = spoolsOf(config, bucket === undefined);
  return [
    ...(local === undefined ? [] : tailnetChecks({ ...local, proxyProtocol: false })),
    ...(local === undefined ? [] : [uploadersCheck(config.uploaders, local.status)]),
    ...(local === undefined || config.trustedGateways.length === 0
      ? []
      : [trustedGatewaysCheck(config.trustedGateways, local.status)]),
    ...(bucket === undefined
      ? []
      : bucketChecks({
          ...examineBucket(config, bucket),
          prefix: bucket.prefix,
        })),
    ...(bucket === undefined
      ? []
      : [serverClockCheck(bucketServer(config), 'the store', options.unixMs ?? Date.now)]),
    ...places.flatMap((place) => storageChecks(place)),
    formatCheck({
      id: 'spool',
      title: 'spool',
      folder: config.spool ?? (bucket === undefined ? config.store : undefined),
      read: () => checkSpools(spools),
    }),
    searchCheck(searchFacts(config, spools)),
    answersCheck(`${host}:${port}`, async (signal) => {
      const socket = connect({ host: host === '::' ? '::1' : host, port });
      try {
        await onceEmitted(socket, 'connect', { signal });
        return socket;
      } catch (error) {
        socket.destroy();
        throw error;
      }
    }),
  ];
}

/** Server for the clock check: the endpoint of the store, or an AWS endpoint. */
function bucketServer({ s3Endpoint, s3Region }: RecorderConfig): URL {
  return s3Endpoint ?? new URL(`https://s3.${s3Region ?? 'us-east-1'}.amazonaws.com/`);
}

/** Possible spool directories: the directory in the settings, or a directory next to or inside a store directory. */
function spoolsOf({ spool, store }: RecorderConfig, isFolder: boolean): readonly string[] {
  if (spool !== undefined) return [spool];
  return isFolder && store !== undefined ? [defaultSpoolOf(store), spoolInside(store)] : [];
}

/** Location of the index, and how to read it. */
function searchFacts(config: RecorderConfig, spools: readonly string[]): SearchFacts {
  const { search, searchUrl, searchName } = config;
  if (!search || searchUrl === undefined)
    return { place: search ? indexIn(spools) : undefined, read: checkIndexDirectory };
  return {
    place: `the index ${searchName} at ${searchUrl.origin}`,
    remedy:
      'check --search-url, --search-ca, --search-credentials and the rights of this user (docs/watch.md); recording continues without the index',
    async read() {
      const server = await searchServer(config);
      return server !== undefined && checkIndexServer(server);
    },
  };
}

/** Directory of the index. The directory may not exist yet. */
function indexIn(spools: readonly string[]): string | undefined {
  const places = spools.map(indexDirectory);
  return places.find((place) => existsSync(place)) ?? places[0];
}

async function checkSpools(spools: readonly string[]): Promise<boolean> {
  const formats = await Promise.all(spools.map((spool) => checkFormat(spool, SPOOL_FORMAT)));
  return formats.some(Boolean);
}

function spoolPlace(config: RecorderConfig, directory: string): Parameters<typeof storageChecks>[0] {
  return {
    id: 'spool',
    title: 'spool',
    directory,
    flag: '--spool',
    minFreeBytes: MIN_FREE_BYTES,
    wantedBytes: config.maxSessionBytes,
  };
}

interface LocalStatus {
  readonly socketPath: string;
  readonly localApi: LocalApi;
  readonly status: () => ReturnType<LocalApi['status']>;
}

function openStatus(socket: string | undefined, signal: AbortSignal): LocalStatus {
  const localApi = createLocalApi({ socketPath: socket ?? '' });
  signal.addEventListener('abort', () => localApi.close(), { once: true });
  return { socketPath: localApi.socketPath, localApi, status: once(() => localApi.status(signal)) };
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

function fixedGrants(config: GatewayConfig): () => Promise<readonly CallerGrant[]> {
  return async () => [grantOf(await readStaticIdentity(config.staticIdentity))];
}

function callerGrants(
  { tailnet, status }: LocalStatus & { readonly tailnet: Tailnet },
  { caller }: DoctorOptions,
): (signal: AbortSignal) => Promise<readonly CallerGrant[]> {
  const facts = {
    only: caller,
    callers: async () => {
      const { peers } = await status();
      return peers
        .filter(({ online }) => online || caller !== undefined)
        .flatMap(({ name, addresses: [address] }) => (address === undefined ? [] : [{ name, address }]));
    },
    whois: (address: string, signal: AbortSignal) =>
      // PROXY headers and kernel networking contain the tailnet address, so the query needs no port
      tailnet.identities.whois({ address, port: 1, source: 'proxy-protocol' }, signal),
  };
  return (signal) => readGrants(facts, signal);
}

/** Shares one response between two checks. */
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
      return { kind: 'tailscale', load: () => certificates.fallback() };
    }
  }
}

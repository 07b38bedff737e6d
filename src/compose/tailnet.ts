/** The tailnet connection of a role: identities of callers, certificates, and connections to recorders. */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import type { GatewayConfig, TlsKind } from '../config/gateway.ts';
import { TailcastError, errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { ReadinessCheck } from '../observe/ops-server.ts';
import { GATEWAY_STATE_FORMAT, markFormat } from '../folder-format.ts';
import type { ListenAddress } from '../listen.ts';
import { parseAddressPort } from '../tailnet/addresses.ts';
import { openCertificateFiles } from '../tailnet/certificate-files.ts';
import type { CertificateSource } from '../tailnet/certificates.ts';
import type { Identity, IdentitySource } from '../tailnet/identity.ts';
import { createLocalApiCertificates } from '../tailnet/local-api-certificates.ts';
import { createLocalApi, type LocalApi } from '../tailnet/local-api.ts';
import { watchNetmap } from '../tailnet/netmap-watcher.ts';
import { createTagResolver } from '../tailnet/resolve-tag.ts';
import { openSelfSignedCertificates } from '../tailnet/self-signed.ts';
import { assertLoopbackListener, createStaticIdentity } from '../tailnet/static-identity.ts';
import { createWhois } from '../tailnet/whois.ts';
import { tailscaledCheck } from './readiness.ts';

const KEEP_ALIVE_MS = 30_000;

/** Functions that a gateway needs from the tailnet. */
export interface Tailnet {
  readonly identities: IdentitySource;
  /** Undefined with a static identity. */
  readonly localApi: LocalApi | undefined;
  readonly checks: readonly ReadinessCheck[];
  /** Returns the addresses (`ip:port`) of all recorders that have one of the tags. */
  readonly resolveRecorderTags: (tags: readonly string[]) => Promise<readonly string[]>;
  /** Returns true if the node at this address (`ip:port`) has one of the tags. */
  readonly carriesTag: (address: string, tags: readonly string[]) => Promise<boolean>;
  readonly dialRecorder: (address: string, signal: AbortSignal) => Promise<Duplex>;
  /** Returns the node that has a recorder's address, or the address itself if the node is unknown. */
  readonly nodeOf: (address: string) => string;
}

export interface TailnetContext {
  readonly log: Logger;
  /** Stops watches and pending requests. */
  readonly signal: AbortSignal;
}

/**
 * Returns a substitute for the tailnet. The substitute gives all callers on this machine the same identity, resolves no
 * tags, and dials recorders directly.
 */
export function createStaticTailnet(identity: Identity, listenHost: string): Tailnet {
  assertLoopbackListener(listenHost);
  return {
    identities: createStaticIdentity({ identity }),
    localApi: undefined,
    checks: [],
    resolveRecorderTags: () => Promise.resolve([]),
    // Without a tailnet there are no tags, so every address is accepted.
    carriesTag: () => Promise.resolve(true),
    dialRecorder: dialDirectly,
    nodeOf: (address) => address,
  };
}

/** Reads identities and tags from tailscaled, and dials through tailscaled if the settings request it. */
export function createLocalTailnet(
  config: Pick<GatewayConfig, 'socket' | 'recorderDial'>,
  { log, signal }: TailnetContext,
): Tailnet {
  const localApi = createLocalApi({ socketPath: config.socket ?? '' });
  const whois = createWhois({ localApi });
  const tags = createTagResolver({ localApi, signal });
  const nodes = new Map<string, string>();
  const readNodes = (): void => void rememberNodes(localApi, nodes, { log, signal });
  readNodes();
  const onChange = (): void => {
    whois.flush();
    readNodes();
  };
  void watchNetmap({ localApi, log, onChange }, signal);
  signal.addEventListener('abort', () => localApi.close(), { once: true });
  return {
    identities: whois,
    localApi,
    checks: [tailscaledCheck(localApi)],
    async resolveRecorderTags(wanted) {
      return (await tags.resolve(wanted)).flatMap((node) => node.addresses);
    },
    carriesTag: (address, wanted) => tags.carries(address, wanted),
    dialRecorder: config.recorderDial === 'direct' ? dialDirectly : dialThrough(localApi),
    nodeOf: (address) => nodes.get(parseAddressPort(address)?.address ?? '') ?? address,
  };
}

/**
 * Returns the source of the gateway's certificate. If tailscaled identifies callers, tailscaled's certificate is the
 * default.
 */
export function tlsKindOf({ tls, identity }: Pick<GatewayConfig, 'tls' | 'identity'>): TlsKind {
  return tls ?? (identity === 'tailscale' ? 'tailscale' : 'self-signed');
}

/** Opens the certificate source in the settings; undefined if a proxy in front of the gateway terminates TLS. */
export async function openCertificates(
  config: Pick<GatewayConfig, 'tls' | 'identity' | 'tlsCert' | 'tlsKey' | 'tlsNames' | 'listen'>,
  stateDirectory: string,
  localApi: LocalApi | undefined,
  { log, signal }: TailnetContext,
): Promise<CertificateSource | undefined> {
  switch (tlsKindOf(config)) {
    case 'none':
      return undefined;
    case 'self-signed': {
      const certificates = await openSelfSignedCertificates({
        directory: stateDirectory,
        names: config.tlsNames,
        log,
      });
      await markFormat(stateDirectory, GATEWAY_STATE_FORMAT);
      return certificates;
    }
    case 'files': {
      const { tlsCert, tlsKey } = config;
      if (tlsCert === undefined || tlsKey === undefined) {
        throw new TailcastError('CONFIG_INVALID', 'tls=files needs both tlsCert and tlsKey');
      }
      return openCertificateFiles({ certificatePath: tlsCert, keyPath: tlsKey, log });
    }
    case 'tailscale': {
      if (localApi === undefined) {
        throw new TailcastError('CONFIG_INVALID', 'tls=tailscale needs identity=tailscale');
      }
      const certificates = createLocalApiCertificates({ localApi, log, signal });
      // Issuing the first certificate may take a minute, so the gateway waits here instead of during the first
      // handshake.
      await certificates.certificate(undefined);
      return certificates;
    }
  }
}

async function dialDirectly(address: string, signal: AbortSignal): Promise<Duplex> {
  const target = parseAddressPort(address);
  if (target === undefined) throw new Error(`${address} is not an ip:port`);
  return connectTo({ host: target.address, port: target.port }, signal);
}

export async function connectTo(address: ListenAddress, signal: AbortSignal): Promise<Duplex> {
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };
  const socket = connect({ ...address, ...keepAlive, noDelay: true });
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function dialThrough(localApi: LocalApi): Tailnet['dialRecorder'] {
  return (address, signal) => {
    const target = parseAddressPort(address);
    if (target === undefined) return Promise.reject(new Error(`${address} is not an ip:port`));
    return localApi.dial(target.address, target.port, signal);
  };
}

/**
 * Keeps a map from addresses to tailnet nodes, because all addresses of a node belong to the same recorder. If an
 * update fails, the previous map stays in use.
 */
async function rememberNodes(
  localApi: LocalApi,
  nodes: Map<string, string>,
  { log, signal }: TailnetContext,
): Promise<void> {
  try {
    const { peers } = await localApi.status(signal);
    nodes.clear();
    for (const peer of peers) {
      for (const address of peer.addresses) nodes.set(address, peer.nodeId === '' ? peer.name : peer.nodeId);
    }
  } catch (error) {
    if (!signal.aborted) log.warn({ error: errorText(error) }, 'tailnet nodes could not be read');
  }
}

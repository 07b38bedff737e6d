/** Creates the functions that identify the uploaders and viewers of a recorder, from its settings. */
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError } from '../errors.ts';
import { isLoopback } from '../tailnet/addresses.ts';
import type { IdentitySource } from '../tailnet/identity.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { assertPrivateProxyListener } from '../tailnet/proxied-listener.ts';
import { assertLoopbackListener } from '../tailnet/static-identity.ts';
import { createWhois } from '../tailnet/whois.ts';
import type { IdentifyUploader } from '../tsrecorder/serving/uploads.ts';
import type { IdentifyViewer } from '../tsrecorder/serving/viewer-access.ts';

/**
 * Maximum number of concurrent requests to tailscaled that identify uploaders. tailscaled accepts 8 concurrent
 * requests in total.
 */
const UPLOADER_QUESTIONS = 4;
const VIEWER_QUESTIONS = 2;

/** Accepts uploads only from this machine, and identifies all uploaders as `node`. */
export function loopbackUploader(node: {
  readonly nodeId: string;
  readonly nodeName: string;
}): IdentifyUploader {
  return ({ address }) =>
    Promise.resolve(
      isLoopback(address)
        ? { kind: 'accepted', ...node }
        : { kind: 'refused', reason: 'uploads are accepted only from this machine' },
    );
}

/** @throws TailcastError `CONFIG_INVALID` for settings that are unsafe with identity=loopback */
export function assertLoopbackRecorder({
  identity,
  listen,
  readListen,
  trustedGateways,
}: Pick<RecorderConfig, 'identity' | 'listen' | 'readListen' | 'trustedGateways'>): void {
  if (identity !== 'loopback') return;
  assertLoopbackListener(listen.host);
  if (readListen !== undefined) assertLoopbackListener(readListen.host);
  if (trustedGateways.length > 0) {
    const detail =
      'trustedGateways needs identity=tailscale: on loopback any process of this machine could pass for a gateway';
    throw new TailcastError('CONFIG_INVALID', detail);
  }
}

/** @throws TailcastError `CONFIG_INVALID` for a listener that cannot trust PROXY headers */
export function assertTrustedHeaders({
  identity,
  proxyProtocol,
}: Pick<RecorderConfig, 'identity' | 'proxyProtocol'>): void {
  if (proxyProtocol === undefined) return;
  assertPrivateProxyListener(proxyProtocol.host, 'proxyProtocol: the listener');
  if (identity === 'tailscale') return;
  const detail =
    'proxyProtocol needs identity=tailscale: only tailscaled knows who has the address in a PROXY header';
  throw new TailcastError('CONFIG_INVALID', detail);
}

/**
 * Returns functions that identify uploaders and viewers. Depending on the settings, they query tailscaled, or treat
 * all callers on this machine as one identity.
 */
export function openIdentities(
  config: Pick<
    RecorderConfig,
    | 'identity'
    | 'listen'
    | 'readListen'
    | 'proxyProtocol'
    | 'trustedGateways'
    | 'socket'
    | 'uploaders'
    | 'viewers'
  >,
) {
  assertLoopbackRecorder(config);
  assertTrustedHeaders(config);
  if (config.identity === 'loopback') {
    const identifyViewer: IdentifyViewer = async ({ address }) =>
      isLoopback(address) ? { node: 'localhost', nodeId: 'local' } : undefined;
    const identify = loopbackUploader({ nodeId: 'local', nodeName: 'localhost' });
    return { identify, identifyViewer, checks: [] };
  }
  const localApi = createLocalApi({ socketPath: config.socket ?? '' });
  // Uploaders and viewers have separate queues, so that queries for viewers cannot delay recording.
  const uploaders = createWhois({ localApi, maxConcurrent: UPLOADER_QUESTIONS });
  const viewers = createWhois({ localApi, maxConcurrent: VIEWER_QUESTIONS });
  const identify: IdentifyUploader = async (peer, signal) => {
    const identity = await uploaders.whois(peer, signal);
    const names = [identity.nodeId, ...(identity.kind === 'tagged' ? identity.tags : [])];
    if (config.uploaders.length > 0 && !config.uploaders.some((allowed) => names.includes(allowed))) {
      return { kind: 'refused', reason: `${identity.nodeName} is not among the nodes that may upload` };
    }
    return { kind: 'accepted', nodeId: identity.nodeId, nodeName: identity.nodeName };
  };
  const check = async (signal: AbortSignal): Promise<void> =>
    void (await localApi.status(signal, { peers: false }));
  const identifyViewer = createViewerWhois(viewers, config.viewers.length > 0);
  return { identify, identifyViewer, checks: [{ name: 'tailscaled', check }] };
}

/**
 * @param mustKnow true to reject viewers without an identity; false to accept all viewers, if there are no rules for
 *   viewers
 */
function createViewerWhois(whois: IdentitySource, mustKnow: boolean): IdentifyViewer {
  return async (peer, signal) => {
    try {
      const identity = await whois.whois(peer, signal);
      const node = { node: identity.nodeName, nodeId: identity.nodeId };
      return identity.kind === 'tagged'
        ? { ...node, tags: identity.tags }
        : { ...node, user: identity.login };
    } catch (error) {
      if (mustKnow && !(error instanceof TailcastError && error.code === 'IDENTITY_UNKNOWN')) throw error;
      return mustKnow ? undefined : { node: '', nodeId: '' };
    }
  };
}

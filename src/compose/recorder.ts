/** Builds the recorder role. */
import { existsSync } from 'node:fs';
import { Registry, collectDefaultMetrics } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError, errorText } from '../errors.ts';
import { openLastResort } from '../observe/last-resort.ts';
import { createLogger } from '../observe/logger.ts';
import { collectEarly } from '../memory/stream-garbage.ts';
import { openOpsServer, failuresOf, type ReadinessCheck } from '../observe/ops-server.ts';
import { isLoopback } from '../tailnet/addresses.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { assertLoopbackListener } from '../tailnet/static-identity.ts';
import type { IdentitySource } from '../tailnet/identity.ts';
import { createWhois } from '../tailnet/whois.ts';
import { createRecorder, type Recorder, type RecorderOptions } from '../tsrecorder/server.ts';
import type { IdentifyUploader } from '../tsrecorder/serving/uploads.ts';
import type { IdentifyViewer } from '../tsrecorder/serving/viewer-access.ts';
import { parseTrustedGateway, parseViewRule } from '../tsrecorder/serving/viewing.ts';
import type { WorkerLink } from '../workers/worker-link.ts';
import { PLAYER_DIRECTORY } from './player-directory.ts';
import { openStore, type StoreConfig } from './recorder-store.ts';

/** Less than the primary waits for an answer. */
const WORKER_CHECK_MS = 1200;

/** Questions to tailscaled at a time, of its connections that are 8 in all. */
const UPLOADER_QUESTIONS = 4;
const VIEWER_QUESTIONS = 2;

/** `tailcast recorder`: runs until the signal, then finishes what can be finished. */
export async function runRecorder(
  config: RecorderConfig,
  context: CommandContext,
  link?: WorkerLink,
): Promise<void> {
  const log = createLogger({
    level: config.logLevel,
    fields: link === undefined ? {} : { worker: link.slot },
  });
  collectEarly(config.earlyCollection);
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  const resort = openLastResort({ log, stop: context.signal, registry, onFailure: () => link?.failing() });
  const { signal } = resort;
  const { checks, ...identities } = openIdentities(config);
  if (link !== undefined && config.readListen?.port === 0) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'readListen needs a port of its own when there are several workers',
    );
  }
  const listening = link === undefined ? config.listen : { ...config.listen, port: link.port };
  const recorder = await startRecorder(
    { ...config, listen: listening },
    {
      ...identities,
      log,
      registry,
      ...(link === undefined ? {} : { slot: { number: link.slot, of: link.count } }),
    },
  );
  const ops =
    config.opsListen === undefined || link !== undefined
      ? undefined
      : await openOpsServer({ ...config.opsListen, metrics: registry, checks });
  link?.ready({ registry, health: () => failuresOf(checks, WORKER_CHECK_MS) });
  const { url, readUrl } = recorder;
  log.info(
    { url, ...(readUrl === url ? {} : { readUrl }), store: config.store, ops: ops?.address },
    'recorder is ready',
  );
  if (!signal.aborted)
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  await recorder.close();
  await ops?.close();
  resort.close();
}

/**
 * Starts a recorder with the settings of the role.
 *
 * @throws TailcastError `CONFIG_INVALID` naming the setting.
 */
export async function startRecorder(
  config: StoreConfig &
    Pick<
      RecorderConfig,
      | 'listen'
      | 'readListen'
      | 'archive'
      | 'ui'
      | 'hosts'
      | 'maxSessionBytes'
      | 'drainSeconds'
      | 'resumeSeconds'
      | 'checkpointSeconds'
      | 'leaseSeconds'
      | 'viewers'
      | 'trustedGateways'
      | 'evidenceKey'
      | 'eventLayout'
      | 'search'
      | 'searchText'
      | 'retentionDays'
      | 'maxStoreBytes'
    >,
  parts: Pick<RecorderOptions, 'identify' | 'identifyViewer' | 'log' | 'registry' | 'slot'>,
): Promise<Recorder> {
  const viewers = config.viewers.map(parseViewRule);
  const trustedGateways = config.trustedGateways.map(parseTrustedGateway);
  if (trustedGateways.length > 0 && viewers.length === 0) {
    const detail =
      'trustedGateways needs viewers: whoever reaches such a gateway reaches the recordings, so say who may see what, or * for everybody';
    throw new TailcastError('CONFIG_INVALID', detail);
  }
  const store = await openStore(config, parts.log);
  const player = config.ui && existsSync(PLAYER_DIRECTORY) ? PLAYER_DIRECTORY : undefined;
  try {
    const recorder = await createRecorder({
      ...parts,
      listen: config.listen,
      archive: config.archive,
      ...(config.readListen === undefined ? {} : { readListen: config.readListen }),
      ...store.options,
      ...(player === undefined ? {} : { playerDirectory: player }),
      hostNames: config.hosts,
      viewers,
      trustedGateways,
      eventLayout: config.eventLayout,
      ...(config.search ? { searchText: config.searchText } : {}),
      retention: {
        ...(config.retentionDays === 0 ? {} : { maxAgeMs: config.retentionDays * 86_400_000 }),
        ...(config.maxStoreBytes === 0 ? {} : { maxBytes: config.maxStoreBytes }),
      },
      ...(config.evidenceKey === undefined ? {} : { evidenceKey: config.evidenceKey }),
      limits: { maxSessionBytes: config.maxSessionBytes },
      timing: {
        closeGraceMs: config.drainSeconds * 1000,
        resumeGraceMs: config.resumeSeconds * 1000,
        checkpointMs: config.checkpointSeconds * 1000,
        leaseMs: config.leaseSeconds * 1000,
      },
    });
    return {
      ...recorder,
      async close() {
        await recorder.close();
        store.close();
      },
    };
  } catch (error) {
    store.close();
    if (error instanceof TailcastError) throw error;
    throw new TailcastError('CONFIG_INVALID', `the recorder cannot start: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** Accepts uploads from this machine only, as one node. */
export function loopbackUploader(node: {
  readonly nodeId: string;
  readonly nodeName: string;
}): IdentifyUploader {
  return ({ address }) =>
    Promise.resolve(
      isLoopback(address)
        ? { kind: 'accepted', ...node }
        : { kind: 'refused', reason: 'uploads are only taken from this machine' },
    );
}

/** Who uploads and who looks, as the settings say: by tailscaled, or everybody on this machine. */
export function openIdentities(
  config: Pick<
    RecorderConfig,
    'identity' | 'listen' | 'readListen' | 'trustedGateways' | 'socket' | 'uploaders' | 'viewers'
  >,
): {
  readonly identify: IdentifyUploader;
  readonly identifyViewer: IdentifyViewer;
  readonly checks: readonly ReadinessCheck[];
} {
  if (config.identity === 'loopback') {
    assertLoopbackListener(config.listen.host);
    if (config.readListen !== undefined) assertLoopbackListener(config.readListen.host);
    if (config.trustedGateways.length > 0) {
      const detail =
        'trustedGateways needs identity=tailscale: on loopback any process of this machine could pass for a gateway';
      throw new TailcastError('CONFIG_INVALID', detail);
    }
    const identifyViewer: IdentifyViewer = async ({ address }) =>
      isLoopback(address) ? { node: 'localhost', nodeId: 'local' } : undefined;
    const identify = loopbackUploader({ nodeId: 'local', nodeName: 'localhost' });
    return { identify, identifyViewer, checks: [] };
  }
  const localApi = createLocalApi({ socketPath: config.socket ?? '' });
  // whoever wants to look at something must not keep anybody from recording: each has a line of its own
  const uploaders = createWhois({ localApi, maxConcurrent: UPLOADER_QUESTIONS });
  const viewers = createWhois({ localApi, maxConcurrent: VIEWER_QUESTIONS });
  const identify: IdentifyUploader = async ({ address, port }, signal) => {
    const identity = await uploaders.whois({ address, port, source: 'socket' }, signal);
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

/** @param mustKnow whether a viewer of whom tailscaled knows nothing is refused: without rules there is no reason to. */
function createViewerWhois(whois: IdentitySource, mustKnow: boolean): IdentifyViewer {
  return async ({ address, port }, signal) => {
    try {
      const identity = await whois.whois({ address, port, source: 'socket' }, signal);
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

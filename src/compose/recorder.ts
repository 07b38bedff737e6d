/** Builds the recorder role. */
import { existsSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { Registry, collectDefaultMetrics } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError } from '../errors.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { failuresOf, openOpsServer, type ReadinessCheck } from '../observe/ops-server.ts';
import { parseTrustedGateway, parseViewRule } from '../tsrecorder/serving/viewing.ts';
import { loadPublicKeys } from '../tsrecorder/evidence/signing-key.ts';
import { recorderAlerts } from './alert-settings.ts';
import { cannotStart } from './cannot-start.ts';
import { PLAYER_DIRECTORY } from './player-directory.ts';
import { openIdentities } from './recorder-identities.ts';
import type { RecorderOptions } from './recorder-options.ts';
import { createRecorder, type RunningRecorder } from './recorder-parts.ts';
import { openSealKeys, openStore } from './recorder-store.ts';
import { searchServer } from './search-settings.ts';
import { untilAborted } from '../async/with-timeout.ts';

const START_CHECK_MS = 5000;

/** `tailcast recorder`: runs until `signal` aborts, then completes pending work within its grace period. */
export async function runRecorder(config: RecorderConfig, context: CommandContext): Promise<void> {
  if (config.searchUrl === undefined && !isBuiltin('node:sqlite'))
    throw new TailcastError('CONFIG_INVALID', 'the recorder needs a Node with node:sqlite for its catalogue');
  const log = createLogger({ level: config.logLevel });
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  const fatalErrors = openFatalErrors({ log, stop: context.signal, registry });
  const { signal } = fatalErrors;
  const { checks, ...identities } = openIdentities(config);
  // A stop request ends the wait for the start, because an unresponsive store must not block the exit. The next start
  // then recovers as after a crash.
  const starting = startRecorder(config, { ...identities, log, registry });
  const recorder = await Promise.race([starting, untilAborted(signal)]);
  if (recorder === undefined) {
    starting.catch(() => undefined);
    return signal.throwIfAborted();
  }
  const ops = await openOpsServer(config.opsListen, { metrics: registry, checks }).catch(
    async (error: unknown) => {
      // Open listeners would keep the process running.
      await recorder.close();
      fatalErrors.close();
      throw error;
    },
  );
  void warnOfFailures(checks, log);
  const { url, readUrl, proxied } = recorder;
  log.info(
    { url, ...(readUrl === url ? {} : { readUrl }), proxied, store: config.store, ops: ops?.address },
    'recorder is ready',
  );
  await untilAborted(signal);
  await recorder.close();
  await ops?.close();
  fatalErrors.close();
}

/** @throws TailcastError `CONFIG_INVALID` for trusted gateways without rules for viewers */
export function assertViewersNamed({
  trustedGateways,
  viewers,
}: Pick<RecorderConfig, 'trustedGateways' | 'viewers'>): void {
  if (trustedGateways.length === 0 || viewers.length > 0) return;
  const detail =
    'trustedGateways needs viewers, because all users of these gateways reach the recorder: list rules, or * for all';
  throw new TailcastError('CONFIG_INVALID', detail);
}

/** Runs readiness checks at the start, and logs failures. The recorder does not wait for these checks. */
async function warnOfFailures(checks: readonly ReadinessCheck[], log: Logger): Promise<void> {
  for (const problem of await failuresOf(checks, START_CHECK_MS))
    log.warn({ problem }, 'sessions are refused until this is fixed');
}

/**
 * Starts a recorder with the settings of the role.
 *
 * @throws TailcastError `CONFIG_INVALID` with the name of the setting
 */
export async function startRecorder(
  config: RecorderConfig,
  parts: Pick<RecorderOptions, 'identify' | 'identifyViewer' | 'log' | 'registry'>,
): Promise<RunningRecorder> {
  const viewers = config.viewers.map(parseViewRule);
  const trustedGateways = config.trustedGateways.map(parseTrustedGateway);
  assertViewersNamed(config);
  const alerts = await recorderAlerts(config, viewers);
  const server = await searchServer(config);
  const sealKeys = await openSealKeys(config);
  const recorderKeys = config.recorderKeys === undefined ? [] : await loadPublicKeys(config.recorderKeys);
  const store = await openStore(config, parts.log);
  const player = config.ui && existsSync(PLAYER_DIRECTORY) ? PLAYER_DIRECTORY : undefined;
  try {
    const recorder = await createRecorder({
      ...parts,
      listen: config.listen,
      archive: config.archive,
      ...(sealKeys === undefined ? {} : { sealKeys }),
      ...(config.readListen === undefined ? {} : { readListen: config.readListen }),
      ...(config.proxyProtocol === undefined ? {} : { proxyListen: config.proxyProtocol }),
      ...store.options,
      ...(player === undefined ? {} : { playerDirectory: player }),
      hostNames: config.hosts,
      viewers,
      trustedGateways,
      eventLayout: config.eventLayout,
      searchText: config.search ? config.searchText : 'off',
      isSearchable: config.search,
      ...(server === undefined ? {} : { searchServer: server }),
      ...alerts,
      retention: {
        ...(config.retentionDays === 0 ? {} : { maxAgeMs: config.retentionDays * 86_400_000 }),
        ...(config.maxStoreBytes === 0 ? {} : { maxBytes: config.maxStoreBytes }),
        minAgeMs: config.minRetentionDays * 86_400_000,
      },
      ...(config.evidenceKey === undefined ? {} : { evidenceKey: config.evidenceKey }),
      recorderKeys,
      limits: { maxSessionBytes: config.maxSessionBytes },
      timing: {
        closeGraceMs: config.drainSeconds * 1000,
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
    throw cannotStart('recorder', error, [config.store, config.spool]);
  }
}

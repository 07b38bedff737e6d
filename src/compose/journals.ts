/**
 * Opens the journal directory. A journal keeps output until a recorder has stored the output, even during a restart of
 * the gateway.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { GatewayConfig } from '../config/gateway.ts';
import { makeDirectories } from '../directories.ts';
import { TailcastError, errorText } from '../errors.ts';
import { GATEWAY_STATE_FORMAT, markFormat } from '../folder-format.ts';
import { lateEvents } from '../proxy/session/upgrade-recorder.ts';
import { findRecorders } from '../recording/find-recorders.ts';
import { loadJournalKey } from '../recording/journal/journal-key.ts';
import { Journals } from '../recording/journal/journals.ts';
import { openSettingDirectory } from './setting-directory.ts';
import type { GatewayParts } from './gateway-parts.ts';

const KEY_FILE = 'late.key';

/**
 * Returns the directory of the journals and the file of their key; undefined if journals are disabled. If `lateKeyFile`
 * is not set, the file is the systemd credential `late.key` (`LoadCredential=`, `LoadCredentialEncrypted=`), or
 * otherwise a file in the state directory.
 */
export function journalPlace(
  { lateDirectory, lateKeyFile }: GatewayConfig,
  stateDirectory: string,
  environment: ReadonlyMap<string, string>,
): { readonly directory: string; readonly keyFile: string } | undefined {
  if (lateDirectory === 'off') return undefined;
  return {
    directory: lateDirectory ?? join(stateDirectory, 'late'),
    keyFile: keyFileOf({ lateKeyFile }, stateDirectory, environment),
  };
}

/** Returns the path of the key file that the gateways of a cluster share. */
export function keyFileOf(
  { lateKeyFile }: Pick<GatewayConfig, 'lateKeyFile'>,
  stateDirectory: string,
  environment: ReadonlyMap<string, string>,
): string {
  return lateKeyFile ?? credentialOf(environment) ?? join(stateDirectory, KEY_FILE);
}

function credentialOf(environment: ReadonlyMap<string, string>): string | undefined {
  const directory = environment.get('CREDENTIALS_DIRECTORY');
  const path = directory === undefined ? undefined : join(directory, KEY_FILE);
  return path !== undefined && existsSync(path) ? path : undefined;
}

/**
 * Opens the journals. Returns undefined if journals are disabled. Also returns undefined, and logs a warning, if the
 * default directory is unusable. The gateway then keeps output in memory.
 *
 * @throws TailcastError `CONFIG_INVALID` if a directory or a key file in the settings is unusable
 */
export async function openJournals(parts: GatewayParts): Promise<Journals | undefined> {
  const { config, stateDirectory, environment, tailnet, events, metrics, log } = parts;
  const place = journalPlace(config, stateDirectory, environment);
  if (place === undefined) return undefined;
  if (config.lateDirectory !== undefined) await openSettingDirectory('lateDirectory', place.directory);
  try {
    await makeDirectories(stateDirectory);
    await markFormat(stateDirectory, GATEWAY_STATE_FORMAT);
    return await Journals.open({
      directory: place.directory,
      key: await loadJournalKey(place.keyFile),
      maxBytes: config.lateDiskBytes,
      unixMs: Date.now,
      log,
      refused: (reason) => metrics.journalRefusals.inc({ reason }),
      measured({ bytes, left, unreadable }) {
        metrics.journalBytes.set(bytes);
        metrics.journalsLeft.set(left);
        metrics.journalsUnreadable.set(unreadable);
      },
      findRecorders: (named, signal) => findRecorders(named, tailnet, signal),
      eventsOf: ({ sessionId, about }) => {
        const { user = '', node = '', kind = '' } = about;
        return lateEvents(events, { ...about, user, node, kind, sessionId });
      },
    });
  } catch (error) {
    const reason = error instanceof TailcastError ? error.detail : errorText(error);
    const named = config.lateDirectory !== undefined || config.lateKeyFile !== undefined;
    if (named) throw new TailcastError('CONFIG_INVALID', `lateDirectory: ${reason}`, { cause: error });
    log.warn(
      { directory: place.directory, reason },
      'output that no recorder has acknowledged is kept in memory only: name a directory with --late-directory',
    );
    return undefined;
  }
}

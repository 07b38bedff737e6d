/** Reads the file with the alert rules of a recorder, and the files to which it refers. */
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { readConfigFile } from '../config/file.ts';
import type { RecorderConfig } from '../config/recorder.ts';
import { errorReason, TailcastError } from '../errors.ts';
import { parseAlertFile, type WrittenWebhook } from '../tsrecorder/search/alerts/alert-file.ts';
import type { AlertSettings } from '../tsrecorder/search/alerts/alerts.ts';
import type { AlertWebhook } from '../tsrecorder/search/alerts/webhook-sender.ts';
import type { RecorderSearchOptions } from '../tsrecorder/search/recorder-search.ts';
import { scopeOf, type ViewRule } from '../tsrecorder/serving/viewing.ts';
import type { RecorderOptions } from './recorder-options.ts';

/** Minimum key length of the signature standard (Standard Webhooks), in bytes. */
const MIN_KEY_BYTES = 24;
const MAX_KEY_BYTES = 64;

export interface AlertSurroundings {
  /**
   * Rules that decide which recordings a viewer may see. Undefined for a remote recorder, which applies its own rules.
   */
  readonly viewers: readonly ViewRule[] | undefined;
  readonly searchText: RecorderSearchOptions['text'] | undefined;
}

/**
 * Reads the file with the alert rules. Relative paths in the file are relative to its directory.
 *
 * @throws TailcastError `CONFIG_INVALID` with the file, the key in the file, and advice
 */
export async function loadAlerts(
  path: string,
  { viewers, searchText }: AlertSurroundings,
): Promise<AlertSettings> {
  const { webhooks, rules, giveUpHours } = parseAlertFile(readConfigFile(path).entries, path, searchText);
  const loaded = new Map<string, AlertWebhook>();
  for (const [name, written] of webhooks) {
    const invalid = (key: string, problem: string): TailcastError =>
      new TailcastError('CONFIG_INVALID', `webhooks.${name}.${key} in ${path}: ${problem}`);
    const { url, format, text, player, secretFile, caFile } = written;
    const read = (key: string, file: string): Promise<string> =>
      readFile(resolve(dirname(path), file), 'utf8').catch((error: unknown) => {
        throw invalid(key, `${file} cannot be read: ${errorReason(error)}`);
      });
    const keys = secretFile === undefined ? [] : parseWebhookKeys(await read('secretFile', secretFile));
    if (keys === undefined)
      throw invalid(
        'secretFile',
        `${secretFile} is not a key: a line of ${MIN_KEY_BYTES} to ${MAX_KEY_BYTES} random bytes in base64 is expected, e.g. from openssl rand -base64 32`,
      );
    const ca = caFile === undefined ? undefined : await read('caFile', caFile);
    if (ca !== undefined && !ca.includes('-----BEGIN CERTIFICATE-----'))
      throw invalid('caFile', `${caFile} contains no certificate; PEM is expected`);
    loaded.set(name, {
      target: { url, keys, ...(ca === undefined ? {} : { ca }) },
      format,
      text,
      scope: scopeFor(written, viewers, invalid),
      ...(player === undefined ? {} : { player }),
    });
  }
  const hidden = rules.find(
    ({ query, webhook = '' }) => query === undefined && loaded.get(webhook)?.scope !== 'everything',
  );
  if (hidden !== undefined)
    throw new TailcastError(
      'CONFIG_INVALID',
      `webhooks.${hidden.webhook}.viewer in ${path}: name a viewer of all recordings for rule ${hidden.name}`,
    );
  return { webhooks: loaded, rules, giveUpMs: giveUpHours * 3_600_000 };
}

/** Returns the recorder option `alerts` from the settings. @throws TailcastError `CONFIG_INVALID` */
export async function recorderAlerts(
  { alerts, search, searchText }: Pick<RecorderConfig, 'alerts' | 'search' | 'searchText'>,
  viewers: readonly ViewRule[],
): Promise<Pick<RecorderOptions, 'alerts'>> {
  if (alerts === undefined) return {};
  const loaded = await loadAlerts(alerts, { viewers, searchText });
  if (!search && loaded.rules.some(({ query }) => query !== undefined))
    throw new TailcastError(
      'CONFIG_INVALID',
      'alerts needs search: rules with a query are compared with the index, so set search to true',
    );
  return { alerts: loaded };
}

/** Parses one signing key per line, with an optional prefix `whsec_`. */
function parseWebhookKeys(text: string): readonly Uint8Array[] | undefined {
  const lines = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const keys = lines.map((line) => Buffer.from(line.replace(/^whsec_/, ''), 'base64'));
  const areKeys = keys.every(
    (key, at) =>
      key.length >= MIN_KEY_BYTES &&
      key.length <= MAX_KEY_BYTES &&
      key.toString('base64').replace(/=+$/, '') === lines[at]?.replace(/^whsec_/, '').replace(/=+$/, ''),
  );
  return areKeys && keys.length > 0 ? keys : undefined;
}

/** Returns the recordings about which a webhook receives alerts: the recordings that its `viewer` may see. */
function scopeFor(
  { viewer }: WrittenWebhook,
  viewers: readonly ViewRule[] | undefined,
  invalid: (key: string, problem: string) => TailcastError,
): AlertWebhook['scope'] {
  if (viewers === undefined || viewers.length === 0) return 'everything';
  if (viewer === undefined)
    throw invalid(
      'viewer',
      'is missing; the recorder has viewers, so name the login or the tag as which this webhook sees recordings',
    );
  const who = viewer.startsWith('tag:') ? { tags: [viewer] } : { user: viewer };
  const scope = scopeOf(viewers, { node: '', nodeId: '', ...who });
  if (scope !== 'everything' && scope.length === 0)
    throw invalid('viewer', `${viewer} may see no recording; add a rule for it to the setting viewers`);
  return scope;
}

/** Opens the store of a recorder that the settings specify. */
import { stat } from 'node:fs/promises';
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError, errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { RecorderOptions } from './recorder-options.ts';
import { createArchiveStore } from '../tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../tsrecorder/store/disk.ts';
import { loadSealKeys, type SealKeys } from '../tsrecorder/store/seal-keys.ts';
import { createS3Store, S3_LISTING } from '../tsrecorder/store/s3.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import type { S3Bucket } from '../tsrecorder/store/s3-bucket.ts';
import type { S3Settings } from '../tsrecorder/store/s3-client.ts';
import type { BucketRules } from '../tsrecorder/store/s3-rules.ts';
import { openSettingDirectory } from './setting-directory.ts';

/** Settings of the store. */
export type StoreConfig = Pick<
  RecorderConfig,
  'store' | 'spool' | 'sealKeys' | 's3Endpoint' | 's3Region' | 's3Encryption' | 's3Checksums' | 's3Retention'
>;

/** A bucket, and the prefix of all its object names. */
export interface BucketAddress {
  readonly bucket: string;
  readonly prefix: string;
}

/**
 * Returns the bucket of a store setting `s3://bucket/prefix`; undefined for a directory.
 *
 * @throws TailcastError `CONFIG_INVALID` for any other address
 */
export function parseBucketAddress(store: string): BucketAddress | undefined {
  if (!/^[a-z][a-z\d+.-]*:\/\//i.test(store)) return undefined;
  const [, bucket = '', path = ''] = /^s3:\/\/([^/]*)\/?(.*)$/.exec(store) ?? [];
  if (!/^[A-Za-z0-9][\w.-]{1,254}$/.test(bucket)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `store: a directory, s3://bucket or s3://bucket/prefix is expected, not ${store}`,
    );
  }
  const prefix = path.replace(/\/+$/, '');
  return { bucket, prefix: prefix === '' ? '' : `${prefix}/` };
}

/**
 * Returns the places of the store. @throws TailcastError `CONFIG_INVALID` if no store is set, or if a bucket is set
 * without a spool
 */
export function requireStore({ store, spool }: Partial<Pick<StoreConfig, 'store' | 'spool'>>) {
  if (store === undefined) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'store: name the directory or the bucket that recordings are kept in (--store)',
    );
  }
  const address = parseBucketAddress(store);
  if (address === undefined) return { store, spool, address };
  if (spool === undefined)
    throw new TailcastError('CONFIG_INVALID', 'spool: a bucket needs a local directory as well (--spool)');
  return { store, spool, address };
}

/** An open store: the options with which a recorder uses the store, and the function that releases the store. */
export interface OpenedStore {
  readonly options: Pick<RecorderOptions, 'directory' | 'spoolDirectory' | 'bucket'>;
  /** Releases the store. Call this function after the recorder is closed. */
  close(): void;
}

/**
 * Opens the store. Succeeds if the bucket is unreachable, so that the recorder can accept sessions. Throws if the
 * bucket denies access.
 *
 * @throws TailcastError `CONFIG_INVALID` with the name of the setting
 */
export async function openStore(config: StoreConfig, log: Logger): Promise<OpenedStore> {
  const { store, spool, address } = requireStore(config);
  if (address === undefined) await openSettingDirectory('store', store);
  if (spool !== undefined) await openSettingDirectory('spool', spool);
  if (address === undefined) {
    const options = { directory: store, ...(spool === undefined ? {} : { spoolDirectory: spool }) };
    return { options, close: () => undefined };
  }
  const { bucket, probe } = await openBucket(config, address);
  const refusal = await probe();
  if (refusal?.final === true) {
    bucket.close();
    throw new TailcastError('CONFIG_INVALID', `store: ${store} cannot be written to: ${refusal.reason}`);
  }
  if (refusal !== undefined) {
    const { reason } = refusal;
    log.warn({ store, reason }, 'the bucket cannot be reached; sessions are kept in the spool until it can');
  }
  return { options: { directory: spool, spoolDirectory: spool, bucket }, close: () => bucket.close() };
}

/**
 * Opens the store for a tool, for example `verify`. Opening never writes. Only a tool that sets `change` needs the
 * right to write.
 *
 * @throws TailcastError `USAGE` if the directory does not exist, `CONFIG_INVALID` with the name of the setting
 */
export async function openStoreForTool(
  config: StoreConfig & { readonly store: string },
  change = false,
): Promise<{ readonly store: RecordingStore; close(): void }> {
  const address = parseBucketAddress(config.store);
  const keys = await openSealKeys(config);
  if (address === undefined) {
    const found = await stat(config.store).catch(() => undefined);
    if (found?.isDirectory() !== true) throw new TailcastError('USAGE', `${config.store} is not a directory`);
    const store = createArchiveStore(
      await createDiskStore(config.store, { readOnly: !change }),
      'plain',
      keys,
    );
    return { store, close: () => undefined };
  }
  const { bucket } = await openBucket(config, address);
  const inBucket = createS3Store({ ...S3_LISTING, bucket, nowMs: () => Date.now() });
  const store = createArchiveStore(inBucket, 'plain', keys);
  return { store, close: () => bucket.close() };
}

/** @throws TailcastError `CONFIG_INVALID` with file and line */
export async function openSealKeys({
  sealKeys,
}: Pick<StoreConfig, 'sealKeys'>): Promise<SealKeys | undefined> {
  return sealKeys === undefined ? undefined : loadSealKeys(sealKeys);
}

/** Reason why a bucket is not writable. `final`: true if only a change of the configuration fixes the problem. */
interface Refusal {
  readonly reason: string;
  readonly final: boolean;
}

/**
 * Returns the operations of `tailcast doctor` on a bucket. Each operation opens and closes the bucket. Rejections are
 * TailcastErrors with `CONFIG_INVALID`.
 */
export function examineBucket(config: StoreConfig, address: BucketAddress) {
  return {
    /** Object-lock retention of new recordings, in days. */
    retentionDays: config.s3Retention?.days ?? 0,
    /** Writes and removes a test object. @returns the reason if this fails, otherwise undefined */
    async write(): Promise<string | undefined> {
      const { bucket, probe } = await openBucket(config, address);
      const refusal = await probe();
      bucket.close();
      return refusal?.reason;
    },
    async rules(): Promise<BucketRules> {
      const { bucket } = await openBucket(config, address);
      const rules = await bucket.rules();
      bucket.close();
      return rules;
    },
  };
}

async function openBucket(
  config: StoreConfig,
  address: BucketAddress,
): Promise<{ readonly bucket: S3Bucket; readonly probe: () => Promise<Refusal | undefined> }> {
  // The S3 SDK is large, so it is loaded on demand.
  const [s3Bucket, s3Client] = await Promise.all([
    import('../tsrecorder/store/s3-bucket.ts'),
    import('../tsrecorder/store/s3-client.ts'),
  ]);
  const settings = { ...s3Client.S3_DEFAULTS, ...address, ...s3Settings(config) };
  const bucket = new s3Bucket.S3Bucket(settings, () => Date.now());
  return {
    bucket,
    async probe() {
      try {
        await bucket.probe();
        return undefined;
      } catch (error) {
        return { reason: errorText(s3Client.asStoreError(error)), final: s3Client.isMisconfigured(error) };
      }
    },
  };
}

/** @throws TailcastError `CONFIG_INVALID` for object lock without checksums */
export function s3Settings(config: StoreConfig): Partial<S3Settings> {
  const { s3Endpoint, s3Retention, s3Checksums } = config;
  const isAws = s3Endpoint === undefined || /(^|\.)amazonaws\.com(\.cn)?$/.test(s3Endpoint.hostname);
  if (s3Retention !== undefined && s3Checksums === 'none') {
    throw new TailcastError('CONFIG_INVALID', 's3Checksums: object lock needs crc32 or md5');
  }
  const region = config.s3Region ?? regionOf(s3Endpoint);
  return {
    endpoint: s3Endpoint?.href,
    ...(region === undefined ? {} : { region }),
    pathStyle: !isAws,
    checksums: s3Checksums,
    encryption: config.s3Encryption?.kind ?? 'none',
    kmsKey: config.s3Encryption?.key,
    retention: s3Retention,
  };
}

/** Returns the region in the host name of an AWS endpoint. */
function regionOf(endpoint: URL | undefined): string | undefined {
  return /^s3[.-](?:dualstack\.)?([a-z0-9-]+)\.amazonaws\.com/.exec(endpoint?.hostname ?? '')?.[1];
}

/**
 * The S3 client of the recorder: what is the same for every request, and what errors mean.
 *
 * Credentials come from the SDK's default chain: environment, shared files, roles of service accounts, pod identity,
 * instance metadata.
 */
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { TailcastError } from '../../errors.ts';
import { storageError } from '../files/durable-files.ts';
import type { ChecksumMode } from './s3-digest.ts';

export interface S3Settings {
  readonly bucket: string;
  /** Put before every name: empty, or ending in `/`. */
  readonly prefix: string;
  /** URL of the store; undefined for that of AWS in `region`. */
  readonly endpoint: string | undefined;
  readonly region: string;
  /** The bucket in the path instead of in the host name. */
  readonly pathStyle: boolean;
  readonly checksums: ChecksumMode;
  readonly encryption: 'none' | 'AES256' | 'aws:kms';
  /** For `aws:kms`; undefined takes the key of the bucket. */
  readonly kmsKey: string | undefined;
  /** Object lock on everything that belongs to the archive. */
  readonly retention: { readonly mode: 'GOVERNANCE' | 'COMPLIANCE'; readonly days: number } | undefined;
  /** Bytes of one part of an upload, 5 MiB at least. */
  readonly partBytes: number;
  readonly connectTimeoutMs: number;
  /** From the end of a request to its answer, and the longest silence inside of an answer. */
  readonly requestTimeoutMs: number;
}

export const S3_DEFAULTS = {
  prefix: '',
  endpoint: undefined,
  region: 'us-east-1',
  pathStyle: false,
  checksums: 'crc32',
  encryption: 'none',
  kmsKey: undefined,
  retention: undefined,
  partBytes: 8 * 1024 ** 2,
  connectTimeoutMs: 5000,
  requestTimeoutMs: 30_000,
} as const satisfies Omit<S3Settings, 'bucket'>;

const MAX_SOCKETS = 64;
/** New credentials are looked for at most so often. */
const RENEW_MS = 5000;

export interface S3Connection {
  /**
   * Runs one request. After an error that new credentials may heal, the next request asks the whole chain again: files
   * and secrets are replaced while we run.
   *
   * @throws what the SDK throws
   */
  run<T>(request: (client: S3Client) => Promise<T>): Promise<T>;
  close(): void;
}

export function connectS3(settings: S3Settings, nowMs: () => number = () => performance.now()): S3Connection {
  const config = clientConfig(settings);
  let client = new S3Client(config);
  let renewedAt = nowMs();
  return {
    async run(request) {
      const used = client;
      try {
        return await request(used);
      } catch (error) {
        if (isAboutCredentials(error) && used === client && nowMs() - renewedAt >= RENEW_MS) {
          renewedAt = nowMs();
          client = new S3Client(config);
        }
        throw error;
      }
    },
    close: () => client.destroy(),
  };
}

function clientConfig(settings: S3Settings): S3ClientConfig {
  const { endpoint, region, pathStyle, checksums, connectTimeoutMs, requestTimeoutMs } = settings;
  const demand = checksums === 'crc32' ? 'WHEN_SUPPORTED' : 'WHEN_REQUIRED';
  return {
    region,
    ...(endpoint === undefined ? {} : { endpoint }),
    forcePathStyle: pathStyle,
    requestChecksumCalculation: demand,
    responseChecksumValidation: demand,
    maxAttempts: 3,
    requestHandler: {
      connectionTimeout: connectTimeoutMs,
      requestTimeout: requestTimeoutMs,
      throwOnRequestTimeout: true,
      socketTimeout: requestTimeoutMs,
      httpAgent: { maxSockets: MAX_SOCKETS, keepAlive: true },
      httpsAgent: { maxSockets: MAX_SOCKETS, keepAlive: true },
    },
  };
}

/** The HTTP status of an answer, or undefined when there was none. */
export function httpStatusOf(error: unknown): number | undefined {
  const metadata = memberOf(error, '$metadata');
  const status = memberOf(metadata, 'httpStatusCode');
  return typeof status === 'number' ? status : undefined;
}

/** S3's own name of an error, e.g. `NoSuchKey`. */
export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : '';
}

/** Answers that no repetition will change before somebody changes the configuration. */
export function isMisconfigured(error: unknown): boolean {
  return (
    [301, 400, 403, 404].includes(httpStatusOf(error) ?? 0) || errorName(error) === 'CredentialsProviderError'
  );
}

/** Whether a condition of ours was not met: the name is taken. */
export function isTaken(error: unknown): boolean {
  return httpStatusOf(error) === 412 || errorName(error) === 'PreconditionFailed';
}

/** As our own error. The text of S3's errors names keys and buckets, so only its code is told to uploaders. */
export function asStoreError(error: unknown): TailcastError {
  if (error instanceof TailcastError) return error;
  const status = httpStatusOf(error);
  const name = errorName(error);
  if (status !== undefined)
    return new TailcastError('STORE_FAILED', `S3 answered ${status} ${name}`, { cause: error });
  const detail =
    name === 'CredentialsProviderError'
      ? 'no credentials for S3 were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE'
      : storageError(error).detail;
  return new TailcastError('STORE_FAILED', detail, { cause: error });
}

function isAboutCredentials(error: unknown): boolean {
  return httpStatusOf(error) === 403 || /Expired|Credential|InvalidToken|AccessKey/.test(errorName(error));
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

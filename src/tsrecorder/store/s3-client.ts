/**
 * The S3 client of the recorder: common settings of all requests, and translation of errors.
 *
 * Credentials come from the SDK's default chain: environment, shared files, roles of service accounts, pod identity,
 * instance metadata.
 */
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { TailcastError } from '../../errors.ts';
import { storageError } from '../files/durable-files.ts';
import type { ChecksumMode } from './s3-digest.ts';

/** Settings of an S3 store. */
export interface S3Settings {
  readonly bucket: string;
  /** Prefix of each object name: empty, or ending with `/`. */
  readonly prefix: string;
  /** URL of the store. Default: AWS in `region`. */
  readonly endpoint: string | undefined;
  readonly region: string;
  /** True if the bucket is part of the path instead of the host name. */
  readonly pathStyle: boolean;
  readonly checksums: ChecksumMode;
  readonly encryption: 'none' | 'AES256' | 'aws:kms';
  /** Key for `aws:kms`. Default: the default key of the bucket. */
  readonly kmsKey: string | undefined;
  /** Object-lock retention of all objects of the archive. */
  readonly retention: { readonly mode: 'GOVERNANCE' | 'COMPLIANCE'; readonly days: number } | undefined;
  /** Size of one part of an upload, in bytes; minimum 5 MiB. */
  readonly partBytes: number;
  readonly connectTimeoutMs: number;
  /** Timeout of a response, and maximum time without data within a response, in milliseconds. */
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
/** Minimum interval between two searches for new credentials, in milliseconds. */
const RENEW_MS = 5000;

/** An S3 client that uses changed credentials without a restart. */
export type S3Connection = ReturnType<typeof connectS3>;

export function connectS3(
  settings: S3Settings,
  nowMs: () => number = () => performance.now(),
  maxSockets: number = MAX_SOCKETS,
) {
  const config = clientConfig(settings, maxSockets);
  let client = new S3Client(config);
  let renewedAt = nowMs();
  return {
    /**
     * Runs a request. After an error that new credentials may fix, the next request reads the credentials again,
     * because files and Secrets may have changed.
     *
     * @throws Error of the SDK
     */
    async run<T>(request: (client: S3Client) => Promise<T>): Promise<T> {
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
    close: (): void => client.destroy(),
  };
}

function clientConfig(settings: S3Settings, maxSockets: number): S3ClientConfig {
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
      httpAgent: { maxSockets, keepAlive: true },
      httpsAgent: { maxSockets, keepAlive: true },
    },
  };
}

/** Returns the HTTP status of a response, or undefined if there was no response. */
export function httpStatusOf(error: unknown): number | undefined {
  const metadata = memberOf(error, '$metadata');
  const status = memberOf(metadata, 'httpStatusCode');
  return typeof status === 'number' ? status : undefined;
}

/** Returns the S3 error code, for example `NoSuchKey`. */
export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : '';
}

/** Returns true for errors that persist until the configuration changes. */
export function isMisconfigured(error: unknown): boolean {
  return (
    [301, 400, 403, 404].includes(httpStatusOf(error) ?? 0) || errorName(error) === 'CredentialsProviderError'
  );
}

/** Returns true if a conditional write failed because the name exists. */
export function nameExists(error: unknown): boolean {
  return httpStatusOf(error) === 412 || errorName(error) === 'PreconditionFailed';
}

/** Translates an S3 error. Uploaders get only the error code, because the error text contains keys and bucket names. */
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

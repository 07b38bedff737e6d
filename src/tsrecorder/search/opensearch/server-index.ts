/** Location of an index in OpenSearch, and its access data. */
import { readFile } from 'node:fs/promises';
import { errorReason } from '../../../errors.ts';
import type { ServerAccess } from './client.ts';

/** Plain data that is sent to other processes. The data contains the file names of secrets, and not the secrets. */
export interface ServerIndex {
  readonly url: string;
  /** Prefix of the names of indices and aliases. */
  readonly name: string;
  /** The active index, or the new index that is being built next to it. */
  readonly which: 'current' | 'next';
  /** Number of shards of a new index. */
  readonly shards: number;
  /** Name of this recorder among the recorders that share the index. */
  readonly owner: string;
  /** PEM file of the trusted CAs. Default: the CAs of Node.js. */
  readonly caFile?: string;
  /** File with `user:password` or a token on one line. */
  readonly credentialsFile?: string;
}

/** Reads the files. @throws Error with a sentence that contains the file name and no content of the file */
export async function readServerAccess(
  index: Pick<ServerIndex, 'url' | 'caFile' | 'credentialsFile'>,
): Promise<ServerAccess> {
  const ca = index.caFile === undefined ? undefined : await read(index.caFile);
  if (ca !== undefined && !ca.includes('-----BEGIN CERTIFICATE-----'))
    throw new Error(`${index.caFile} contains no certificate; PEM is expected`);
  const secret = index.credentialsFile === undefined ? undefined : await read(index.credentialsFile);
  return {
    url: index.url,
    ...(ca === undefined ? {} : { ca }),
    ...(secret === undefined ? {} : { authorization: authorizationOf(secret.trim(), index.credentialsFile) }),
  };
}

function authorizationOf(secret: string, file: string | undefined): string {
  const [user = '', ...rest] = secret.split(':');
  const password = rest.join(':');
  const isPair = user !== '' && password !== '' && !/\p{Cc}/u.test(secret);
  if (isPair) return `Basic ${Buffer.from(secret).toString('base64')}`;
  if (/^[\x21-\x39\x3b-\x7e]+$/.test(secret)) return `Bearer ${secret}`;
  throw new Error(`${file} has no credentials in it; user:password or a token is expected, on one line`);
}

function read(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((error: unknown) => {
    throw new Error(`${file} cannot be read: ${errorReason(error)}`, { cause: error });
  });
}

/** Which index of which OpenSearch, and how it is reached. */
import { readFile } from 'node:fs/promises';
import { errorReason } from '../../../errors.ts';
import type { ServerAccess } from './client.ts';

/** Plain data: it crosses process boundaries. Secrets are named by their files alone. */
export interface ServerIndex {
  readonly url: string;
  /** What the names of indices and aliases begin with. */
  readonly name: string;
  /** The index that answers, or the one that is being built beside it. */
  readonly which: 'current' | 'next';
  /** Of an index that is made. */
  readonly shards: number;
  /** Which recorder this is, among those that share the index. */
  readonly owner: string;
  /** PEM of the authorities that are trusted. Default: those of Node. */
  readonly caFile?: string;
  /** `user:password`, or a token, on one line. */
  readonly credentialsFile?: string;
}

/** Reads the files. @throws Error with a sentence that names the file, and nothing of what is in it */
export async function readServerAccess(
  index: Pick<ServerIndex, 'url' | 'caFile' | 'credentialsFile'>,
): Promise<ServerAccess> {
  const ca = index.caFile === undefined ? undefined : await read(index.caFile);
  if (ca !== undefined && !ca.includes('-----BEGIN CERTIFICATE-----'))
    throw new Error(`${index.caFile} has no certificate in it; PEM is expected`);
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

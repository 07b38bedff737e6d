/** Reads the search server of a recorder from the settings. */
import type { RecorderConfig } from '../config/recorder.ts';
import { errorText, TailcastError } from '../errors.ts';
import { readServerAccess } from '../tsrecorder/search/opensearch/server-index.ts';
import type { RecorderOptions } from './recorder-options.ts';

export type SearchSettings = Pick<
  RecorderConfig,
  'search' | 'searchUrl' | 'searchName' | 'searchCa' | 'searchCredentials'
>;

/**
 * Number of shards of a new index. One shard holds about 50 GB. For a larger index, an administrator can create the
 * index with more shards.
 */
const SHARDS = 1;

/**
 * Returns the search server; undefined for an index in files. The files that the settings name are read once here, so
 * that errors are reported at the start. Each index process reads these files again.
 *
 * @throws TailcastError `CONFIG_INVALID` with the name of the setting
 */
export async function searchServer(
  config: SearchSettings,
): Promise<NonNullable<RecorderOptions['searchServer']> | undefined> {
  assertSearchServer(config);
  const { searchUrl: url, searchName: name } = config;
  const { searchCa: caFile, searchCredentials: credentialsFile } = config;
  if (url === undefined) return undefined;
  const server = {
    url: url.href,
    name,
    shards: SHARDS,
    ...(caFile === undefined ? {} : { caFile }),
    ...(credentialsFile === undefined ? {} : { credentialsFile }),
  };
  await readServerAccess(server).catch((error: unknown) => {
    throw new TailcastError('CONFIG_INVALID', `searchUrl: ${errorText(error)}`);
  });
  return server;
}

/** @throws TailcastError `CONFIG_INVALID` if the settings of the search server contradict each other */
export function assertSearchServer({
  search,
  searchUrl: url,
  searchName: name,
  searchCredentials: credentialsFile,
}: Pick<SearchSettings, 'search' | 'searchUrl' | 'searchName' | 'searchCredentials'>): void {
  if (url === undefined) return;
  const invalid = (detail: string): TailcastError => new TailcastError('CONFIG_INVALID', detail);
  if (!search) throw invalid('searchUrl needs search: set search to true');
  if (url.username !== '' || url.password !== '')
    throw invalid(
      'searchUrl has a user or a password in it: put user:password into a file, and name that as searchCredentials',
    );
  if (url.search !== '' || url.hash !== '')
    throw invalid('searchUrl has a query or a fragment: a server is expected');
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name))
    throw invalid(
      `searchName is ${JSON.stringify(name)}: up to 64 small letters, digits, - and _ are expected`,
    );
  const isLoopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (credentialsFile !== undefined && url.protocol !== 'https:' && !isLoopback)
    throw invalid('searchCredentials would be readable on the way: searchUrl must begin with https://');
}

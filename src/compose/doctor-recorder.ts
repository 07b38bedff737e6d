/** The checks of `tailcast doctor recorder`. */
import { existsSync } from 'node:fs';
import type { RecorderConfig } from '../config/recorder.ts';
import { bucketChecks } from '../doctor/bucket-checks.ts';
import type { Check } from '../doctor/checks.ts';
import { serverClockCheck } from '../doctor/clock-check.ts';
import { answersCheck, trustedGatewaysCheck, uploadersCheck } from '../doctor/recorder-role-checks.ts';
import { searchCheck, type SearchFacts } from '../doctor/search-check.ts';
import { storageChecks } from '../doctor/storage-checks.ts';
import { tailnetChecks } from '../doctor/tailnet-checks.ts';
import { indexDirectory } from '../tsrecorder/search/recorder-search.ts';
import { defaultSpoolOf, spoolInside } from '../tsrecorder/spool/spool-place.ts';
import { checkIndexDirectory, checkIndexServer } from './check-index.ts';
import { searchServer } from './search-settings.ts';
import { connectTo } from './tailnet.ts';
import { examineBucket, parseBucketAddress } from './recorder-store.ts';
import { type DoctorOptions, MIB, openStatus } from './doctor.ts';

/** Minimum free space, in bytes. The recorder has the same limit. */
const MIN_FREE_BYTES = 64 * MIB;

/** Returns the checks of `tailcast doctor recorder`. */
export function recorderChecks(config: RecorderConfig, options: DoctorOptions): readonly Check[] {
  const { host, port } = config.listen;
  const tailscale = config.identity === 'tailscale';
  const local = tailscale ? openStatus(config.socket, options.signal) : undefined;
  const spool = config.spool === undefined ? [] : [spoolPlace(config, config.spool)];
  const store = {
    id: 'store',
    title: 'store',
    directory: config.store,
    flag: '--store',
    minFreeBytes: MIN_FREE_BYTES,
    wantedBytes: config.maxSessionBytes,
  };
  const bucket = config.store === undefined ? undefined : parseBucketAddress(config.store);
  const places = bucket === undefined ? [store, ...spool] : spool;
  const spools = spoolsOf(config, bucket === undefined);
  return [
    ...(local === undefined
      ? []
      : [
          ...tailnetChecks({ ...local, proxyProtocol: config.proxyProtocol !== undefined }),
          uploadersCheck(config.uploaders, local.status),
          ...(config.trustedGateways.length === 0
            ? []
            : [trustedGatewaysCheck(config.trustedGateways, local.status)]),
        ]),
    ...(bucket === undefined
      ? []
      : [
          ...bucketChecks({ ...examineBucket(config, bucket), prefix: bucket.prefix }),
          serverClockCheck(bucketServer(config), 'the store', Date.now),
        ]),
    ...places.flatMap((place) => storageChecks(place)),
    searchCheck(searchFacts(config, spools)),
    answersCheck(`${host}:${port}`, (signal) =>
      connectTo({ host: host === '::' ? '::1' : host, port }, signal),
    ),
  ];
}

/**
 * Returns the server with whose clock the doctor compares the local clock: the endpoint of the bucket, or an AWS
 * endpoint.
 */
function bucketServer({ s3Endpoint, s3Region }: RecorderConfig): URL {
  return s3Endpoint ?? new URL(`https://s3.${s3Region ?? 'us-east-1'}.amazonaws.com/`);
}

/**
 * Returns the possible spool directories: the directory in the settings or, if it is not set, the two defaults next to
 * the store and inside it.
 */
function spoolsOf({ spool, store }: RecorderConfig, isFolder: boolean): readonly string[] {
  if (spool !== undefined) return [spool];
  return isFolder && store !== undefined ? [defaultSpoolOf(store), spoolInside(store)] : [];
}

/** Returns the location of the search index, and a function that reads the index. */
function searchFacts(config: RecorderConfig, spools: readonly string[]): SearchFacts {
  const { searchUrl, searchName } = config;
  if (searchUrl === undefined) return { place: indexIn(spools), read: checkIndexDirectory };
  return {
    place: `the index ${searchName} at ${searchUrl.origin}`,
    remedy:
      'check --search-url, --search-ca, --search-credentials and the rights of this user (docs/watch.md); recording continues without the index',
    async read() {
      const server = await searchServer(config);
      return server !== undefined && checkIndexServer(server);
    },
  };
}

/** Returns the directory of the search index, which may not exist yet. */
function indexIn(spools: readonly string[]): string | undefined {
  const places = spools.map(indexDirectory);
  return places.find((place) => existsSync(place)) ?? places[0];
}

function spoolPlace(config: RecorderConfig, directory: string): Parameters<typeof storageChecks>[0] {
  return {
    id: 'spool',
    title: 'spool',
    directory,
    flag: '--spool',
    minFreeBytes: MIN_FREE_BYTES,
    wantedBytes: config.maxSessionBytes,
  };
}

/** Rules about combinations of recorder settings. */
import type { RECORDER_SETTINGS } from '../config/recorder.ts';
import { readableFiles, writableDirectories } from '../config/setting-paths.ts';
import type { SettingCheck } from '../config/settings.ts';
import { assertLoopbackRecorder, assertTrustedHeaders } from './recorder-identities.ts';
import { requireStore, s3Settings } from './recorder-store.ts';
import { assertSearchServer } from './search-settings.ts';
import { parseTrustedGateway, parseViewRule } from '../tsrecorder/serving/viewing.ts';
import { assertViewersNamed } from './recorder.ts';

/** Checks that run after all settings of a recorder are read. */
export const RECORDER_CHECKS: readonly SettingCheck<typeof RECORDER_SETTINGS>[] = [
  ...readableFiles('sealKeys', 'searchCa', 'searchCredentials', 'alerts'),
  ...writableDirectories('store', 'spool'),
  { settings: ['store', 'spool'], check: (values) => void requireStore(values) },
  { settings: ['s3Retention', 's3Checksums'], check: (values) => void s3Settings(values) },
  {
    settings: ['archive', 'sealKeys'],
    check({ archive, sealKeys }) {
      if (archive === 'sealed' && sealKeys === undefined)
        throw new Error('archive=sealed needs sealKeys: name the file with the keys (--seal-keys)');
    },
  },
  { settings: ['viewers'], check: ({ viewers }) => void viewers.map(parseViewRule) },
  {
    settings: ['trustedGateways'],
    check: ({ trustedGateways }) => void trustedGateways.map(parseTrustedGateway),
  },
  { settings: ['trustedGateways', 'viewers'], check: assertViewersNamed },
  { settings: ['identity', 'listen', 'readListen', 'trustedGateways'], check: assertLoopbackRecorder },
  { settings: ['identity', 'proxyProtocol'], check: assertTrustedHeaders },
  { settings: ['search', 'searchUrl', 'searchName', 'searchCredentials'], check: assertSearchServer },
];

import { describe, expect, it } from 'vitest';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { withReferenceNames } from '../../src/config/reference-names.ts';
import { readSettings, type SettingValues } from '../../src/config/settings.ts';

function read(environment: Record<string, string>): SettingValues<typeof RECORDER_SETTINGS> {
  return readSettings(RECORDER_SETTINGS, {
    flags: new Map(),
    environment: withReferenceNames(new Map(Object.entries(environment))),
    file: undefined,
  });
}

describe('the names of the reference', () => {
  it('say a directory', () => {
    expect(read({ TSRECORDER_DST: '/data/recordings', TSRECORDER_UI: 'true' })).toMatchObject({
      store: '/data/recordings',
      ui: true,
      s3Endpoint: undefined,
    });
  });

  it('say a bucket behind an endpoint', () => {
    const settings = read({
      TSRECORDER_DST: 's3://s3.us-east-2.amazonaws.com',
      TSRECORDER_BUCKET: 'sessions',
      S3_SEND_CONTENT_MD5: 'true',
      AWS_REGION: 'us-east-2',
    });
    expect(settings).toMatchObject({ store: 's3://sessions', s3Checksums: 'md5', s3Region: 'us-east-2' });
    expect(settings.s3Endpoint?.href).toBe('https://s3.us-east-2.amazonaws.com/');
  });

  it('give way to ours', () => {
    expect(read({ TSRECORDER_DST: '/theirs', TAILCAST_STORE: '/ours' }).store).toBe('/ours');
  });

  it('change nothing where there are none', () => {
    expect([...withReferenceNames(new Map([['A', 'b']]))]).toEqual([['A', 'b']]);
    expect(read({ S3_SEND_CONTENT_MD5: 'false' })).toMatchObject({ store: undefined, s3Checksums: 'crc32' });
  });
});

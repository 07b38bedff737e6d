import { createServer } from 'node:http';
import { describe, expect, it } from 'vitest';
import { openStore, parseBucketAddress } from '../../src/compose/recorder-store.ts';
import { createLogger, createSilentLogger } from '../../src/observe/logger.ts';
import { recorderSettings } from '../support/settings.ts';
import { listenOn } from '../support/listen.ts';

describe('the store of a recorder', () => {
  it.each([
    ['/data', undefined],
    ['s3data', undefined],
    ['s3://sessions', { bucket: 'sessions', prefix: '' }],
    ['s3://sessions/', { bucket: 'sessions', prefix: '' }],
    ['s3://sessions/team/a/', { bucket: 'sessions', prefix: 'team/a/' }],
  ])('%s', (store, address) => {
    expect(parseBucketAddress(store)).toEqual(address);
  });

  it.each(['s3://', 's3:///prefix', 's3://a', 's3://-bucket', 'S3://bucket', 'gs://bucket', 'https://a/b'])(
    'is refused as %s',
    (store) => {
      expect(() => parseBucketAddress(store)).toThrow('s3://bucket');
    },
  );

  it.each([
    [{}, 'name the directory or the bucket'],
    [{ store: 's3://sessions' }, 'needs a local directory'],
    [
      {
        store: 's3://sessions',
        spool: '/tmp',
        s3Checksums: 'none',
        s3Retention: '1',
      },
      'object lock needs crc32 or md5',
    ],
  ])('names the setting that is wrong: %o', async (flags, problem) => {
    await expect(openStore(recorderSettings(flags), createSilentLogger())).rejects.toThrow(problem);
  });

  it('may be a bucket that cannot be reached now', async () => {
    process.env['AWS_ACCESS_KEY_ID'] = 'a';
    process.env['AWS_SECRET_ACCESS_KEY'] = 'b';
    const flags = { store: 's3://sessions', spool: '/tmp', s3Endpoint: 'http://127.0.0.1:1' };
    const lines: string[] = [];
    const log = createLogger({ level: 'warn', destination: { write: (line) => void lines.push(line) } });
    const store = await openStore(recorderSettings(flags), log);
    expect(store.options).toMatchObject({ directory: '/tmp', spoolDirectory: '/tmp' });
    expect(lines.join('')).toContain('the bucket cannot be reached');
    store.close();
  });

  it.each([
    [403, 'AccessDenied', 'cannot be written to'],
    [404, 'NoSuchBucket', 'cannot be written to'],
  ])('is none that refuses for good: %i %s', async (status, code, problem) => {
    const server = createServer((request, response) => {
      request.resume();
      response.writeHead(status, { 'content-type': 'application/xml' });
      response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>no</Message></Error>`);
    });
    const port = await listenOn(server);
    try {
      const flags = { store: 's3://sessions', spool: '/tmp', s3Endpoint: `http://127.0.0.1:${port}` };
      await expect(openStore(recorderSettings(flags), createSilentLogger())).rejects.toThrow(problem);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});

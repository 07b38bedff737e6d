/** The bucket client against a loopback server with responses that real stores rarely send. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { crc32 } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { S3Bucket } from '../../../src/tsrecorder/store/s3-bucket.ts';
import { S3_DEFAULTS } from '../../../src/tsrecorder/store/s3-client.ts';
import { listenOn } from '../../support/listen.ts';

interface Asked {
  readonly method: string;
  readonly name: string;
  readonly isConditional: boolean;
}

let directory: string;
let server: Server;
let bucket: S3Bucket;
let objects: Map<string, Buffer>;
let asked: Asked[];
/** Returns the response that replaces the normal one, or undefined. */
let refusal: ((request: Asked) => readonly [status: number, code: string] | undefined) | undefined;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcbucket-'));
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'test');
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'test');
  objects = new Map();
  asked = [];
  refusal = undefined;
  server = createServer((request, response) => void answer(request, response));
  const endpoint = `http://127.0.0.1:${await listenOn(server)}`;
  bucket = new S3Bucket({ ...S3_DEFAULTS, bucket: 'b', endpoint, pathStyle: true }, Date.now);
});
afterEach(async () => {
  bucket.close();
  server.closeAllConnections();
  server.close();
  vi.unstubAllEnvs();
});

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await buffer(request);
  const { method = '', headers } = request;
  const name = new URL(request.url ?? '/', 'http://x').pathname.slice('/b/'.length);
  const isConditional = headers['if-none-match'] === '*';
  const one = { method, name, isConditional };
  asked.push(one);
  const refused =
    refusal?.(one) ?? (isConditional && objects.has(name) ? [412, 'PreconditionFailed'] : undefined);
  if (refused !== undefined) {
    const [status, code] = refused;
    response.writeHead(status, { 'content-type': 'application/xml' });
    response.end(`<Error><Code>${code}</Code><Message>no</Message></Error>`);
    return;
  }
  if (method === 'PUT') {
    objects.set(name, body);
    response.writeHead(200).end();
    return;
  }
  const found = objects.get(name);
  if (found === undefined) {
    response.writeHead(404, { 'content-type': 'application/xml' });
    response.end(method === 'HEAD' ? undefined : '<Error><Code>NoSuchKey</Code></Error>');
    return;
  }
  const digest = Buffer.alloc(4);
  digest.writeUInt32BE(crc32(found));
  const fields = { 'content-length': found.length, 'x-amz-checksum-crc32': digest.toString('base64') };
  response.writeHead(200, fields);
  if (method === 'HEAD') response.end();
  else response.end(found);
}

const methods = (): readonly string[] =>
  asked.map(({ method, isConditional }) => `${method}${isConditional ? ' once' : ''}`);

describe('a bucket', () => {
  it('returns stored objects, and reports missing ones', async () => {
    const content = Buffer.alloc(300_000, 'tailcast');
    await bucket.put('n/a', content);
    expect(Buffer.concat(await Array.fromAsync(bucket.get('n/a'))).equals(content)).toBe(true);
    await expect(Array.fromAsync(bucket.get('n/none'))).rejects.toMatchObject({ code: 'RECORDING_UNKNOWN' });
    expect(await bucket.stat('n/none')).toBeUndefined();
  });

  it('gets one request to claim a name, and reports that the name exists', async () => {
    await bucket.put('n/a', Buffer.from('one'), { once: true });
    await expect(bucket.put('n/a', Buffer.from('two'), { once: true })).rejects.toMatchObject({
      code: 'UPLOAD_CONFLICT',
    });
    expect(String(objects.get('n/a'))).toBe('one');
    expect(methods()).toEqual(['PUT once', 'PUT once']);
  });

  it('that does not support conditions gets a check first, from then on', async () => {
    refusal = ({ isConditional }) => (isConditional ? [501, 'NotImplemented'] : undefined);
    await bucket.put('n/a', Buffer.from('one'), { once: true });
    await bucket.put('n/b', Buffer.from('two'), { once: true });
    await expect(bucket.put('n/a', Buffer.from('other'), { once: true })).rejects.toMatchObject({
      code: 'UPLOAD_CONFLICT',
    });
    await bucket.put('n/a', Buffer.from('three'));
    expect(methods()).toEqual(['PUT once', 'PUT', 'HEAD', 'PUT', 'HEAD', 'PUT']);
    expect([...objects].map(([name, content]) => [name, String(content)])).toEqual([
      ['n/a', 'three'],
      ['n/b', 'two'],
    ]);
  });

  it('that rejects a request gets no second one without the condition', async () => {
    refusal = ({ method }) => (method === 'PUT' ? [403, 'AccessDenied'] : undefined);
    await expect(bucket.put('n/a', Buffer.from('one'), { once: true })).rejects.toMatchObject({
      code: 'STORE_FAILED',
    });
    expect(methods()).toEqual(['PUT once']);
  });

  it('that rejects a file has not stored it, even if the same file existed before', async () => {
    const path = join(directory, 'file');
    await writeFile(path, 'content');
    await bucket.putFile('n/a', path, 7);
    expect(String(objects.get('n/a'))).toBe('content');
    refusal = ({ method }) => (method === 'PUT' ? [403, 'AccessDenied'] : undefined);
    await expect(bucket.putFile('n/a', path, 7)).rejects.toMatchObject({ code: 'STORE_FAILED' });
  });

  it('contains a file that an earlier attempt has stored, and no other file', async () => {
    const path = join(directory, 'file');
    await writeFile(path, 'content');
    objects.set('n/a', Buffer.from('content'));
    await bucket.putFile('n/a', path, 7, { once: true });
    expect(methods()).not.toContain('PUT once');
    objects.set('n/a', Buffer.from('another'));
    await expect(bucket.putFile('n/a', path, 7, { once: true })).rejects.toMatchObject({
      code: 'UPLOAD_CONFLICT',
    });
  });

  it('compares the bytes of an existing object, because other content can have the same checksum', async () => {
    const path = join(directory, 'file');
    const real = Buffer.from('[0.1,"o","cat /etc/shadow"]\n');
    await writeFile(path, real);
    const prefix = Buffer.alloc(real.length - 4, ' ');
    const forged = Buffer.concat([prefix, endWithChecksum(prefix, crc32(real))]);
    expect(crc32(forged)).toBe(crc32(real));
    objects.set('n/a', forged);
    await expect(bucket.putFile('n/a', path, real.length, { once: true })).rejects.toMatchObject({
      code: 'UPLOAD_CONFLICT',
    });
  });
});

/** Returns four bytes; `prefix` followed by these bytes has the CRC-32 `wanted`. */
function endWithChecksum(prefix: Buffer, wanted: number): Buffer {
  const steps = Array.from(
    { length: 256 },
    (_, byte) => (crc32(Buffer.from([byte ^ 0xff])) ^ 0xff_00_00_00) >>> 0,
  );
  let state = (wanted ^ 0xff_ff_ff_ff) >>> 0;
  const found: number[] = [];
  for (let round = 0; round < 4; round += 1) {
    const top = state >>> 24;
    const at = steps.findIndex((step) => step >>> 24 === top);
    found.unshift(at);
    state = ((state ^ steps[at]!) << 8) >>> 0;
  }
  let register = (crc32(prefix) ^ 0xff_ff_ff_ff) >>> 0;
  return Buffer.from(
    found.map((at) => {
      const byte = (register ^ at) & 0xff;
      register = ((register >>> 8) ^ steps[at]!) >>> 0;
      return byte;
    }),
  );
}

it('stores objects while many readers wait inside an object', async () => {
  objects.set('long', Buffer.alloc(4 * 1024 ** 2));
  const readers = Array.from({ length: 80 }, () => bucket.get('long')[Symbol.asyncIterator]());
  for (const reader of readers) expect((await reader.next()).done).toBe(false);
  await bucket.put('new', Buffer.from('content'));
  expect(objects.get('new')?.toString()).toBe('content');
  for (const reader of readers) await reader.return?.();
});

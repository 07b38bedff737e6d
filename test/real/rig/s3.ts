/** An S3 server that stores objects as files: versitygw. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePeer } from './build.ts';
import { type Program, type Rig, freePort } from './rig.ts';

export interface S3Server {
  readonly endpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Folder of the server: each bucket is a subfolder. */
  readonly folder: string;
  readonly program: Program;
}

/** Starts an empty S3 server; it needs a file system with user attributes. */
export async function startS3(rig: Rig): Promise<S3Server> {
  const { versitygw = '' } = await ensurePeer('versitygw');
  const folder = join(rig.folder, 's3');
  mkdirSync(folder);
  const port = await freePort();
  const credentials = { accessKeyId: 'rig-access-key', secretAccessKey: 'rig-secret-key-0123456789' };
  const program = rig.launch({
    name: 'versitygw',
    path: versitygw,
    args: ['--port', `127.0.0.1:${port}`, 'posix', folder],
    env: { ROOT_ACCESS_KEY: credentials.accessKeyId, ROOT_SECRET_KEY: credentials.secretAccessKey },
  });
  const endpoint = `http://127.0.0.1:${port}`;
  // The server is up when it rejects a request without credentials, with an error in S3's format.
  await rig.until('versitygw', () => refuses(endpoint), { watch: [program] });
  return { endpoint, region: 'us-east-1', ...credentials, folder, program };
}

async function refuses(endpoint: string): Promise<true | undefined> {
  const response = await fetch(endpoint, { signal: AbortSignal.timeout(2_000) });
  const body = await response.text();
  return response.status === 403 && body.includes('<Error>') ? true : undefined;
}

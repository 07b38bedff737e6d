/** A recorder with sessions of several users, created through gateways in front of the embedded cluster. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDemoCluster } from '../../../demo/cluster.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { type Archive, openArchive } from './archive.ts';
import { type TestBucket, identityOf, startTestGateway, startTestRecorder } from './product.ts';
import { type ShellSession, type ShellTarget, openShell } from './shell-session.ts';
import { writeKubeconfig } from '../../support/kubectl.ts';

export type Caller = Parameters<typeof identityOf>[0];

export interface DemoArchive {
  readonly url: string;
  readonly archive: Archive;
  /** Opens a shell as a user. Each user has a separate gateway. */
  shell(caller: Caller, target: Omit<ShellTarget, 'url' | 'ca'>): Promise<ShellSession>;
  /** Returns the address of the portal on the gateway of this caller. Its certificate is self-signed. */
  portal(caller: Caller): Promise<string>;
  /** Returns the name of the pod that starts with this prefix. */
  podNamed(namespace: string, prefix: string): Promise<string>;
  close(): Promise<void>;
}

/**
 * @param bucket storage of the recorder; default: a folder
 * @param search true for a search index
 */
export async function startDemoArchive(bucket?: TestBucket, search = false): Promise<DemoArchive> {
  await using stack = new AsyncDisposableStack();
  const folder = mkdtempSync(join(tmpdir(), 'tcdemo-'));
  stack.defer(() => rmSync(folder, { recursive: true, force: true }));
  const cluster = await startDemoCluster({ log: createSilentLogger() });
  stack.defer(() => cluster.close());
  const recorder = await startTestRecorder(folder, 'gateway.example.ts.net', bucket, search);
  stack.defer(() => recorder.close());
  const { url, caPem, adminToken: token } = cluster;
  const upstream = await writeKubeconfig({ directory: folder, url, caPem, token });
  const gateways = new Map<string, ReturnType<typeof startTestGateway>>();

  const owned = stack.move();
  function gatewayOf(caller: Caller): ReturnType<typeof startTestGateway> {
    const key = JSON.stringify(caller);
    const known = gateways.get(key);
    if (known !== undefined) return known;
    const started = startTestGateway({
      mode: 'auth',
      upstream,
      stateDirectory: join(folder, `gateway-${gateways.size}`),
      identity: identityOf(caller, recorder.address),
    });
    gateways.set(key, started);
    owned.defer(async () => (await started).close(500));
    return started;
  }

  return {
    url: recorder.url,
    archive: openArchive(recorder.url),
    async shell(caller, target) {
      const gateway = await gatewayOf(caller);
      return openShell({ ...target, url: `https://127.0.0.1:${gateway.port}`, ca: gateway.caPem ?? '' });
    },
    portal: async (caller) => `https://127.0.0.1:${(await gatewayOf(caller)).port}/-/recordings/`,
    async podNamed(namespace, prefix) {
      const { request } = await import('node:https');
      const text = await new Promise<string>((done, fail) => {
        const path = `${url}/api/v1/namespaces/${namespace}/pods`;
        const headers = { authorization: `Bearer ${token}` };
        request(path, { ca: caPem, headers }, (response) => {
          let body = '';
          response.on('data', (chunk: Buffer) => (body += chunk.toString()));
          response.on('end', () => done(body));
        })
          .on('error', fail)
          .end();
      });
      const { items } = JSON.parse(text) as { items: { metadata: { name: string } }[] };
      const found = items.find(({ metadata }) => metadata.name.startsWith(prefix));
      if (found === undefined) throw new Error(`no pod ${namespace}/${prefix}…`);
      return found.metadata.name;
    },
    close: () => owned.disposeAsync(),
  };
}

/** The gateway of an arena in its own process, to measure its memory. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';
import { startRole } from '../support/role-process.ts';
import { ALICE, GATEWAY_HOST, GATEWAY_TOKEN, introduce, type Arena } from './arena.ts';
import { startEchoApiServer } from './echo-api-server.ts';

export type ProcessArena = Pick<Arena, 'port' | 'caPem' | 'localApi' | 'apiServer' | 'close'> & {
  readonly pid: number;
};

/** @param flags additional flags of the gateway */
export async function openProcessArena(
  flags: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<ProcessArena> {
  await using stack = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-arena-'));
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const authority = await createTestAuthority();
  const pair = await authority.issue(['localhost', '127.0.0.1']);
  const apiServer = await startEchoApiServer({ key: pair.keyPem, cert: pair.certificatePem });
  stack.defer(() => apiServer.close());
  const localApi = await startLocalApiDouble();
  stack.defer(() => localApi.close());
  introduce(localApi, ALICE, [{ impersonate: { groups: ALICE.groups } }]);
  const kubeconfig = join(directory, 'kubeconfig');
  const server = `https://localhost:${apiServer.port}`;
  const entry = { name: 'echo', server, caPem: authority.caPem, userName: 'gateway', token: GATEWAY_TOKEN };
  await writeFile(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig), { mode: 0o600 });
  const state = join(directory, 'state');
  const own = {
    kubeconfig,
    socket: localApi.socketPath,
    'state-directory': state,
    'proxy-protocol': 'require',
    listen: '127.0.0.77:0',
    tls: 'self-signed',
    'tls-names': GATEWAY_HOST,
    'access-log': 'false',
    'drain-seconds': '0',
  };
  const words = Object.entries(own).flatMap(([name, value]) => [`--${name}`, value]);
  const gateway = await startRole(['gateway', ...words, ...flags], environment);
  stack.defer(async () => void (await gateway.stop()));
  const owned = stack.move();
  return {
    port: gateway.port,
    pid: gateway.pid,
    caPem: await readFile(join(state, 'ca', 'ca.crt'), 'utf8'),
    localApi,
    apiServer,
    close: () => owned.disposeAsync(),
  };
}

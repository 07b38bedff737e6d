/** Starts a gateway, a recorder and the demo cluster in this process, on loopback and in a temporary folder. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { readSettings } from '../../src/config/settings.ts';
import { startGateway } from '../../src/compose/gateway.ts';
import { loopbackUploader } from '../../src/compose/recorder-identities.ts';
import { startRecorder } from '../../src/compose/recorder.ts';
import { startDemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { writeKubeconfig } from '../support/kubectl.ts';
import { gatewaySettings } from '../support/settings.ts';

export interface Product {
  /** Path of a kubeconfig that uses the gateway. */
  readonly kubeconfig: string;
  readonly recordings: () => Promise<readonly StoredRecording[]>;
  /**
   * Runs `work`, waits until the recording of its session is stored, and returns both. The session is found by a part
   * of its command.
   */
  readonly recorded: <T>(
    inCommand: string,
    work: () => Promise<T>,
  ) => Promise<{ readonly result: T; readonly recording: StoredRecording }>;
  readonly cast: (id: string) => Promise<readonly (readonly unknown[])[]>;
  readonly header: (id: string) => Promise<Record<string, unknown>>;
  readonly notes: (id: string) => Promise<string>;
  close(): Promise<void>;
}

export interface StoredRecording {
  readonly id: string;
  readonly state: string;
  readonly startedAt: string;
  readonly command?: string;
  readonly kind: string;
  readonly result?: string;
  readonly kubernetes?: { readonly namespace: string; readonly pod: string; readonly container: string };
  readonly source: { readonly user?: string };
}

export async function startProduct(): Promise<Product> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-e2e-'));
  const log = createSilentLogger();
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const cluster = await startDemoCluster({ log });
  stack.defer(() => cluster.close());
  const recorder = await startRecorder(
    {
      ...readSettings(RECORDER_SETTINGS, {
        flags: new Map([['store', join(directory, 'recordings')]]),
        environment: new Map(),
        file: undefined,
      }),
      listen: { host: '127.0.0.1', port: 0 },
      drainSeconds: 1,
    },
    { identify: loopbackUploader({ nodeId: 'nGW', nodeName: 'gateway.test' }), log },
  );
  stack.defer(() => recorder.close());
  const { url: server, caPem, adminToken } = cluster;
  const upstream = await writeKubeconfig({ directory, url: server, caPem, token: adminToken });
  const identity: Identity = {
    kind: 'user',
    nodeId: 'nLAPTOP',
    nodeName: 'laptop.test',
    addresses: [],
    userId: 16793133573424020n,
    login: 'alice@example.com',
    displayName: 'Alice',
    capabilities: new Map([
      [
        'tailscale.com/cap/kubernetes',
        [
          {
            impersonate: { groups: ['system:masters'] },
            recorderAddrs: [`${recorder.address.host}:${recorder.address.port}`],
            enforceRecorder: true,
          },
        ],
      ],
    ]),
  };
  const gateway = await startGateway({
    config: gatewaySettings({ kubeconfig: upstream, stateDirectory: join(directory, 'gateway') }),
    environment: new Map(),
    log,
    accessSink: process.stderr,
    identity,
  });
  stack.defer(() => gateway.close(500));
  const url = `https://127.0.0.1:${gateway.port}`;
  // Writes a kubeconfig in the format of `tailcast kubeconfig`. Without a token kubectl asks for a user name.
  const kubeconfig = await writeKubeconfig({ directory, url, caPem: gateway.caPem ?? '', token: 'unused' });
  const get = async (path: string): Promise<Response> => {
    const response = await fetch(new URL(`/api/v1/${path}`, recorder.url));
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  const recordings = async (): Promise<readonly StoredRecording[]> =>
    ((await (await get('recordings?limit=500')).json()) as { recordings: StoredRecording[] }).recordings;
  const lines = async (id: string): Promise<string[]> =>
    (await (await get(`recordings/${id}/cast`)).text()).trimEnd().split('\n');
  const owned = stack.move();
  return {
    kubeconfig,
    recordings,
    async recorded(inCommand, work) {
      const before = new Set((await recordings()).map(({ id }) => id));
      const result = await work();
      // The client may exit before the recorder has received the first byte or has stored the file.
      for (;;) {
        const found = (await recordings()).find(
          ({ id, state, command = '' }) =>
            !before.has(id) && state !== 'running' && command.includes(inCommand),
        );
        // The sidecar is stored last.
        if (
          found !== undefined &&
          (await fetch(new URL(`/api/v1/recordings/${found.id}/sidecar`, recorder.url))).ok
        )
          return { result, recording: found };
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    cast: async (id) => (await lines(id)).slice(1).map((line) => JSON.parse(line) as unknown[]),
    header: async (id) => JSON.parse((await lines(id))[0] ?? '') as Record<string, unknown>,
    notes: async (id) => (await get(`recordings/${id}/notes`)).text(),
    close: () => owned.disposeAsync(),
  };
}

/** Returns the text of the output events of a cast. */
export function outputOf(cast: readonly (readonly unknown[])[]): string {
  return cast
    .filter(([, code]) => code === 'o')
    .map(([, , data]) => String(data))
    .join('');
}

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
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { writeFile } from 'node:fs/promises';
import { writeKubeconfig } from '../support/kubectl.ts';
import { gatewaySettings } from '../support/settings.ts';

export interface Product {
  readonly directory: string;
  /** Path of a kubeconfig that uses the gateway. */
  readonly kubeconfig: string;
  /** Path of a kubeconfig that uses the cluster directly. */
  readonly directKubeconfig: string;
  readonly recordings: () => Promise<readonly StoredRecording[]>;
  /**
   * Runs `work`, waits until the recording of its session is stored, and returns both. It finds the session by its kind
   * and by its pod or a word of its command, because sessions of earlier commands (such as `kubectl cp`) may end late.
   */
  readonly recorded: <T>(
    session: { readonly kind: string; readonly command?: string; readonly pod?: string },
    work: () => Promise<T>,
  ) => Promise<{ readonly result: T; readonly recording: StoredRecording }>;
  readonly cast: (id: string) => Promise<readonly (readonly unknown[])[]>;
  readonly header: (id: string) => Promise<Record<string, unknown>>;
  readonly notes: (id: string) => Promise<string>;
  /** The exact output bytes: text output is read from the cast, binary output from the notes. */
  readonly bytes: (id: string) => Promise<Buffer>;
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

export async function startProduct(
  options: { readonly rule?: Record<string, unknown> } = {},
): Promise<Product> {
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
  const upstream = join(directory, 'upstream');
  const entry = {
    name: 'up',
    server: cluster.url,
    caPem: cluster.caPem,
    userName: 'admin',
    token: cluster.adminToken,
  };
  await writeFile(upstream, mergeKubeconfig(undefined, entry, upstream), { mode: 0o600 });
  const rule = options.rule ?? { enforceRecorder: true };
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
            ...rule,
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
  const directKubeconfig = await writeKubeconfig({
    directory,
    url: cluster.url,
    caPem: cluster.caPem,
    token: cluster.adminToken,
  });
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
    directory,
    kubeconfig,
    directKubeconfig,
    recordings,
    async recorded(session, work) {
      const before = new Set((await recordings()).map(({ id }) => id));
      const result = await work();
      // The client may exit before the recorder has received the first byte or has stored the file.
      for (;;) {
        const found = (await recordings()).find(
          ({ id, kind, state, command = '', kubernetes }) =>
            !before.has(id) &&
            kind === session.kind &&
            state !== 'running' &&
            command.includes(session.command ?? '') &&
            (session.pod === undefined || kubernetes?.pod === session.pod),
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
    async bytes(id) {
      const raw = rawByOffset(await (await get(`recordings/${id}/notes`)).text());
      const parts: Buffer[] = [];
      let offset = 0;
      for (const line of await lines(id)) {
        const [, code, data] = offset === 0 ? [] : (JSON.parse(line) as unknown[]);
        if (code === 'o') parts.push(raw.get(offset) ?? Buffer.from(String(data)));
        offset += Buffer.byteLength(line) + 1;
      }
      return Buffer.concat(parts);
    },
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

/** Returns the bytes of the notes of kind `raw`, by the offset of their line in the cast. */
function rawByOffset(notes: string): ReadonlyMap<number, Buffer> {
  const found = new Map<number, Buffer>();
  for (const line of notes.split('\n').filter((text) => text !== '')) {
    const { at, note } = JSON.parse(line) as { at?: number; note?: { kind: string; base64: string } };
    if (at !== undefined && note?.kind === 'raw') found.set(at, Buffer.from(note.base64, 'base64'));
  }
  return found;
}

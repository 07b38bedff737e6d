/** Roles in separate processes with production settings, around an embedded cluster and in one temporary folder. */
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startDemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { openExec, type ExecClient } from '../support/exec-client.ts';
import { startRole, type RoleProcess } from '../support/role-process.ts';
import { writeKubeconfig } from '../support/kubectl.ts';

type Flags = Readonly<Record<string, string>>;

export interface Site {
  readonly directory: string;
  /**
   * Starts a recorder. All recorders share one store, and each has its own spool.
   *
   * @param name name of the spool
   * @param checkout folder of the sources to run
   */
  startRecorder(name: string, flags?: Flags, checkout?: string): Promise<RoleProcess>;
  /**
   * Starts a gateway that enforces recording. @param recorders in order of preference; if empty, nothing is recorded
   */
  startGateway(
    recorders: readonly RoleProcess[],
    flags?: Flags,
    environment?: Readonly<Record<string, string>>,
    checkout?: string,
  ): Promise<RoleProcess>;
  exec(gateway: RoleProcess, command: readonly string[]): Promise<ExecClient>;
  close(): Promise<void>;
}

export async function startSite(): Promise<Site> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-site-'));
  const cluster = await startDemoCluster({ log: createSilentLogger() });
  const { url, caPem, adminToken: token } = cluster;
  const upstream = await writeKubeconfig({ directory, url, caPem, token });
  const state = join(directory, 'gateway');
  const roles: RoleProcess[] = [];
  const started = async (starting: Promise<RoleProcess>): Promise<RoleProcess> => {
    const role = await starting;
    roles.push(role);
    return role;
  };
  return {
    directory,
    startRecorder(name, flags, checkout) {
      const own = {
        store: join(directory, 'recordings'),
        spool: join(directory, `spool-${name}`),
        identity: 'loopback',
        listen: '127.0.0.1:0',
      };
      return started(startRole(['recorder', ...words({ ...own, ...flags })], {}, checkout));
    },
    async startGateway(recorders, flags, environment, checkout) {
      const rule = {
        impersonate: { groups: ['system:masters'] },
        ...(recorders.length === 0
          ? {}
          : { recorderAddrs: recorders.map(({ port }) => `127.0.0.1:${port}`), enforceRecorder: true }),
      };
      const capabilities = { 'tailscale.com/cap/kubernetes': [rule] };
      const identity = join(directory, 'identity.json');
      const node = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: 'alice@example.com' };
      await writeFile(identity, JSON.stringify({ ...node, capabilities }));
      const own = {
        kubeconfig: upstream,
        identity: 'static',
        'static-identity': identity,
        listen: '127.0.0.1:0',
        'state-directory': state,
      };
      return started(startRole(['gateway', ...words({ ...own, ...flags })], environment, checkout));
    },
    async exec(gateway, command) {
      const caPem = await readFile(join(state, 'ca', 'ca.crt'), 'utf8');
      return openExec({ url: `https://127.0.0.1:${gateway.port}`, caPem, pod: 'shell', command });
    },
    async close() {
      // a failed test may not have stopped its processes
      for (const role of roles) role.signal('SIGKILL');
      await Promise.all(roles.map((role) => role.stop()));
      await cluster.close();
    },
  };
}

export async function recordings({ port }: RoleProcess): Promise<readonly Recording[]> {
  const response = await fetch(`http://127.0.0.1:${port}/api/v1/recordings?limit=100`);
  return ((await response.json()) as { readonly recordings: Recording[] }).recordings;
}

export async function castOf({ port }: RoleProcess, { id }: Recording): Promise<string> {
  const url = `http://127.0.0.1:${port}/api/v1/recordings/${encodeURIComponent(id)}/cast`;
  return (await fetch(url)).text();
}

/** Returns the data of all events of a cast. */
export function dataOf(cast: string): string {
  const events = cast.trimEnd().split('\n').slice(1);
  return events.map((line) => (JSON.parse(line) as readonly [number, string, string])[2]).join('');
}

function words(flags: Flags): readonly string[] {
  return Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
}

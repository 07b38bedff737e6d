/**
 * Containers without an engine: umoci unpacks an image, and runc runs it with a read-only root, no capabilities, and
 * its own namespaces for processes, network, mounts, IPC, host name and cgroups.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { type Outcome, run } from '../chart/render.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import type { Program, Rig } from '../rig/rig.ts';

/** The part of the runtime configuration that the tests use. umoci generates the configuration for an image. */
export const BUNDLE_SPEC = z.looseObject({
  process: z.looseObject({
    args: z.array(z.string()),
    env: z.array(z.string()),
    capabilities: z.record(z.string(), z.array(z.string())),
  }),
  root: z.looseObject({ path: z.string() }),
  mounts: z.array(z.looseObject({ destination: z.string() })),
  linux: z.looseObject({}),
});
const STATE = z.object({ pid: z.number(), status: z.string() });

export interface Container {
  readonly program: Program;
  /** Runs a program inside the container. */
  exec(...args: readonly string[]): Outcome;
  /** Sends SIGTERM to process 1 and waits for its exit. */
  terminate(): Promise<void>;
  pid(): number;
}

export interface ContainerOptions {
  readonly name: string;
  readonly args: readonly string[];
  /** Bundle of the image; its entry point gets `args`. */
  readonly bundle: string;
  /** Folder of this machine to mount at `/data`. Default: an empty file system in memory. */
  readonly data?: string;
  /** Process whose network the container shares; default: its own network with only a loopback interface. */
  readonly networkOf?: number;
}

/** Unpacks an OCI archive; returns a bundle with `config.json` and `rootfs`. */
export function unpackImage(rig: Rig, archive: string, tag: string): string {
  const umoci = ensureDebianProgram('umoci');
  const [layout, bundle] = [join(rig.folder, 'oci'), join(rig.folder, 'bundle')];
  mkdirSync(layout);
  expectSuccess(run('tar', ['-xf', archive, '-C', layout]));
  expectSuccess(run(umoci, ['unpack', '--image', `${layout}:${tag}`, bundle]));
  return bundle;
}

export function startContainer(rig: Rig, options: ContainerOptions): Container {
  const runc = ensureDebianProgram('runc');
  const state = join(rig.folder, 'runc');
  const id = `${rig.id}-${options.name}`;
  const bundle = writeBundle(rig, options);
  const program = rig.launch({
    name: options.name,
    path: 'env',
    args: ['-u', 'TAILCAST_RIG', runc, '--root', state, 'run', '--bundle', bundle, id],
    stopSignal: 'SIGTERM',
  });
  rig.onStop(() => void spawnSync(runc, ['--root', state, 'delete', '--force', id]));
  return {
    program,
    exec: (...args) => run(runc, ['--root', state, 'exec', id, ...args]),
    async terminate() {
      expectSuccess(run(runc, ['--root', state, 'kill', id, 'TERM']));
      await rig.until(`the end of ${options.name}`, async () => (program.running ? undefined : true));
    },
    pid: () => STATE.parse(JSON.parse(run(runc, ['--root', state, 'state', id]).stdout)).pid,
  };
}

/** Writes a bundle that shares the files of the image but has its own configuration. */
function writeBundle(rig: Rig, { name, args, bundle, data, networkOf }: ContainerOptions): string {
  const spec = BUNDLE_SPEC.parse(JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8')));
  const memory = (destination: string): object => ({
    destination,
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'nodev', 'mode=0700', 'uid=65532', 'gid=65532'],
  });
  const volume = { destination: '/data', type: 'bind', source: data, options: ['bind', 'rw', 'nosuid'] };
  const namespaces = ['pid', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type }));
  const network = networkOf === undefined ? {} : { path: `/proc/${networkOf}/ns/net` };
  const entry = spec.process.args.slice(0, 2);
  const capabilities = Object.fromEntries(Object.keys(spec.process.capabilities).map((set) => [set, []]));
  const changed = {
    ...spec,
    process: {
      ...spec.process,
      terminal: false,
      noNewPrivileges: true,
      args: [...entry, ...args],
      capabilities,
    },
    root: { path: join(bundle, 'rootfs'), readonly: true },
    mounts: [
      ...spec.mounts.filter(({ destination }) => destination !== '/tmp'),
      memory('/tmp'),
      memory('/var/lib/tailcast'),
      data === undefined ? memory('/data') : volume,
    ],
    linux: { ...spec.linux, namespaces: [...namespaces, { type: 'network', ...network }] },
  };
  return writeBundleFolder(join(rig.folder, `bundle-${name}`), changed);
}

/**
 * Creates a bundle for runc that contains only a configuration, which refers to the image's files in another folder.
 */
export function writeBundleFolder(folder: string, configuration: object): string {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(configuration));
  return folder;
}

export function expectSuccess({ code, stdout, stderr }: Outcome): string {
  if (code !== 0) throw new Error(`${stdout}${stderr}`);
  return stdout;
}

/**
 * Runs a container of a pod from the image of a release. The kubelet double calls this program instead of running a
 * program of this machine:
 *
 *   node pod-container.ts <settings>
 *
 * The double has created the volumes and entered the network of the pod. The pod's specification at the API server
 * defines command line, variables, user, rights, root, mounts, sysctls and memory. Unknown fields are errors, except
 * seccomp profiles, which this runc does not support.
 */
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, chownSync, lstatSync, readFileSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { BUNDLE_SPEC, writeBundleFolder } from './container.ts';

/** Options of a suite, written as JSON into the file that the command line names. */
export interface PodContainerSettings {
  readonly kubectl: string;
  readonly kubeconfig: string;
  readonly namespace: string;
  readonly runc: string;
  /** Process whose network runc uses, because runc refuses to set sysctls in the network of the pod. */
  readonly runcPid: number;
  /** State folder of runc; containers are named `<pod>-<container>`. */
  readonly state: string;
  /** The unpacked image. */
  readonly bundle: string;
}

const SECURITY = z.strictObject({
  runAsNonRoot: z.boolean().default(false),
  runAsUser: z.number(),
  runAsGroup: z.number(),
  allowPrivilegeEscalation: z.boolean().default(true),
  readOnlyRootFilesystem: z.boolean().default(false),
  capabilities: z.strictObject({ drop: z.tuple([z.literal('ALL')]) }),
});
const CONTAINER = z.looseObject({
  name: z.string(),
  command: z.undefined().optional(),
  args: z.array(z.string()),
  workingDir: z.undefined().optional(),
  envFrom: z.undefined().optional(),
  env: z.array(
    z.strictObject({
      name: z.string(),
      value: z.string().default(''),
      valueFrom: z
        .strictObject({
          fieldRef: z.object({ fieldPath: z.enum(['metadata.name', 'metadata.namespace', 'metadata.uid']) }),
        })
        .optional(),
    }),
  ),
  resources: z.looseObject({ limits: z.strictObject({ memory: z.string() }) }),
  securityContext: SECURITY,
  volumeMounts: z.array(
    z.strictObject({ name: z.string(), mountPath: z.string(), readOnly: z.boolean().default(false) }),
  ),
});
const POD = z.looseObject({
  metadata: z.looseObject({ name: z.string(), namespace: z.string(), uid: z.string() }),
  spec: z.looseObject({
    containers: z.array(CONTAINER),
    securityContext: z.strictObject({
      fsGroup: z.number(),
      fsGroupChangePolicy: z.literal('OnRootMismatch').optional(),
      seccompProfile: z.strictObject({ type: z.literal('RuntimeDefault') }),
      sysctls: z.array(z.strictObject({ name: z.string(), value: z.string() })).default([]),
    }),
    volumes: z.array(
      z.looseObject({
        name: z.string(),
        emptyDir: z.object({}).optional(),
        projected: z.looseObject({ defaultMode: z.number() }).optional(),
        persistentVolumeClaim: z.looseObject({ claimName: z.string() }).optional(),
      }),
    ),
  }),
});
type Pod = z.infer<typeof POD>;
type PodContainer = z.infer<typeof CONTAINER>;

const KUBERNETES = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };

function runContainer(settings: PodContainerSettings): void {
  // Folder of the kubelet double for this run: <root>/pods/<uid>/containers/<name>.
  const home = process.env['HOME'] ?? '';
  const { kubectl, kubeconfig, namespace, runc, runcPid, state } = settings;
  const asked = ['--kubeconfig', kubeconfig, '-n', namespace, 'get', 'pod', process.env['HOSTNAME'] ?? ''];
  const pod = POD.parse(JSON.parse(execFileSync(kubectl, [...asked, '-o', 'json'], { encoding: 'utf8' })));
  const podFolder = join(home, '..', '..');
  if (basename(podFolder) !== pod.metadata.uid) throw new Error(`${home} is not of pod ${pod.metadata.uid}`);
  const container = pod.spec.containers.find(({ name }) => name === basename(home));
  if (container === undefined) throw new Error(`the pod has no container ${basename(home)}`);
  const id = `${pod.metadata.name}-${container.name}`;
  // Removes the container of an earlier run that was killed.
  execFileSync(runc, ['--root', state, 'delete', '--force', id], { stdio: 'ignore' });
  const bundle = writeBundleFolder(home, containerSpec(settings.bundle, pod, container, podFolder));
  // runc runs in the process group of the double and forwards its signals.
  const started = [runc, '--root', state, 'run', '--bundle', bundle, id];
  const child = spawn('nsenter', [`--target=${runcPid}`, '--net', ...started], { stdio: 'inherit' });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => undefined);
  child.once('exit', (code) => process.exit(code ?? 1));
}

/** Returns an OCI runtime configuration for a container of a pod. */
function containerSpec(image: string, pod: Pod, container: PodContainer, podFolder: string): object {
  const { process: main, ...rest } = BUNDLE_SPEC.parse(
    JSON.parse(readFileSync(join(image, 'config.json'), 'utf8')),
  );
  const { fsGroup, sysctls } = pod.spec.securityContext;
  const { securityContext: security } = container;
  if (security.runAsNonRoot && security.runAsUser === 0)
    throw new Error('container has runAsNonRoot and image will run as root');
  return {
    ...rest,
    hostname: pod.metadata.name,
    process: {
      ...main,
      terminal: false,
      // The entry point has two words; the remaining words are default arguments.
      args: [...main.args.slice(0, 2), ...container.args],
      env: [...main.env, ...variablesOf(pod, container)],
      user: { uid: security.runAsUser, gid: security.runAsGroup, additionalGids: [fsGroup] },
      noNewPrivileges: !security.allowPrivilegeEscalation,
      capabilities: Object.fromEntries(Object.keys(main.capabilities).map((set) => [set, []])),
    },
    root: { path: join(image, 'rootfs'), readonly: security.readOnlyRootFilesystem },
    mounts: [
      ...rest.mounts.filter(({ destination }) => destination !== '/tmp'),
      bind('/etc/hosts', '/etc/hosts', true),
      ...container.volumeMounts.map(({ name, mountPath, readOnly }) =>
        bind(volumeFolder(pod, name, podFolder), mountPath, readOnly),
      ),
    ],
    linux: {
      ...rest.linux,
      namespaces: [
        ...['pid', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type })),
        { type: 'network', path: `/proc/${process.pid}/ns/net` },
      ],
      sysctl: Object.fromEntries(sysctls.map(({ name, value }) => [name, value])),
      resources: { memory: { limit: bytesOf(container.resources.limits.memory) } },
    },
  };
}

function bind(source: string, destination: string, readOnly: boolean): object {
  const options = ['bind', 'nosuid', 'nodev', readOnly ? 'ro' : 'rw'];
  return { destination, type: 'bind', source, options };
}

/** Expands `$(NAME)` as a kubelet does, from the preceding variables. */
function variablesOf(pod: Pod, container: PodContainer): readonly string[] {
  const known = new Map<string, string>(Object.entries(KUBERNETES));
  const fields = {
    'metadata.name': pod.metadata.name,
    'metadata.namespace': pod.metadata.namespace,
    'metadata.uid': pod.metadata.uid,
  };
  for (const { name, value, valueFrom } of container.env) {
    const expanded = value.replaceAll(/\$\((\w+)\)/g, (all, other: string) => known.get(other) ?? all);
    known.set(name, valueFrom === undefined ? expanded : fields[valueFrom.fieldRef.fieldPath]);
  }
  return [...known].map(([name, value]) => `${name}=${value}`);
}

/** Returns the double's folder for a volume. Like a kubelet, changes the group of the folder to the pod's group. */
function volumeFolder(pod: Pod, name: string, podFolder: string): string {
  const volume = pod.spec.volumes.find((each) => each.name === name);
  const { fsGroup } = pod.spec.securityContext;
  if (volume?.persistentVolumeClaim !== undefined) {
    const claims = join(podFolder, '..', '..', 'claims', pod.metadata.namespace);
    return givenTo(fsGroup, join(claims, volume.persistentVolumeClaim.claimName));
  }
  const folder = join(podFolder, 'volumes', name);
  if (volume?.emptyDir !== undefined) return givenTo(fsGroup, folder);
  if (volume?.projected === undefined) throw new Error(`volume ${name} is of a kind that is not understood`);
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (lstatSync(path).isSymbolicLink()) continue;
    chownSync(path, 0, fsGroup);
    chmodSync(path, entry.isFile() ? volume.projected.defaultMode : 0o750);
  }
  return givenTo(fsGroup, folder);
}

function givenTo(group: number, folder: string): string {
  chownSync(folder, 0, group);
  chmodSync(folder, 0o2775);
  return folder;
}

function bytesOf(quantity: string): number {
  const [, number = '', unit = ''] = /^(\d+)(Mi|Gi)$/.exec(quantity) ?? [];
  if (number === '') throw new Error(`memory ${quantity} is not understood`);
  return Number(number) * 1024 ** (unit === 'Mi' ? 2 : 3);
}

if (import.meta.main) {
  const [, , file = ''] = process.argv;
  process.stderr.write(`container in ${dirname(process.env['HOME'] ?? '')}\n`);
  runContainer(JSON.parse(readFileSync(file, 'utf8')) as PodContainerSettings);
}

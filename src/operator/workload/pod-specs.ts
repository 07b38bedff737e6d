/** Common parts of all pods that the operator deploys: the stock tailscale container, and secure defaults. Pure. */
import type {
  V1Container,
  V1EnvVar,
  V1PersistentVolumeClaim,
  V1PodSpec,
  V1Probe,
  V1SecurityContext,
  V1StatefulSetSpec,
  V1TopologySpreadConstraint,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import { metadataOf } from './object-specs.ts';
import type { ContainerOverrides } from './schema.ts';
import type { NodeGroup, SpecOptions } from './workload.ts';

/** Type of a plain object with the same fields as a TypeScript class of the Kubernetes client. */
export type Plain<T> = { [Key in keyof T]: T[Key] };

export interface DesiredStatefulSet extends DesiredObject {
  readonly spec: Plain<V1StatefulSetSpec>;
}

type TextMap = Readonly<Record<string, string>>;

/** The parts of a StatefulSet that depend on the kind of resource. */
interface StatefulSetParts {
  /** Labels of the StatefulSet. The labels of the group override labels with the same keys. */
  readonly labels?: TextMap;
  readonly annotations?: TextMap;
  /** Immutable labels that select the pods. Default: the labels of the group. */
  readonly selector?: TextMap;
  readonly podLabels?: TextMap;
  readonly podAnnotations?: TextMap;
  readonly podSpec: Omit<V1PodSpec, 'serviceAccountName'>;
  /** Further fields of the spec. */
  readonly more?: Partial<V1StatefulSetSpec>;
}

/**
 * Returns the StatefulSet of a group. The selector contains only the operator's labels, so users can change other
 * labels of the pods.
 */
export function groupStatefulSet(
  group: NodeGroup,
  options: Pick<SpecOptions, 'namespace'>,
  parts: StatefulSetParts,
): DesiredStatefulSet {
  const { selector = group.labels, podLabels, podAnnotations, podSpec, more } = parts;
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(group, options, group.name, parts),
    spec: {
      replicas: group.replicas,
      podManagementPolicy: 'Parallel',
      selector: { matchLabels: { ...selector } },
      template: {
        metadata: {
          labels: { ...podLabels, ...group.labels, ...selector },
          annotations: { ...podAnnotations },
        },
        spec: { serviceAccountName: group.account.name, ...podSpec },
      },
      ...more,
    },
  };
}

/** Returns the fields that have a value. */
export function defined<Value>(fields: Readonly<Record<string, Value>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

/** Directory of tailscaled's socket in the shared volume. */
export const SOCKET_DIRECTORY = '/run/tailscale';
/** Path of tailscaled's socket. */
export const SOCKET = `${SOCKET_DIRECTORY}/sock`;
/** User ID in the image of the reference (Tailscale's tsrecorder), so that existing volumes stay readable. */
export const USER = 65_532;

/** Security context of the restricted pod security standard. */
export const LOCKED_DOWN: V1SecurityContext = {
  runAsNonRoot: true,
  runAsUser: USER,
  runAsGroup: USER,
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ['ALL'] },
};

const SERVE_DIRECTORY = '/etc/tailcast';
const SERVE_ANNOTATION = 'tailcast.dev/serve-config';

/**
 * Returns the pod annotation with a serve configuration. The configuration file is mounted from this annotation, so a
 * change reaches the running pod.
 */
export function serveAnnotation(config: object): TextMap {
  return { [SERVE_ANNOTATION]: JSON.stringify(config) };
}

export function httpProbe(
  path: string,
  port: number,
  periodSeconds: number,
  failureThreshold: number,
): V1Probe {
  return { httpGet: { path, port }, timeoutSeconds: 3, periodSeconds, failureThreshold };
}

/**
 * Returns readiness and liveness probes, which connect to the operations listener of the tailcast container. Without
 * this listener, the container has no probes.
 */
function opsProbes(
  env: readonly V1EnvVar[],
): Pick<V1Container, 'ports' | 'readinessProbe' | 'livenessProbe'> {
  const listen = env.find(({ name }) => name === 'TAILCAST_OPS_LISTEN')?.value ?? '';
  const digits = /:(\d{1,5})$/.exec(listen)?.[1];
  if (digits === undefined) return {};
  const port = Number(digits);
  return {
    ports: [{ name: 'ops', containerPort: port }],
    readinessProbe: httpProbe('/readyz', port, 5, 2),
    livenessProbe: httpProbe('/livez', port, 10, 6),
  };
}

/**
 * Returns the problem with a listen address in the user's variables, or undefined. Listeners need a fixed port, to
 * which probes, Services and peers connect.
 */
export function problemOfListeners(
  env: Iterable<readonly [name: string, value: string]>,
): string | undefined {
  for (const [name, value] of env) {
    const digits = /^TAILCAST_(?:(?:\w+_)?LISTEN|PROXY_PROTOCOL)$/.test(name)
      ? /:(\d+)$/.exec(value)?.[1]
      : undefined;
    const port = Number(digits ?? 1);
    if (port < 1 || port > 65_535)
      return `${name}: Invalid value: ${JSON.stringify(value)}: a port from 1 to 65535 is required`;
  }
  return undefined;
}

/** Returns a container that runs a role of tailcast, with the name of the role. */
export function roleContainer(
  role: string,
  image: string,
  env: readonly V1EnvVar[],
  volumeMounts: V1VolumeMount[],
): V1Container {
  return {
    name: role,
    image,
    args: [role],
    env: [...env],
    ...opsProbes(env),
    securityContext: LOCKED_DOWN,
    volumeMounts,
  };
}

/** Returns environment variables, with their names as keys of `values`. */
export function variables(values: TextMap): readonly V1EnvVar[] {
  return Object.entries(values).map(([name, value]) => ({ name, value }));
}

/** Returns a container with the settings of the user, except the environment variables. */
export function withOverrides(
  container: Plain<V1Container>,
  { image, imagePullPolicy, resources, securityContext }: Omit<ContainerOverrides, 'env'>,
): V1Container {
  return {
    ...container,
    ...(image === '' ? {} : { image }),
    ...(imagePullPolicy === '' ? {} : { imagePullPolicy }),
    ...defined({ resources, securityContext }),
  };
}

export function podFacts(): readonly V1EnvVar[] {
  return [
    { name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
    { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
  ];
}

/** Returns a constraint that spreads replicas over different machines, if possible. */
export function spreadOver(labels: Readonly<Record<string, string>>): V1TopologySpreadConstraint[] {
  return [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'ScheduleAnyway',
      labelSelector: { matchLabels: { ...labels } },
    },
  ];
}

export interface TailscaleContainer {
  /** Hostname of the node. It may contain variables such as `$(POD_NAME)`. */
  readonly hostname: string;
  /** True if the pod has an annotation with a serve configuration ({@link serveAnnotation}). */
  readonly serve: boolean;
  readonly healthPort: number;
  readonly extra?: readonly V1EnvVar[];
}

/**
 * Returns the sidecar with tailscaled in userspace mode. The tailscale container starts before the tailcast container
 * and stops after it, so that sessions can drain. The first login of tailscaled uses the auth key in its state Secret.
 * The container then removes the key from the Secret.
 */
export function tailscaleContainer(
  { hostname, serve, healthPort, extra }: TailscaleContainer,
  { tailscaleImage, loginServer }: Pick<SpecOptions, 'tailscaleImage' | 'loginServer'>,
): V1Container {
  return {
    name: 'tailscale',
    image: tailscaleImage,
    restartPolicy: 'Always',
    env: [
      ...podFacts(),
      ...(extra ?? []),
      { name: 'TS_KUBE_SECRET', value: '$(POD_NAME)' },
      { name: 'TS_HOSTNAME', value: hostname },
      { name: 'TS_USERSPACE', value: 'true' },
      { name: 'TS_AUTH_ONCE', value: 'true' },
      { name: 'TS_SOCKET', value: SOCKET },
      { name: 'TS_EXTRA_ARGS', value: `--login-server=${loginServer}` },
      { name: 'TS_ENABLE_HEALTH_CHECK', value: 'true' },
      { name: 'TS_LOCAL_ADDR_PORT', value: `[::]:${healthPort}` },
      ...(serve ? [{ name: 'TS_SERVE_CONFIG', value: `${SERVE_DIRECTORY}/serve.json` }] : []),
    ],
    securityContext: LOCKED_DOWN,
    readinessProbe: httpProbe('/healthz', healthPort, 5, 2),
    volumeMounts: [
      { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
      { name: 'tailscale-tmp', mountPath: '/tmp' },
      ...(serve ? [{ name: 'serve', mountPath: SERVE_DIRECTORY, readOnly: true }] : []),
    ],
  };
}

/**
 * Returns the volumes of the tailscale container, the volume that both containers share, and `/tmp` of the tailcast
 * container.
 */
export function tailscaleVolumes(serve: boolean): V1Volume[] {
  const item = {
    path: 'serve.json',
    fieldRef: { fieldPath: `metadata.annotations['${SERVE_ANNOTATION}']` },
  };
  return [
    { name: 'tailscale', emptyDir: {} },
    { name: 'tmp', emptyDir: {} },
    { name: 'tailscale-tmp', emptyDir: {} },
    ...(serve ? [{ name: 'serve', downwardAPI: { items: [item] } }] : []),
  ];
}

/** Returns the template from which each replica gets its PersistentVolumeClaim. */
export function claimTemplate(
  name: string,
  labels: Readonly<Record<string, string>>,
  size: string,
  storageClass: string | undefined,
): V1PersistentVolumeClaim {
  return {
    metadata: { name, labels: { ...labels } },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: size } },
      ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
    },
  };
}

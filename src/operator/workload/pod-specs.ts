/** What the pods of every kind of resource have: the stock tailscale container, and defaults that are safe. Pure. */
import type {
  V1Container,
  V1EnvVar,
  V1PersistentVolumeClaim,
  V1Probe,
  V1SecurityContext,
  V1StatefulSetSpec,
  V1TopologySpreadConstraint,
  V1Volume,
} from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import type { SpecOptions } from './workload.ts';

/** What cannot be changed on a StatefulSet that exists. */
export interface ImmutableParts {
  readonly podManagementPolicy: string;
}

export interface DesiredStatefulSet extends DesiredObject {
  readonly spec: V1StatefulSetSpec;
}

export const SOCKET_DIRECTORY = '/run/tailscale';
export const SOCKET = `${SOCKET_DIRECTORY}/sock`;
/** The user of the reference's image, so that volumes it wrote stay readable. */
export const USER = 65_532;

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

/** An annotation of the pod that holds a serve configuration: the file comes from it, so a change reaches the pod. */
export function serveAnnotation(config: object): Readonly<Record<string, string>> {
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

/** Readiness and liveness on the ops listener of our container; the user may move that or turn it off. */
export function opsProbes(
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

export function podFacts(): readonly V1EnvVar[] {
  return [
    { name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
    { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
  ];
}

/** Replicas on different machines where that is possible. */
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
  /** May name variables: `$(POD_NAME)`. */
  readonly hostname: string;
  /** Whether the pod has a {@link serveAnnotation}. */
  readonly serve: boolean;
  readonly healthPort: number;
  readonly extra?: readonly V1EnvVar[];
}

/**
 * tailscaled in userspace mode, as a sidecar that starts before our container and ends after it, so that what runs can
 * drain. It logs in once, with the key that the operator puts into its state Secret, and removes the key afterwards.
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

/** The volumes of the tailscale container and the one that both share. */
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

/** A claim template for every replica. */
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

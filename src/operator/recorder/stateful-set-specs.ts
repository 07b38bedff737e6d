/**
 * The StatefulSet of a Recorder: the stock tailscale container, and beside it ours, which asks tailscaled over the
 * LocalAPI socket who uploads. Pure. How the fields of the resource map to it: `docs/operator.md`.
 */
import type {
  V1Container,
  V1EnvVar,
  V1PersistentVolumeClaim,
  V1PodSecurityContext,
  V1PodSpec,
  V1Probe,
  V1SecurityContext,
  V1StatefulSetSpec,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import { storageOf, type Recorder } from './resource.ts';
import { baseLabels, metadataOf, serviceAccountName, type SpecOptions } from './specs.ts';

/** The port at which clients look for a recorder. */
const UPLOAD_PORT = 80;
const OPS_PORT = 9003;
const TAILSCALE_HEALTH_PORT = 9002;
const SOCKET_DIRECTORY = '/run/tailscale';
const SOCKET = `${SOCKET_DIRECTORY}/sock`;
const SERVE_DIRECTORY = '/etc/tailcast';
const SERVE_ANNOTATION = 'tailcast/serve-config';
const DATA_DIRECTORY = '/data';
/** The user of the reference's image, so that volumes it wrote stay readable. */
const USER = 65_532;
/** Running uploads may go on this long; then the container has 15 s to close them well. */
const DRAIN_SECONDS = 45;
const GRACE_SECONDS = 60;

/** What cannot be changed on a StatefulSet that exists. */
export interface ImmutableParts {
  readonly podManagementPolicy: string;
}

export interface DesiredStatefulSet extends DesiredObject {
  readonly spec: V1StatefulSetSpec;
}

/**
 * The StatefulSet of a Recorder.
 *
 * Nothing in its pod template depends on the number of replicas, so scaling restarts no pod, and its selector is made
 * of the fixed labels only, so pod labels can change.
 *
 * @param existing immutable parts of the StatefulSet that is there, which are kept.
 */
export function statefulSet(
  recorder: Recorder,
  options: SpecOptions,
  existing: ImmutableParts = { podManagementPolicy: 'Parallel' },
): DesiredStatefulSet {
  const { statefulSet: wanted, replicas } = recorder.spec;
  const labels = baseLabels(recorder.metadata.name);
  const annotations = {
    ...wanted.pod.annotations,
    ...(recorder.spec.enableUI ? { [SERVE_ANNOTATION]: SERVE_CONFIG } : {}),
  };
  const claims = claimTemplates(recorder);
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(recorder, options, recorder.metadata.name, {
      labels: wanted.labels,
      annotations: wanted.annotations,
    }),
    spec: {
      replicas,
      podManagementPolicy: existing.podManagementPolicy,
      selector: { matchLabels: { ...labels } },
      template: {
        metadata: {
          labels: { ...wanted.pod.labels, ...labels },
          ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
        },
        spec: podSpec(recorder, options),
      },
      ...(claims.length === 0
        ? {}
        : {
            volumeClaimTemplates: claims,
            // Recordings are evidence: whoever wants the volumes gone deletes them.
            persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Retain', whenScaled: 'Retain' },
          }),
    },
  };
}

/** True when the image can only be the reference's recorder, which does not run beside a tailscale container. */
export function isForeignImage(image: string): boolean {
  const path = image.split('@', 1)[0] ?? '';
  const last = path.slice(path.lastIndexOf('/') + 1);
  return last.split(':', 1)[0] === 'tsrecorder';
}

function podSpec(recorder: Recorder, options: SpecOptions): V1PodSpec {
  const { pod } = recorder.spec.statefulSet;
  return {
    serviceAccountName: serviceAccountName(recorder),
    terminationGracePeriodSeconds: GRACE_SECONDS,
    securityContext: podSecurity(pod.securityContext),
    initContainers: [tailscaleContainer(recorder, options)],
    containers: [recorderContainer(recorder, options)],
    volumes: volumes(recorder),
    ...(pod.affinity === undefined ? spread(recorder) : { affinity: pod.affinity }),
    ...(pod.imagePullSecrets === undefined ? {} : { imagePullSecrets: pod.imagePullSecrets }),
    ...(pod.nodeSelector === undefined ? {} : { nodeSelector: pod.nodeSelector }),
    ...(pod.tolerations === undefined ? {} : { tolerations: pod.tolerations }),
  };
}

/** Port 80 is where clients look for a recorder; this sysctl lets an unprivileged process listen there. */
function podSecurity(wanted: V1PodSecurityContext | undefined): V1PodSecurityContext {
  const defaults: V1PodSecurityContext = {
    fsGroup: USER,
    seccompProfile: { type: 'RuntimeDefault' },
    sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: String(UPLOAD_PORT) }],
  };
  return Object.assign(defaults, wanted);
}

const LOCKED_DOWN: V1SecurityContext = {
  runAsNonRoot: true,
  runAsUser: USER,
  runAsGroup: USER,
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ['ALL'] },
};

/** Replicas on different nodes where that is possible. Whoever names an affinity has decided that for himself. */
function spread(recorder: Recorder): Pick<V1PodSpec, 'topologySpreadConstraints'> {
  return {
    topologySpreadConstraints: [
      {
        maxSkew: 1,
        topologyKey: 'kubernetes.io/hostname',
        whenUnsatisfiable: 'ScheduleAnyway',
        labelSelector: { matchLabels: { ...baseLabels(recorder.metadata.name) } },
      },
    ],
  };
}

function recorderContainer(recorder: Recorder, options: SpecOptions): V1Container {
  const { container } = recorder.spec.statefulSet.pod;
  const storage = storageOf(recorder);
  const image =
    container.image === '' || isForeignImage(container.image) ? options.recorderImage : container.image;
  const env = recorderEnvironment(recorder, options);
  const ops = opsPort(env);
  return {
    name: 'recorder',
    image,
    ...(container.imagePullPolicy === '' ? {} : { imagePullPolicy: container.imagePullPolicy }),
    args: ['recorder'],
    env: [...env],
    ...(storage.kind === 's3' && storage.credentials !== ''
      ? { envFrom: [{ secretRef: { name: storage.credentials } }] }
      : {}),
    ...(ops === undefined ? {} : probes(ops)),
    ...(container.resources === undefined ? {} : { resources: container.resources }),
    securityContext: container.securityContext ?? LOCKED_DOWN,
    volumeMounts: [
      { name: 'data', mountPath: DATA_DIRECTORY },
      { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
      { name: 'tmp', mountPath: '/tmp' },
    ],
  };
}

/**
 * The variables of our container. The reference's names come first and are understood: what the user sets under them
 * decides the value of ours. A variable that the user names is the user's, whoever else would set it.
 */
function recorderEnvironment(recorder: Recorder, options: SpecOptions): readonly V1EnvVar[] {
  const { enableUI, statefulSet: wanted } = recorder.spec;
  const users = new Map(wanted.pod.container.env.map(({ name, value }) => [name, value]));
  const storage = storageOf(recorder);
  const s3 = storage.kind === 's3';
  const names = {
    TSRECORDER_HOSTNAME: '$(POD_NAME)',
    TSRECORDER_LOGIN_SERVER: options.loginServer,
    TSRECORDER_DST: s3 ? `s3://${storage.endpoint}` : `${DATA_DIRECTORY}/recordings`,
    ...(s3 ? { TSRECORDER_BUCKET: storage.bucket } : {}),
    ...(enableUI ? { TSRECORDER_UI: 'true' } : {}),
  };
  const effective = new Map([...Object.entries(names), ...users]);
  const destination = effective.get('TSRECORDER_DST') ?? '';
  const hosts = [
    '$(POD_NAME)',
    ...(options.tailnetDomain === undefined ? [] : [`$(POD_NAME).${options.tailnetDomain}`]),
  ];
  const ours = {
    TAILCAST_LISTEN: `127.0.0.1:${UPLOAD_PORT}`,
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_UI: effective.get('TSRECORDER_UI') === 'true' ? 'true' : 'false',
    TAILCAST_HOSTS: hosts.join(','),
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
    TAILCAST_DRAIN_SECONDS: String(DRAIN_SECONDS),
    ...storeVariables(destination, effective.get('TSRECORDER_BUCKET') ?? ''),
  };
  const fixed = [...Object.entries(names), ...Object.entries(ours)]
    .filter(([name]) => !users.has(name))
    .map(([name, value]) => ({ name, value }));
  return [
    ...podFacts().filter(({ name }) => !users.has(name)),
    ...fixed,
    ...[...users].map(([name, value]) => ({ name, value })),
  ];
}

function podFacts(): readonly V1EnvVar[] {
  return [
    { name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
    { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
  ];
}

/** `s3://endpoint` and a bucket, or a directory, in the words of our recorder. */
function storeVariables(destination: string, bucket: string): Readonly<Record<string, string>> {
  const endpoint = /^s3:\/\/(.*)$/.exec(destination)?.[1];
  if (endpoint === undefined) return { TAILCAST_STORE: destination };
  return {
    TAILCAST_STORE: `s3://${bucket}`,
    TAILCAST_S3_ENDPOINT: endpoint.includes('://') ? endpoint : `https://${endpoint}`,
    TAILCAST_SPOOL: `${DATA_DIRECTORY}/spool`,
  };
}

/** Where the container answers probes; the user may move that or turn it off. */
function opsPort(env: readonly V1EnvVar[]): number | undefined {
  const listen = env.find(({ name }) => name === 'TAILCAST_OPS_LISTEN')?.value ?? '';
  const port = /:(\d{1,5})$/.exec(listen)?.[1];
  return port === undefined ? undefined : Number(port);
}

function probes(port: number): Pick<V1Container, 'ports' | 'readinessProbe' | 'livenessProbe'> {
  return {
    ports: [{ name: 'ops', containerPort: port }],
    readinessProbe: httpProbe('/readyz', port, 5, 2),
    livenessProbe: httpProbe('/livez', port, 10, 6),
  };
}

function httpProbe(path: string, port: number, periodSeconds: number, failureThreshold: number): V1Probe {
  return { httpGet: { path, port }, timeoutSeconds: 3, periodSeconds, failureThreshold };
}

/**
 * tailscaled in userspace mode, as a sidecar that starts before our container and ends after it, so that uploads can
 * drain. It logs in once, with the key that the operator puts into its state Secret, and removes the key afterwards.
 */
function tailscaleContainer(recorder: Recorder, options: SpecOptions): V1Container {
  const { enableUI } = recorder.spec;
  const variables: readonly V1EnvVar[] = [
    ...podFacts(),
    { name: 'TS_KUBE_SECRET', value: '$(POD_NAME)' },
    { name: 'TS_HOSTNAME', value: '$(POD_NAME)' },
    { name: 'TS_USERSPACE', value: 'true' },
    { name: 'TS_AUTH_ONCE', value: 'true' },
    { name: 'TS_SOCKET', value: SOCKET },
    { name: 'TS_EXTRA_ARGS', value: `--login-server=${options.loginServer}` },
    { name: 'TS_ENABLE_HEALTH_CHECK', value: 'true' },
    { name: 'TS_LOCAL_ADDR_PORT', value: `[::]:${TAILSCALE_HEALTH_PORT}` },
    ...(enableUI ? [{ name: 'TS_SERVE_CONFIG', value: `${SERVE_DIRECTORY}/serve.json` }] : []),
  ];
  const mounts: readonly V1VolumeMount[] = [
    { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
    { name: 'tailscale-tmp', mountPath: '/tmp' },
    ...(enableUI ? [{ name: 'serve', mountPath: SERVE_DIRECTORY, readOnly: true }] : []),
  ];
  return {
    name: 'tailscale',
    image: options.tailscaleImage,
    restartPolicy: 'Always',
    env: [...variables],
    securityContext: LOCKED_DOWN,
    readinessProbe: httpProbe('/healthz', TAILSCALE_HEALTH_PORT, 5, 2),
    volumeMounts: [...mounts],
  };
}

/** HTTPS on the node's own name, in front of the player. containerboot fills the name in. */
const SERVE_CONFIG = JSON.stringify({
  TCP: { 443: { HTTPS: true } },
  Web: { '${TS_CERT_DOMAIN}:443': { Handlers: { '/': { Proxy: `http://127.0.0.1:${UPLOAD_PORT}` } } } },
});

function volumes(recorder: Recorder): V1Volume[] {
  const serve = {
    path: 'serve.json',
    fieldRef: { fieldPath: `metadata.annotations['${SERVE_ANNOTATION}']` },
  };
  return [
    ...(storageOf(recorder).kind === 'volume' ? [] : [{ name: 'data', emptyDir: {} }]),
    { name: 'tailscale', emptyDir: {} },
    { name: 'tmp', emptyDir: {} },
    { name: 'tailscale-tmp', emptyDir: {} },
    ...(recorder.spec.enableUI ? [{ name: 'serve', downwardAPI: { items: [serve] } }] : []),
  ];
}

function claimTemplates(recorder: Recorder): V1PersistentVolumeClaim[] {
  const storage = storageOf(recorder);
  if (storage.kind !== 'volume') return [];
  return [
    {
      metadata: { name: 'data', labels: { ...baseLabels(recorder.metadata.name) } },
      spec: {
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: storage.size } },
        ...(storage.storageClass === undefined ? {} : { storageClassName: storage.storageClass }),
      },
    },
  ];
}

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
  V1Volume,
} from '@kubernetes/client-node';
import type { SpecOptions } from '../nodes/node-group.ts';
import {
  LOCKED_DOWN,
  SOCKET,
  SOCKET_DIRECTORY,
  USER,
  claimTemplate,
  opsProbes,
  podFacts,
  serveAnnotation,
  spreadOver,
  tailscaleContainer,
  tailscaleVolumes,
  type DesiredStatefulSet,
  type ImmutableParts,
} from '../nodes/pods.ts';
import { metadataOf } from '../nodes/specs.ts';
import { recorderGroup } from './group.ts';
import { searchServerOf, storageOf, type Recorder } from './resource.ts';

/** The port at which clients look for a recorder. */
const UPLOAD_PORT = 80;
const OPS_PORT = 9003;
const TAILSCALE_HEALTH_PORT = 9002;
const DATA_DIRECTORY = '/data';
const SEARCH_DIRECTORY = '/etc/tailcast/search';
/** Keys of the Secrets that annotations name, and the files that they become. */
const SEARCH_CREDENTIALS = 'credentials';
const SEARCH_CA = 'ca.crt';
/** Running uploads may go on this long; then the container has 15 s to close them well. */
const DRAIN_SECONDS = 45;
const GRACE_SECONDS = 60;

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
  const group = recorderGroup(recorder, options);
  const { labels } = group;
  const annotations = {
    ...wanted.pod.annotations,
    ...(recorder.spec.enableUI ? serveAnnotation(serveConfig(recorder)) : {}),
  };
  const claims = claimTemplates(recorder, labels);
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(group, options, group.name, {
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
  const { account, labels } = recorderGroup(recorder, options);
  const serve = recorder.spec.enableUI;
  return {
    serviceAccountName: account.name,
    terminationGracePeriodSeconds: GRACE_SECONDS,
    securityContext: podSecurity(pod.securityContext),
    initContainers: [
      tailscaleContainer({ hostname: '$(POD_NAME)', serve, healthPort: TAILSCALE_HEALTH_PORT }, options),
    ],
    containers: [recorderContainer(recorder, options)],
    volumes: volumes(recorder),
    // Whoever names an affinity has decided for himself where replicas go.
    ...(pod.affinity === undefined
      ? { topologySpreadConstraints: spreadOver(labels) }
      : { affinity: pod.affinity }),
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

function recorderContainer(recorder: Recorder, options: SpecOptions): V1Container {
  const { container } = recorder.spec.statefulSet.pod;
  const storage = storageOf(recorder);
  const image =
    container.image === '' || isForeignImage(container.image) ? options.recorderImage : container.image;
  const env = recorderEnvironment(recorder, options);
  return {
    name: 'recorder',
    image,
    ...(container.imagePullPolicy === '' ? {} : { imagePullPolicy: container.imagePullPolicy }),
    args: ['recorder'],
    env: [...env],
    ...(storage.kind === 's3' && storage.credentials !== ''
      ? { envFrom: [{ secretRef: { name: storage.credentials } }] }
      : {}),
    ...opsProbes(env),
    ...(container.resources === undefined ? {} : { resources: container.resources }),
    securityContext: container.securityContext ?? LOCKED_DOWN,
    volumeMounts: [
      { name: 'data', mountPath: DATA_DIRECTORY },
      { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
      { name: 'tmp', mountPath: '/tmp' },
      ...searchVolumes(recorder).map(({ name }) => ({ name, mountPath: SEARCH_DIRECTORY, readOnly: true })),
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
  // The reference's S3 client takes the region from these; ours is told it.
  const region = users.get('AWS_REGION') ?? users.get('AWS_DEFAULT_REGION');
  const hosts = [
    '$(POD_NAME)',
    ...(options.tailnetDomain === undefined ? [] : [`$(POD_NAME).${options.tailnetDomain}`]),
  ];
  const ours = {
    TAILCAST_LISTEN: `127.0.0.1:${UPLOAD_PORT}`,
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_UI: effective.get('TSRECORDER_UI') === 'true' ? 'true' : 'false',
    TAILCAST_HOSTS: hosts.join(','),
    ...(options.recorderUploaders.length === 0
      ? {}
      : { TAILCAST_UPLOADERS: options.recorderUploaders.join(',') }),
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
    TAILCAST_DRAIN_SECONDS: String(DRAIN_SECONDS),
    ...storeVariables(destination, effective.get('TSRECORDER_BUCKET') ?? ''),
    ...(region === undefined ? {} : { TAILCAST_S3_REGION: region }),
    ...searchVariables(recorder),
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

function searchVariables(recorder: Recorder): Readonly<Record<string, string>> {
  const server = searchServerOf(recorder);
  if (server === undefined) return {};
  return {
    TAILCAST_SEARCH: 'true',
    TAILCAST_SEARCH_URL: server.url,
    ...(server.credentials === undefined
      ? {}
      : { TAILCAST_SEARCH_CREDENTIALS: `${SEARCH_DIRECTORY}/${SEARCH_CREDENTIALS}` }),
    ...(server.ca === undefined ? {} : { TAILCAST_SEARCH_CA: `${SEARCH_DIRECTORY}/${SEARCH_CA}` }),
  };
}

/** One with a file of each Secret that the search needs; none where it needs none. */
function searchVolumes(recorder: Recorder): readonly V1Volume[] {
  const server = searchServerOf(recorder);
  const sources = [
    { name: server?.credentials, key: SEARCH_CREDENTIALS },
    { name: server?.ca, key: SEARCH_CA },
  ].flatMap(({ name, key }) =>
    name === undefined ? [] : [{ secret: { name, items: [{ key, path: key }] } }],
  );
  return sources.length === 0 ? [] : [{ name: 'search', projected: { defaultMode: 0o440, sources } }];
}

/** HTTPS on the node's own name, in front of the player. containerboot fills the name in. */
function serveConfig(recorder: Recorder): object {
  const proxy = `http://127.0.0.1:${readPort(recorder)}`;
  return {
    TCP: { 443: { HTTPS: true } },
    Web: { '${TS_CERT_DOMAIN}:443': { Handlers: { '/': { Proxy: proxy } } } },
  };
}

/** Where our container serves viewers: as the variable says that the user may set, or where it takes uploads. */
function readPort(recorder: Recorder): number {
  const { env } = recorder.spec.statefulSet.pod.container;
  const listen = env.find(({ name }) => name === 'TAILCAST_READ_LISTEN')?.value ?? '';
  return Number(/:(\d{1,5})$/.exec(listen)?.[1] ?? UPLOAD_PORT);
}

function volumes(recorder: Recorder): V1Volume[] {
  return [
    ...(storageOf(recorder).kind === 'volume' ? [] : [{ name: 'data', emptyDir: {} }]),
    ...tailscaleVolumes(recorder.spec.enableUI),
    ...searchVolumes(recorder),
  ];
}

function claimTemplates(
  recorder: Recorder,
  labels: Readonly<Record<string, string>>,
): V1PersistentVolumeClaim[] {
  const storage = storageOf(recorder);
  if (storage.kind !== 'volume') return [];
  return [claimTemplate('data', labels, storage.size, storage.storageClass)];
}

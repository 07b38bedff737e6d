/**
 * The StatefulSet of a Recorder: the stock tailscale container and the recorder. The recorder identifies uploading
 * nodes with queries to the LocalAPI socket of tailscaled. Pure. `docs/operator.md` documents how the fields of the
 * Recorder are mapped.
 */
import type {
  V1Container,
  V1EnvVar,
  V1PodSecurityContext,
  V1PodSpec,
  V1Volume,
} from '@kubernetes/client-node';
import type { SpecOptions } from '../workload/workload.ts';
import {
  SOCKET,
  SOCKET_DIRECTORY,
  USER,
  claimTemplate,
  defined,
  groupStatefulSet,
  podFacts,
  roleContainer,
  serveAnnotation,
  spreadOver,
  tailscaleContainer,
  tailscaleVolumes,
  variables,
  withOverrides,
  type DesiredStatefulSet,
  type Plain,
} from '../workload/pod-specs.ts';
import { EVIDENCE_KEY, evidenceSecretName } from './evidence-key.ts';
import type { DesiredRecorder, RecorderSearchServer } from './recorder.ts';

/** The port on which clients expect a recorder. */
const UPLOAD_PORT = 80;
/**
 * Listen address for viewers. Other nodes cannot reach this address through tailscaled, which forwards only to
 * 127.0.0.1.
 */
const VIEWER_LISTEN = '127.0.0.77:8080';
const OPS_PORT = 9003;
const TAILSCALE_HEALTH_PORT = 9002;
const DATA_DIRECTORY = '/data';
/** Directory below which Secrets are mounted. */
const SECRETS_DIRECTORY = '/etc/tailcast';
const SEARCH_DIRECTORY = `${SECRETS_DIRECTORY}/search`;
/** Fields of the Secrets for the search server. The mounted files have the same names. */
const SEARCH_CREDENTIALS = 'credentials';
const SEARCH_CA = 'ca.crt';
/**
 * Time in seconds in which running uploads can finish. Afterwards, the container has 15 s to close the remaining
 * uploads.
 */
const DRAIN_SECONDS = 45;
const GRACE_SECONDS = 60;

/**
 * Returns the StatefulSet of a Recorder. The pod template does not depend on the number of replicas, so scaling
 * restarts no pod.
 */
export function statefulSet(recorder: DesiredRecorder, options: SpecOptions): DesiredStatefulSet {
  const { statefulSet: wanted, group, storage } = recorder;
  return groupStatefulSet(group, options, {
    labels: wanted.labels,
    annotations: wanted.annotations,
    podLabels: wanted.pod.labels,
    podAnnotations: {
      ...wanted.pod.annotations,
      ...(recorder.hasPlayer ? serveAnnotation(serveConfig(recorder)) : {}),
    },
    podSpec: podSpec(recorder, options),
    more:
      storage.kind === 'volume'
        ? {
            volumeClaimTemplates: [claimTemplate('data', group.labels, storage.size, storage.storageClass)],
            // Recordings are evidence, so the volumes are never deleted automatically.
            persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Retain', whenScaled: 'Retain' },
          }
        : {},
  });
}

/**
 * Returns true for the recorder image of the reference (Tailscale's tsrecorder), which cannot run next to a tailscale
 * container.
 */
export function isForeignImage(image: string): boolean {
  const path = image.split('@', 1)[0] ?? '';
  const last = path.slice(path.lastIndexOf('/') + 1);
  return last.split(':', 1)[0] === 'tsrecorder';
}

function podSpec(recorder: DesiredRecorder, options: SpecOptions): V1PodSpec {
  const { group, hasPlayer, storage, search, statefulSet: wanted } = recorder;
  const { affinity, imagePullSecrets, nodeSelector, tolerations, securityContext } = wanted.pod;
  const secrets = [
    ...(storage.kind === 's3' ? [evidenceVolume(group.name)] : []),
    ...(search === undefined ? [] : searchVolumes(search)),
  ];
  return {
    terminationGracePeriodSeconds: GRACE_SECONDS,
    securityContext: podSecurity(securityContext),
    initContainers: [
      tailscaleContainer(
        { hostname: '$(POD_NAME)', serve: hasPlayer, healthPort: TAILSCALE_HEALTH_PORT },
        options,
      ),
    ],
    containers: [recorderContainer(recorder, secrets, options)],
    volumes: [
      ...(storage.kind === 'volume' ? [] : [{ name: 'data', emptyDir: {} }]),
      ...tailscaleVolumes(hasPlayer),
      ...secrets,
    ],
    // An affinity of the user replaces the default spread.
    ...(affinity === undefined ? { topologySpreadConstraints: spreadOver(group.labels) } : { affinity }),
    ...defined({ imagePullSecrets, nodeSelector, tolerations }),
  };
}

/**
 * Returns the security context of the pod. Clients expect a recorder on port 80. The sysctl permits an unprivileged
 * process to listen on this port.
 */
function podSecurity(wanted: V1PodSecurityContext | undefined): V1PodSecurityContext {
  const defaults: V1PodSecurityContext = {
    fsGroup: USER,
    // With the default policy, each start would change the group of all files: this takes minutes for millions of
    // files, and changes their ctime.
    fsGroupChangePolicy: 'OnRootMismatch',
    seccompProfile: { type: 'RuntimeDefault' },
    sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: String(UPLOAD_PORT) }],
  };
  return Object.assign(defaults, wanted);
}

function recorderContainer(
  recorder: DesiredRecorder,
  secrets: readonly V1Volume[],
  options: SpecOptions,
): V1Container {
  const { storage, statefulSet: wanted } = recorder;
  const { container } = wanted.pod;
  const image = isForeignImage(container.image) ? '' : container.image;
  const env = recorderEnvironment(recorder, options);
  const own: Plain<V1Container> = roleContainer('recorder', options.recorderImage, env, [
    { name: 'data', mountPath: DATA_DIRECTORY },
    { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
    { name: 'tmp', mountPath: '/tmp' },
    ...secrets.map(({ name }) => ({ name, mountPath: `${SECRETS_DIRECTORY}/${name}`, readOnly: true })),
  ]);
  const credentials =
    storage.kind === 's3' && storage.credentials !== ''
      ? { envFrom: [{ secretRef: { name: storage.credentials } }] }
      : {};
  return withOverrides({ ...own, ...credentials }, { ...container, image });
}

/**
 * Returns the environment variables of the recorder container. The reference's variables are translated into the
 * variables of tailcast. Variables that the user sets override all others.
 */
function recorderEnvironment(recorder: DesiredRecorder, options: SpecOptions): readonly V1EnvVar[] {
  const { hasPlayer, storage, search, statefulSet: wanted } = recorder;
  const users = new Map(wanted.pod.container.env.map(({ name, value }) => [name, value]));
  const s3 = storage.kind === 's3';
  const names = {
    TSRECORDER_HOSTNAME: '$(POD_NAME)',
    TSRECORDER_LOGIN_SERVER: options.loginServer,
    TSRECORDER_DST: s3 ? `s3://${storage.endpoint}` : `${DATA_DIRECTORY}/recordings`,
    ...(s3 ? { TSRECORDER_BUCKET: storage.bucket } : {}),
    ...(hasPlayer ? { TSRECORDER_UI: 'true' } : {}),
  };
  const effective = new Map([...Object.entries(names), ...users]);
  const destination = effective.get('TSRECORDER_DST') ?? '';
  // The reference's S3 client also reads the region from these variables.
  const region = users.get('AWS_REGION') ?? users.get('AWS_DEFAULT_REGION');
  const hosts = [
    '$(POD_NAME)',
    ...(options.tailnetDomain === undefined ? [] : [`$(POD_NAME).${options.tailnetDomain}`]),
  ];
  const ours = {
    TAILCAST_LISTEN: `127.0.0.1:${UPLOAD_PORT}`,
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_UI: effective.get('TSRECORDER_UI') === 'true' ? 'true' : 'false',
    ...(hasPlayer ? { TAILCAST_PROXY_PROTOCOL: VIEWER_LISTEN } : {}),
    TAILCAST_HOSTS: hosts.join(','),
    ...(options.recorderUploaders.length === 0
      ? {}
      : { TAILCAST_UPLOADERS: options.recorderUploaders.join(',') }),
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
    TAILCAST_DRAIN_SECONDS: String(DRAIN_SECONDS),
    ...storeVariables(destination, effective.get('TSRECORDER_BUCKET') ?? ''),
    ...(region === undefined ? {} : { TAILCAST_S3_REGION: region }),
    ...(s3 ? { TAILCAST_EVIDENCE_KEY: `${SECRETS_DIRECTORY}/evidence/${EVIDENCE_KEY}` } : {}),
    ...(search === undefined ? {} : searchVariables(search)),
  };
  const fixed = [...podFacts(), ...variables({ ...names, ...ours })];
  return [...fixed.filter(({ name }) => !users.has(name)), ...variables(Object.fromEntries(users))];
}

/**
 * Translates the destination of the reference into settings of the recorder. A destination is `s3://endpoint` with a
 * bucket, or a directory.
 */
function storeVariables(destination: string, bucket: string): Readonly<Record<string, string>> {
  const endpoint = /^s3:\/\/(.*)$/.exec(destination)?.[1];
  if (endpoint === undefined) return { TAILCAST_STORE: destination };
  return {
    TAILCAST_STORE: `s3://${bucket}`,
    TAILCAST_S3_ENDPOINT: endpoint.includes('://') ? endpoint : `https://${endpoint}`,
    TAILCAST_SPOOL: `${DATA_DIRECTORY}/spool`,
  };
}

function searchVariables({ url, credentials, ca }: RecorderSearchServer): Readonly<Record<string, string>> {
  return {
    TAILCAST_SEARCH: 'true',
    TAILCAST_SEARCH_URL: url,
    ...(credentials === undefined
      ? {}
      : { TAILCAST_SEARCH_CREDENTIALS: `${SEARCH_DIRECTORY}/${SEARCH_CREDENTIALS}` }),
    ...(ca === undefined ? {} : { TAILCAST_SEARCH_CA: `${SEARCH_DIRECTORY}/${SEARCH_CA}` }),
  };
}

/**
 * Returns the volume with the signing key of all replicas that share a bucket, and with earlier public keys if the
 * administrator has stored them in a Secret. Without a bucket, the recorder creates its key in the spool.
 */
function evidenceVolume(groupName: string): V1Volume {
  const file = (key: string): { key: string; path: string } => ({ key, path: key });
  const sources = [
    { secret: { name: evidenceSecretName(groupName), items: [file(EVIDENCE_KEY)] } },
    { secret: { name: `${groupName}-recorder-keys`, items: [file('recorders.pem')], optional: true } },
  ];
  return { name: 'evidence', projected: { defaultMode: 0o440, sources } };
}

/**
 * Returns a list with one volume, which contains the files of the Secrets that the search needs; an empty list if it
 * needs none.
 */
function searchVolumes({ credentials, ca }: RecorderSearchServer): readonly V1Volume[] {
  const sources = [
    { name: credentials, key: SEARCH_CREDENTIALS },
    { name: ca, key: SEARCH_CA },
  ].flatMap(({ name, key }) =>
    name === undefined ? [] : [{ secret: { name, items: [{ key, path: key }] } }],
  );
  return sources.length === 0 ? [] : [{ name: 'search', projected: { defaultMode: 0o440, sources } }];
}

/**
 * Returns the serve configuration of the player: HTTPS under the node's own name, which containerboot inserts. The
 * PROXY header names the viewer.
 */
function serveConfig({ statefulSet: wanted }: DesiredRecorder): object {
  const { env } = wanted.pod.container;
  const listen = env.find(({ name }) => name === 'TAILCAST_PROXY_PROTOCOL')?.value ?? 'off';
  const TCPForward = listen === 'off' ? VIEWER_LISTEN : listen;
  return { TCP: { 443: { TCPForward, TerminateTLS: '${TS_CERT_DOMAIN}', ProxyProtocol: 2 } } };
}

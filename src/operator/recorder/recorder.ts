/**
 * The `Recorder` custom resource (`tailscale.com/v1alpha1`), parsed once into the values that the operator deploys.
 * Pure. Schema: `deploy/crds/recorder.yaml`.
 */
import type { V1PodSecurityContext } from '@kubernetes/client-node';
import { z } from 'zod';
import { isAnnotationKey, type KubeObject } from '../kube-object.ts';
import { problemOfListeners } from '../workload/pod-specs.ts';
import {
  containerSchema,
  passed,
  podFields,
  metadataSchema,
  statusSchema,
  textMap,
} from '../workload/schema.ts';
import {
  belongsTo,
  groupLabels,
  problemOfName,
  tagsOf,
  type NodeGroup,
  type SpecOptions,
} from '../workload/workload.ts';

/** Annotations for settings without a field in the Recorder. */
export const ANNOTATIONS = {
  /**
   * Size of a PersistentVolumeClaim for each replica, e.g. `50Gi`. With this claim, recordings outlive the pod even
   * without S3.
   */
  volumeSize: 'tailcast.dev/volume-size',
  /** StorageClass of these PersistentVolumeClaims. Default: the default class of the cluster. */
  volumeClass: 'tailcast.dev/volume-class',
  /** URL of an OpenSearch server for the search index. If this annotation is set, the search is enabled. */
  searchUrl: 'tailcast.dev/search-url',
  /** Secret with the credentials for that server in the field `credentials`: user:password or a token, on one line. */
  searchCredentials: 'tailcast.dev/search-credentials',
  /**
   * Secret with the trusted CAs for that server in the field `ca.crt` (PEM). Default: the CAs that Node.js contains.
   */
  searchCa: 'tailcast.dev/search-ca',
} as const;

const podSchema = z
  .object({
    ...podFields,
    labels: textMap,
    annotations: textMap,
    securityContext: passed<V1PodSecurityContext>(),
    serviceAccount: z.object({ name: z.string().default(''), annotations: textMap }).prefault({}),
    container: containerSchema.prefault({}),
  })
  .prefault({});

const s3Schema = z.object({
  endpoint: z.string().default(''),
  bucket: z.string().default(''),
  credentials: z.object({ secret: z.object({ name: z.string().default('') }).prefault({}) }).prefault({}),
});

const recorderSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      enableUI: z.boolean().default(false),
      replicas: z.number().int().min(0).default(1),
      tags: z.array(z.string()).default([]),
      tailnet: z.string().default(''),
      storage: z.object({ s3: s3Schema.optional() }).prefault({}),
      statefulSet: z.object({ labels: textMap, annotations: textMap, pod: podSchema }).prefault({}),
    })
    .prefault({}),
  status: statusSchema,
});

type Resource = z.infer<typeof recorderSchema>;

/** Storage of a Recorder's recordings. */
export type RecorderStorage =
  | { readonly kind: 's3'; readonly endpoint: string; readonly bucket: string; readonly credentials: string }
  | { readonly kind: 'volume'; readonly size: string; readonly storageClass: string | undefined }
  | { readonly kind: 'scratch' };

/** The OpenSearch server of the search index, and the names of the Secrets for it. */
export interface RecorderSearchServer {
  readonly url: string;
  readonly credentials: string | undefined;
  readonly ca: string | undefined;
}

/** All values that the operator derives from a Recorder. */
export interface DesiredRecorder {
  readonly metadata: Resource['metadata'];
  readonly status: Resource['status'];
  readonly tailnet: string;
  readonly group: NodeGroup;
  /** True if the player is served on the tailnet. */
  readonly hasPlayer: boolean;
  readonly storage: RecorderStorage;
  readonly search: RecorderSearchServer | undefined;
  /** Labels, annotations and pod settings for the StatefulSet. */
  readonly statefulSet: Resource['spec']['statefulSet'];
  /** Reason why this Recorder cannot be deployed; undefined if it is valid. */
  readonly problem: string | undefined;
}

/**
 * Parses a Recorder, with the defaults of the schema.
 *
 * @param options `defaultTags`: tags for Recorders without their own tags.
 * @throws ZodError if the object is not a Recorder, which means that another CRD is installed.
 */
export function parseRecorder(
  object: unknown,
  { defaultTags }: Pick<SpecOptions, 'defaultTags'>,
): DesiredRecorder {
  const { metadata, spec, status } = recorderSchema.parse(object);
  const { name, annotations } = spec.statefulSet.pod.serviceAccount;
  const desired: Omit<DesiredRecorder, 'problem'> = {
    metadata,
    status,
    tailnet: spec.tailnet,
    group: {
      kind: 'Recorder',
      name: metadata.name,
      uid: metadata.uid,
      owned: true,
      replicas: spec.replicas,
      tags: tagsOf(spec.tags, defaultTags),
      labels: groupLabels('Recorder', metadata.name),
      account: { name: name === '' ? metadata.name : name, annotations, shared: false },
    },
    hasPlayer: spec.enableUI,
    storage: storageOf(metadata, spec.storage.s3),
    search: searchServerOf(metadata),
    statefulSet: spec.statefulSet,
  };
  return { ...desired, problem: problemOf(desired) };
}

/**
 * Returns the storage of the recordings. S3 takes precedence over the annotation for a volume. Without S3 and without a
 * volume, recordings are lost with the pod.
 */
function storageOf(
  { annotations }: Resource['metadata'],
  s3: Resource['spec']['storage']['s3'],
): RecorderStorage {
  if (s3 !== undefined) {
    const { endpoint, bucket, credentials } = s3;
    return { kind: 's3', endpoint, bucket, credentials: credentials.secret.name };
  }
  const size = annotations[ANNOTATIONS.volumeSize] ?? '';
  return size === ''
    ? { kind: 'scratch' }
    : { kind: 'volume', size, storageClass: annotations[ANNOTATIONS.volumeClass] };
}

/** Returns undefined if no annotation for the search has a value. */
function searchServerOf({ annotations }: Resource['metadata']): RecorderSearchServer | undefined {
  const valueOf = (key: string): string | undefined =>
    annotations[key] === '' ? undefined : annotations[key];
  const url = valueOf(ANNOTATIONS.searchUrl);
  const credentials = valueOf(ANNOTATIONS.searchCredentials);
  const ca = valueOf(ANNOTATIONS.searchCa);
  return (url ?? credentials ?? ca) === undefined ? undefined : { url: url ?? '', credentials, ca };
}

/**
 * Returns the problem of a Recorder. If the reference (Tailscale's operator) detects the same problem, the text is the
 * reference's, because dashboards match it.
 */
function problemOf({
  metadata,
  group,
  hasPlayer,
  storage,
  search,
  statefulSet,
}: Omit<DesiredRecorder, 'problem'>): string | undefined {
  const nameProblem = problemOfName(metadata.name);
  if (nameProblem !== undefined) return nameProblem;
  if (!hasPlayer && storage.kind === 'scratch')
    return 'must either enable UI or use S3 storage to ensure recordings are accessible';
  if (group.replicas > 1 && storage.kind !== 's3')
    return 'must use S3 storage when using multiple replicas to ensure recordings are accessible';
  const badKey = Object.keys(group.account.annotations).find((key) => !isAnnotationKey(key));
  if (badKey !== undefined)
    return (
      `spec.statefulSet.pod.serviceAccount.annotations: Invalid value: ${JSON.stringify(badKey)}: not an ` +
      'annotation key (an optional DNS prefix and "/", then at most 63 letters, digits, "-", "_" or ".")'
    );
  const listeners = problemOfListeners(
    statefulSet.pod.container.env.map(({ name, value }) => [name, value] as const),
  );
  if (listeners !== undefined) return `spec.statefulSet.pod.container.env: ${listeners}`;
  return search === undefined ? undefined : problemOfSearch(search);
}

/**
 * Repeats checks that the recorder process performs on its settings. With these checks, an invalid Recorder gets an
 * error instead of pods that exit.
 */
function problemOfSearch({ url: text, credentials }: RecorderSearchServer): string | undefined {
  const { searchUrl, searchCredentials, searchCa } = ANNOTATIONS;
  if (text === '') return `annotations ${searchCredentials} and ${searchCa} need ${searchUrl}`;
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '')
    return `annotation ${searchUrl}: an http:// or https:// URL of a server is expected`;
  if (url.username !== '' || url.password !== '')
    return (
      `annotation ${searchUrl} has a user or a password in it: put user:password into a Secret, and name ` +
      `that Secret in ${searchCredentials}`
    );
  if (credentials !== undefined && url.protocol !== 'https:')
    return (
      `annotation ${searchCredentials}: the credentials would be sent without encryption: ${searchUrl} must ` +
      'begin with https://'
    );
  return undefined;
}

/**
 * Returns the reason why the pods cannot use the ServiceAccount, or undefined.
 *
 * @param serviceAccount existing ServiceAccount with the desired name, if any
 */
export function problemOfAccount(
  { metadata, group }: DesiredRecorder,
  serviceAccount: KubeObject | undefined,
  namespace: string,
): string | undefined {
  if (serviceAccount === undefined || belongsTo(group, serviceAccount)) return undefined;
  const { name } = group.account;
  const custom = name === metadata.name ? '' : 'custom ';
  return (
    `${custom}ServiceAccount name "${name}" specified but conflicts with a pre-existing ServiceAccount in ` +
    `the ${namespace} namespace`
  );
}

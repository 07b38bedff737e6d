/** The `Recorder` custom resource (`tailscale.com/v1alpha1`) as the operator reads it. Schema: `deploy/crds/recorder.yaml`. */
import type {
  V1Affinity,
  V1LocalObjectReference,
  V1PodSecurityContext,
  V1Toleration,
} from '@kubernetes/client-node';
import { z } from 'zod';
import { containerSchema, passed } from '../nodes/container-schema.ts';
import { conditionSchema, metadataSchema, textMap } from '../nodes/resource-parts.ts';

/** Annotations of a Recorder that ask for what the resource has no field for. */
export const ANNOTATIONS = {
  /** Size of a PersistentVolumeClaim for each replica, e.g. `50Gi`; recordings then outlive the pod without S3. */
  volumeSize: 'tailcast.dev/volume-size',
  /** StorageClass of those claims; default: the cluster's. */
  volumeClass: 'tailcast.dev/volume-class',
  /** URL of an OpenSearch that has the index of the search, which is switched on by this. */
  searchUrl: 'tailcast.dev/search-url',
  /** Secret whose key `credentials` has user:password or a token for it, on one line. */
  searchCredentials: 'tailcast.dev/search-credentials',
  /** Secret whose key `ca.crt` has the authorities that are trusted for it (PEM); default: those of Node. */
  searchCa: 'tailcast.dev/search-ca',
} as const;

const podSchema = z
  .object({
    labels: textMap,
    annotations: textMap,
    affinity: passed<V1Affinity>(),
    securityContext: passed<V1PodSecurityContext>(),
    imagePullSecrets: passed<V1LocalObjectReference[]>(),
    nodeSelector: z.record(z.string(), z.string()).optional(),
    tolerations: passed<V1Toleration[]>(),
    serviceAccount: z.object({ name: z.string().default(''), annotations: textMap }).prefault({}),
    container: containerSchema.prefault({}),
  })
  .prefault({});

const s3Schema = z.object({
  endpoint: z.string().default(''),
  bucket: z.string().default(''),
  credentials: z.object({ secret: z.object({ name: z.string().default('') }).prefault({}) }).prefault({}),
});

const deviceSchema = z.object({
  hostname: z.string(),
  tailnetIPs: z.array(z.string()).optional(),
  url: z.string().optional(),
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
  status: z
    .object({ conditions: z.array(conditionSchema).default([]), devices: z.array(deviceSchema).default([]) })
    .prefault({}),
});

export type Recorder = z.infer<typeof recorderSchema>;

/** Where a Recorder's recordings go. */
export type RecorderStorage =
  | { readonly kind: 's3'; readonly endpoint: string; readonly bucket: string; readonly credentials: string }
  | { readonly kind: 'volume'; readonly size: string; readonly storageClass: string | undefined }
  | { readonly kind: 'scratch' };

/**
 * Reads a Recorder, with every default of the schema filled in.
 *
 * @throws ZodError when it is not one; the API server's validation comes first, so that means a foreign CRD.
 */
export function parseRecorder(object: unknown): Recorder {
  return recorderSchema.parse(object);
}

/** S3 wins over the annotation for a volume; with neither, recordings live as long as the pod. */
export function storageOf({ metadata, spec }: Recorder): RecorderStorage {
  const { s3 } = spec.storage;
  if (s3 !== undefined) {
    return {
      kind: 's3',
      endpoint: s3.endpoint,
      bucket: s3.bucket,
      credentials: s3.credentials.secret.name,
    };
  }
  const size = metadata.annotations[ANNOTATIONS.volumeSize];
  if (size === undefined || size === '') return { kind: 'scratch' };
  return { kind: 'volume', size, storageClass: metadata.annotations[ANNOTATIONS.volumeClass] };
}

/** An OpenSearch that has the index of the search, and the names of Secrets for it. */
export interface RecorderSearchServer {
  readonly url: string;
  readonly credentials: string | undefined;
  readonly ca: string | undefined;
}

/** Undefined where the annotations name none. An empty one is as none. */
export function searchServerOf({ metadata: { annotations } }: Recorder): RecorderSearchServer | undefined {
  const named = (name: keyof typeof ANNOTATIONS): string | undefined =>
    annotations[ANNOTATIONS[name]] === '' ? undefined : annotations[ANNOTATIONS[name]];
  const url = named('searchUrl');
  const credentials = named('searchCredentials');
  const ca = named('searchCa');
  return url === undefined && credentials === undefined && ca === undefined
    ? undefined
    : { url: url ?? '', credentials, ca };
}

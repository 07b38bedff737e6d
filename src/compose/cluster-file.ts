/** The file of the setting `clusters`: which clusters the gateway serves, and where it finds them. */
import { parse } from 'yaml';
import { z } from 'zod';
import { TailcastError, errorText } from '../errors.ts';
import { CLUSTER_FORMATS, MAX_NAMED_OBJECTS } from '../kube/cluster-objects.ts';
import { CLUSTER_NAME } from '../wire/asciicast/header.ts';

const name = z.string().regex(CLUSTER_NAME, 'a DNS label is expected, such as prod-1');
const file = z.string().min(1);
const hostName = z
  .string()
  .toLowerCase()
  .regex(/^[a-z0-9{}](?:[a-z0-9.{}-]*[a-z0-9{}])?$/, 'a host name is expected');

/** Fields that every entry may have. In their values, `{name}` stands for the name of the cluster. */
const COMMON = {
  hosts: z.array(hostName).default([]).describe('host names that belong to the cluster, without ports'),
  service: z
    .string()
    .regex(/^svc:[a-z0-9{}][a-z0-9{}-]*$/, 'svc:NAME is expected')
    .optional()
    .describe('Tailscale Service whose grants count'),
  kcp: z.boolean().default(false).describe('true for a kcp server'),
};

const CLUSTER = z.strictObject({
  name: name.describe('name in paths, grants, recordings and metrics; a DNS label'),
  kubeconfig: z
    .strictObject({ file, context: z.string().optional() })
    .optional()
    .describe('file and context'),
  inCluster: z.literal(true).optional().describe('the service account of the pod; set this or `kubeconfig`'),
  identity: z
    .enum(['impersonate', 'requestHeader'])
    .default('impersonate')
    .describe('requestHeader: a client certificate and X-Remote-* headers instead of impersonation'),
  ...COMMON,
  addresses: z
    .array(z.union([z.ipv4(), z.ipv6()]))
    .default([])
    .describe('addresses of its Tailscale Service'),
  listen: z.string().optional().describe('host:port of a listener that serves only this cluster'),
  endpoints: z
    .array(z.string())
    .default([])
    .describe('host:port of all API servers, with the same CA and name'),
});

const DISCOVERY = z.union([
  z.strictObject({ kubeconfig: file.describe('all contexts of this kubeconfig'), ...COMMON }),
  z.strictObject({ directory: file.describe('one kubeconfig per file, named after it'), ...COMMON }),
  z
    .strictObject({
      objects: z.enum(CLUSTER_FORMATS).describe('Secrets of Cluster API or Argo CD, or ClusterProfiles'),
      // A Kubernetes user who may create these objects can add clusters, and make the gateway send the credentials in
      // `users` to these clusters.
      namespace: z.string().default('').describe('required; only cluster managers may write to it'),
      label: z.string().optional().describe('label selector'),
      names: z
        .array(z.string().min(1))
        .max(MAX_NAMED_OBJECTS)
        .optional()
        .describe('reads only these objects of the namespace, and lists none'),
      users: z
        .record(z.string(), z.strictObject({ file, context: z.string().optional() }))
        .default({})
        .describe('for ClusterProfiles: kubeconfig with the credentials of each access provider'),
      ...COMMON,
    })
    .refine(({ namespace }) => namespace !== '', { error: 'objects needs a namespace' })
    .refine(({ names, label }) => names === undefined || label === undefined, {
      error: 'names excludes label',
    }),
]);

const CLUSTER_FILE = z.strictObject({
  clusters: z.array(CLUSTER).max(1000).default([]),
  discover: z.array(DISCOVERY).max(20).default([]),
  /** Clusters to which a rule in a grant applies if the rule does not list `clusters`. */
  unscopedRules: z.enum(['none', 'all']).default('none'),
});

export type ClusterFile = z.infer<typeof CLUSTER_FILE>;
export type ClusterEntry = ClusterFile['clusters'][number];
export type Discovery = ClusterFile['discover'][number];

/** @throws TailcastError `CONFIG_INVALID` with all problems */
export function parseClusterFile(text: string, path: string): ClusterFile {
  let content: unknown;
  try {
    content = parse(text, { logLevel: 'error', maxAliasCount: 0 });
  } catch (cause) {
    const line = errorText(cause).split('\n', 1)[0] ?? '';
    throw new TailcastError('CONFIG_INVALID', `${path} is not YAML: ${line}`, { cause });
  }
  const result = CLUSTER_FILE.safeParse(content ?? {});
  if (!result.success) {
    throw new TailcastError('CONFIG_INVALID', `${path}:\n${z.prettifyError(result.error)}`);
  }
  const names = result.data.clusters.map((entry) => entry.name);
  const twice = names.find((entry, index) => names.indexOf(entry) < index);
  if (twice !== undefined) {
    throw new TailcastError('CONFIG_INVALID', `${path}: the name ${twice} occurs twice`);
  }
  for (const { name: entry, kubeconfig, inCluster } of result.data.clusters) {
    if ((kubeconfig === undefined) === (inCluster === undefined)) {
      const detail = `${path}: cluster ${entry} needs either kubeconfig or inCluster`;
      throw new TailcastError('CONFIG_INVALID', detail);
    }
  }
  return result.data;
}

/** The objects of the nameserver. They have the same names as in the reference (Tailscale's operator). Pure. */
import type { V1Affinity, V1PodSpec } from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import { metadataOf } from '../workload/object-specs.ts';
import { labelSelector, type ObjectOwner, type SpecOptions } from '../workload/workload.ts';
import { defined, roleContainer, variables } from '../workload/pod-specs.ts';
import type { DnsConfig } from './resource.ts';

/** Name of the Deployment, the Service and the ServiceAccount of the nameserver. */
export const NAMESERVER = 'nameserver';
/** Name of the ConfigMap with the DNS names. */
export const RECORDS = 'dnsrecords';
const RECORDS_KEY = 'records.json';
const PORT = 1053;
const OPS_PORT = 9005;
const DIRECTORY = '/config';

/** Labels that select the pods. */
const POD_LABELS = { app: NAMESERVER, 'tailscale.com/managed': 'true' } as const;
const LABELS = { ...POD_LABELS, 'tailscale.com/parent-resource-type': NAMESERVER } as const;

/** Returns a label selector for all objects of the nameserver. */
export function nameserverSelector(): string {
  return labelSelector(LABELS);
}

type Place = Pick<SpecOptions, 'namespace'>;

/** Returns the DNSConfig as the owner of the nameserver's objects. */
export function dnsOwner({ metadata: { name, uid } }: DnsConfig): ObjectOwner {
  return { kind: 'DNSConfig', name, uid, owned: true, labels: LABELS };
}

/**
 * Returns the ServiceAccount of the nameserver's pods. It has no rights, because the pods never call the API server.
 */
export function nameserverAccount(dnsConfig: DnsConfig, options: Place): DesiredObject {
  return {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: metadataOf(dnsOwner(dnsConfig), options, NAMESERVER),
  };
}

/** @param text content of the nameserver's file */
export function recordsConfigMap(
  dnsConfig: DnsConfig,
  options: Place,
  text: string,
): DesiredObject & { readonly data: Readonly<Record<string, string>> } {
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: metadataOf(dnsOwner(dnsConfig), options, RECORDS),
    data: { [RECORDS_KEY]: text },
  };
}

export function nameserverService(
  dnsConfig: DnsConfig,
  options: Place,
): DesiredObject & { readonly spec: object } {
  const { clusterIP } = dnsConfig.spec.nameserver.service;
  const port = (name: string, protocol: string): object => ({ name, port: 53, targetPort: PORT, protocol });
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(dnsOwner(dnsConfig), options, NAMESERVER),
    spec: {
      type: 'ClusterIP',
      ...(clusterIP === '' ? {} : { clusterIP }),
      selector: { ...POD_LABELS },
      ports: [port('udp', 'UDP'), port('tcp', 'TCP')],
    },
  };
}

export function nameserverDeployment(
  dnsConfig: DnsConfig,
  options: Place & Pick<SpecOptions, 'recorderImage'>,
): DesiredObject & { readonly spec: { readonly template: { readonly spec: V1PodSpec } } & object } {
  const { replicas } = dnsConfig.spec.nameserver;
  const metadata = metadataOf(dnsOwner(dnsConfig), options, NAMESERVER);
  const desired = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata,
    spec: {
      replicas,
      // During an update, an old pod stops only after a new one is ready, so that names stay resolvable.
      strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
      selector: { matchLabels: { ...POD_LABELS } },
      template: { metadata: { labels: { ...LABELS } }, spec: podSpec(dnsConfig, options.recorderImage) },
    },
  };
  return desired;
}

function podSpec({ spec }: DnsConfig, ownImage: string): V1PodSpec {
  const { pod, image } = spec.nameserver;
  const { tolerations, affinity, nodeSelector, imagePullSecrets } = pod;
  const env = variables({
    TAILCAST_LISTEN: `[::]:${PORT}`,
    TAILCAST_RECORDS: `${DIRECTORY}/${RECORDS_KEY}`,
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
  });
  const mount = { name: RECORDS, mountPath: DIRECTORY, readOnly: true };
  const container = roleContainer(NAMESERVER, imageOf(image, ownImage), env, [mount]);
  container.ports = [
    { name: 'udp', containerPort: PORT, protocol: 'UDP' },
    { name: 'tcp', containerPort: PORT, protocol: 'TCP' },
    ...(container.ports ?? []),
  ];
  return {
    serviceAccountName: NAMESERVER,
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
    affinity: affinity ?? APART,
    ...defined({ tolerations, nodeSelector, imagePullSecrets }),
    containers: [container],
    volumes: [{ name: RECORDS, configMap: { name: RECORDS } }],
  };
}

/** Affinity that spreads replicas over different machines, if possible. */
const APART: V1Affinity = {
  podAntiAffinity: {
    preferredDuringSchedulingIgnoredDuringExecution: [
      {
        weight: 100,
        podAffinityTerm: {
          topologyKey: 'kubernetes.io/hostname',
          labelSelector: { matchLabels: { ...POD_LABELS } },
        },
      },
    ],
  },
};

type NameserverImage = DnsConfig['spec']['nameserver']['image'];

function imageOf(image: NameserverImage, ownImage: string): string {
  if (image.repo === '' || isReferenceImage(image)) return ownImage;
  return image.tag === '' ? image.repo : `${image.repo}:${image.tag}`;
}

/**
 * Returns true for the nameserver image of the reference (Tailscale's operator). That image has other arguments, so
 * the operator deploys tailcast's image instead.
 */
export function isReferenceImage({ repo }: NameserverImage): boolean {
  return /(^|\/)k8s-nameserver$/.test(repo);
}

/**
 * The StatefulSet of a ProxyGroup of gateways. The stock tailscale container forwards connections to the gateway: those
 * to port 443 of its node, and those to port 443 of the group's Tailscale Service. A PROXY header names the caller.
 * Pure.
 */
import type { V1Container, V1EnvVar, V1Volume } from '@kubernetes/client-node';
import type { SpecOptions } from '../workload/workload.ts';
import {
  SOCKET,
  SOCKET_DIRECTORY,
  USER,
  claimTemplate,
  groupStatefulSet,
  podFacts,
  roleContainer,
  serveAnnotation,
  spreadOver,
  tailscaleContainer,
  tailscaleVolumes,
  variables,
  type DesiredStatefulSet,
} from '../workload/pod-specs.ts';
import { clusterSelectorOf, CLUSTERS_FILE, clustersName } from './clusters.ts';
import { proxyGroupNodes } from './group.ts';
import { ANNOTATIONS, settingsOf, type ProxyGroup } from './resource.ts';

/**
 * Loopback address of the gateway. Other nodes cannot reach this address through tailscaled, which forwards only to
 * 127.0.0.1.
 */
const LISTEN = '127.0.0.77:8443';
const OPS_PORT = 9002;
const TAILSCALE_HEALTH_PORT = 9001;
const TLS_DIRECTORY = '/etc/tailcast-tls';
const CLUSTERS_DIRECTORY = '/etc/tailcast-clusters';
const STATE_DIRECTORY = '/var/lib/tailcast';
/**
 * Time in seconds in which running sessions can finish. Afterwards, the container has 15 s to close the remaining
 * connections.
 */
const DRAIN_SECONDS = 60;
const GRACE_SECONDS = 75;

/** Information about a group from the control server. */
export interface GatewayContext {
  /**
   * Name of the Tailscale Service, `svc:…`. Undefined if the control server does not support Tailscale Services;
   * clients then use the names of the nodes.
   */
  readonly service: string | undefined;
  /** True if the control server issues certificates. Otherwise gateways need their own CA. */
  readonly issuesCertificates: boolean;
}

/** Returns the StatefulSet of a group of gateways. */
export function gatewayStatefulSet(
  proxyGroup: ProxyGroup,
  context: GatewayContext,
  options: SpecOptions,
): DesiredStatefulSet {
  const group = proxyGroupNodes(proxyGroup, options);
  const tls = tlsOf(proxyGroup, context);
  const container = gatewayContainer(proxyGroup, tls, options);
  const listen = container.env?.find(({ name }) => name === 'TAILCAST_LISTEN')?.value ?? LISTEN;
  return groupStatefulSet(group, options, {
    podAnnotations: serveAnnotation(serveConfig(listen, context.service)),
    podSpec: {
      terminationGracePeriodSeconds: GRACE_SECONDS,
      securityContext: {
        fsGroup: USER,
        fsGroupChangePolicy: 'OnRootMismatch',
        seccompProfile: { type: 'RuntimeDefault' },
      },
      initContainers: [
        tailscaleContainer(
          {
            hostname: hostnameOf(proxyGroup),
            serve: true,
            healthPort: TAILSCALE_HEALTH_PORT,
            extra: [podIndex(), { name: 'TS_EXPERIMENTAL_SERVICE_AUTO_ADVERTISEMENT', value: 'true' }],
          },
          options,
        ),
      ],
      containers: [container],
      volumes: [...tailscaleVolumes(true), ...certificateVolumes(tls), ...clusterVolumes(proxyGroup)],
      topologySpreadConstraints: spreadOver(group.labels),
    },
    more:
      tls.kind === 'self-signed'
        ? // Clients trust the gateway's own CA, so the CA's key must outlive the pod.
          { volumeClaimTemplates: [claimTemplate('state', group.labels, '16Mi', undefined)] }
        : {},
  });
}

type Tls =
  | { readonly kind: 'tailscale' }
  | { readonly kind: 'self-signed' }
  | { readonly kind: 'files'; readonly secret: string };

function tlsOf({ metadata }: ProxyGroup, { issuesCertificates }: GatewayContext): Tls {
  const secret = metadata.annotations[ANNOTATIONS.tlsSecret] ?? '';
  if (secret !== '') return { kind: 'files', secret };
  return { kind: issuesCertificates ? 'tailscale' : 'self-signed' };
}

/** Returns the hostname of the nodes. It contains a variable, so that each replica gets its own name. */
function hostnameOf({ spec }: ProxyGroup): string {
  return spec.hostnamePrefix === '' ? '$(POD_NAME)' : `${spec.hostnamePrefix}-$(POD_INDEX)`;
}

function podIndex(): V1EnvVar {
  const fieldPath = "metadata.labels['apps.kubernetes.io/pod-index']";
  return { name: 'POD_INDEX', valueFrom: { fieldRef: { fieldPath } } };
}

/**
 * Returns a serve configuration that forwards TCP without TLS termination. The gateway terminates TLS, for the name of
 * the node and for that of the Service.
 */
function serveConfig(listen: string, service: string | undefined): object {
  const tcp = { 443: { TCPForward: listen, ProxyProtocol: 2 } };
  return { TCP: tcp, ...(service === undefined ? {} : { Services: { [service]: { TCP: tcp } } }) };
}

function gatewayContainer(proxyGroup: ProxyGroup, tls: Tls, options: SpecOptions): V1Container {
  const hostname = hostnameOf(proxyGroup);
  const names = [
    hostname,
    ...(options.tailnetDomain === undefined ? [] : [`${hostname}.${options.tailnetDomain}`]),
  ];
  const settings = {
    TAILCAST_MODE: proxyGroup.spec.kubeAPIServer.mode,
    TAILCAST_LISTEN: LISTEN,
    TAILCAST_PROXY_PROTOCOL: 'require',
    TAILCAST_RECORDER_DIAL: 'tailscale',
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_STATE_DIRECTORY: STATE_DIRECTORY,
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
    TAILCAST_DRAIN_SECONDS: String(DRAIN_SECONDS),
    TAILCAST_TLS: tls.kind,
    ...(tls.kind === 'files'
      ? {
          TAILCAST_TLS_CERT: `${TLS_DIRECTORY}/tls.crt`,
          TAILCAST_TLS_KEY: `${TLS_DIRECTORY}/tls.key`,
        }
      : {}),
    ...(tls.kind === 'self-signed' ? { TAILCAST_TLS_NAMES: names.join(',') } : {}),
    ...(clusterSelectorOf(proxyGroup) === ''
      ? {}
      : { TAILCAST_CLUSTERS: `${CLUSTERS_DIRECTORY}/${CLUSTERS_FILE}` }),
    ...Object.fromEntries(settingsOf(proxyGroup).settings),
  };
  const env = [...podFacts(), podIndex(), ...variables(settings)];
  return roleContainer('gateway', options.recorderImage, env, [
    { name: 'tailscale', mountPath: SOCKET_DIRECTORY },
    { name: 'state', mountPath: STATE_DIRECTORY },
    { name: 'tmp', mountPath: '/tmp' },
    ...(tls.kind === 'files' ? [{ name: 'tls', mountPath: TLS_DIRECTORY, readOnly: true }] : []),
    ...clusterVolumes(proxyGroup).map(({ name }) => ({
      name,
      mountPath: CLUSTERS_DIRECTORY,
      readOnly: true,
    })),
  ]);
}

function clusterVolumes(proxyGroup: ProxyGroup): V1Volume[] {
  if (clusterSelectorOf(proxyGroup) === '') return [];
  return [{ name: 'clusters', configMap: { name: clustersName(proxyGroup.metadata.name) } }];
}

function certificateVolumes(tls: Tls): V1Volume[] {
  switch (tls.kind) {
    case 'self-signed':
      return [];
    case 'tailscale':
      return [{ name: 'state', emptyDir: {} }];
    case 'files':
      return [
        { name: 'state', emptyDir: {} },
        { name: 'tls', secret: { secretName: tls.secret, defaultMode: 0o440 } },
      ];
  }
}

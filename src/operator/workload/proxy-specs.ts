/**
 * The objects of a proxy: a headless Service, and a StatefulSet with the stock tailscale container. If the proxy
 * forwards packets, tailscaled runs in kernel mode, and otherwise in userspace mode. Names, labels and variables are
 * those of the reference (Tailscale's operator), so that this operator can adopt the reference's objects. Pure.
 */
import type {
  V1Container,
  V1EnvVar,
  V1PodSecurityContext,
  V1PodSpec,
  V1SecurityContext,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import { metadataOf } from './object-specs.ts';
import {
  groupStatefulSet,
  httpProbe,
  LOCKED_DOWN,
  podFacts,
  roleContainer,
  SOCKET,
  SOCKET_DIRECTORY,
  spreadOver,
  variables,
  type DesiredStatefulSet,
} from './pod-specs.ts';
import {
  leadsToTailnet,
  PACKET_DUTIES,
  stateSecretName,
  type NodeGroup,
  type SpecOptions,
  type Duty,
  type ForwardDuty,
  type PacketDuty,
  type Proxy,
} from './workload.ts';
import { CONFIG_FILES, SERVE_CONFIG, TABLE, RULES } from './proxy-config.ts';

const CONFIG_DIRECTORY = '/etc/tsconfig';
const SERVICES_DIRECTORY = '/etc/proxies';
const SERVE_DIRECTORY = '/etc/tailscaled';
const SERVE_VOLUME = 'serve-config-0';
const TABLE_DIRECTORY = '/etc/tailcast-ingress';
const TABLE_VOLUME = 'ingress-table';
/** Port of containerboot's health check and metrics. */
export const LOCAL_PORT = 9002;
/**
 * In a group with several replicas, every pod mounts the configurations of at least this number of replicas. In larger
 * groups, it mounts the configurations of all replicas, and of further ones up to the next multiple of this number.
 * Scaling up to that multiple therefore restarts no pod.
 */
const MOUNTED_AT_LEAST = 4;

/** Prefix of annotations with the configuration that the operator set last, for users who inspect a pod. */
export const LAST_SET = 'tailscale.com/operator-last-set-';

/** Returns the headless Service of the proxy, to whose name egress Services point. */
export function headlessService({ group }: Proxy, options: SpecOptions): DesiredObject {
  const desired = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(group, options, group.name),
    spec: {
      clusterIP: 'None',
      ipFamilyPolicy: 'PreferDualStack',
      // The Service excludes pods that are not ready. During a roll-out, egress connections therefore reach the old pod
      // until the new pod has its rules.
      publishNotReadyAddresses: false,
      selector: selectorOf(group.uid),
    },
  };
  return desired;
}

/** Returns the StatefulSet without the settings of a ProxyClass. */
export function proxyStatefulSet(proxy: Proxy, options: SpecOptions): DesiredStatefulSet {
  const { group, duty } = proxy;
  return groupStatefulSet(group, options, {
    selector: selectorOf(group.uid),
    podAnnotations: lastSet(duty),
    podSpec: {
      ...(isKernel(duty) ? { initContainers: [forwardingContainer(options)] } : {}),
      ...(isRestricted(proxy) ? { securityContext: podSecurity(duty) } : {}),
      containers: [
        proxyContainer(proxy, options),
        ...(duty.kind === 'forward-out' ? [forwarderContainer(duty, options)] : []),
        ...(hasTable(duty) ? [ingressContainer(options)] : []),
      ],
      volumes: [
        ...configVolumes(group, duty),
        ...dutyVolumes(group.name, duty),
        ...(isRestricted(proxy) ? [{ name: SCRATCH_VOLUME, emptyDir: {} }] : []),
        ...(sharesSocket(duty) ? [{ name: SOCKET_VOLUME, emptyDir: {} }] : []),
      ],
      ...handingOver(duty),
      ...(group.replicas > 1 ? { topologySpreadConstraints: spreadOver(group.labels) } : {}),
    },
    more: { serviceName: group.name },
  });
}

/** True if the kernel of the pod's machine forwards packets, which requires privileges. */
function isKernel({ kind }: Duty): boolean {
  return kind !== 'web' && kind !== 'forward-in' && kind !== 'forward-out';
}

function isRestricted({ duty, restricted = false }: Proxy): boolean {
  return restricted && !isKernel(duty);
}

function selectorOf(uid: string): { app: string } {
  return { app: uid };
}

/**
 * Returns the task (*duty*) that forwards packets or connections from or to one target; undefined for other duties.
 */
function packetDutyOf(duty: Duty): PacketDuty | undefined {
  if ('target' in duty) return duty;
  return 'of' in duty ? duty.of : undefined;
}

function lastSet(duty: Duty): Record<string, string> {
  const packets = packetDutyOf(duty);
  if (packets === undefined) return {};
  return { [`${LAST_SET}${PACKET_DUTIES[packets.kind].annotation}`]: packets.target };
}

/**
 * Readiness gates of pods. The operator opens the gate of a new pod when the pod has applied its rules. The roll-out
 * then replaces the next pod.
 */
export const GATES = {
  egress: 'tailscale.com/egress-services',
  ingress: 'tailscale.com/ingress-services',
} as const;

/**
 * Returns settings that let a group roll out without interruption. During a long termination period, callers switch to
 * other pods, and a readiness gate delays the replacement of the next pod.
 */
function handingOver({ kind }: Duty): Pick<V1PodSpec, 'terminationGracePeriodSeconds' | 'readinessGates'> {
  if (kind !== 'egress-group' && kind !== 'ingress-group') return {};
  const conditionType = kind === 'egress-group' ? GATES.egress : GATES.ingress;
  return { terminationGracePeriodSeconds: 90, readinessGates: [{ conditionType }] };
}

/**
 * Returns the lifecycle hook before termination, during which callers switch to other pods. In egress groups, the hook
 * calls containerboot, which implements the switch. In ingress groups, the hook stops the advertisement of routes, and
 * the pod forwards packets for another 10 s. Tailscale Services need no hook, because containerboot itself stops their
 * advertisement.
 */
function beforeEnd({ kind }: Duty): Pick<V1Container, 'lifecycle'> {
  if (kind === 'egress-group') {
    const httpGet = { path: '/internal-egress-services-preshutdown', port: LOCAL_PORT };
    return { lifecycle: { preStop: { httpGet } } };
  }
  if (kind === 'ingress-group') return { lifecycle: { preStop: { exec: { command: [...GIVE_UP] } } } };
  return {};
}

/** Command in the tailscale container that stops advertising routes. */
export const GIVE_UP: readonly string[] = [
  '/bin/sh',
  '-c',
  'tailscale --socket=/tmp/tailscaled.sock set --advertise-routes=; sleep 10',
];

/** Returns the volumes with the forwarding rules of a group, or with the serve configuration of a node. */
function dutyVolumes(name: string, duty: Duty): V1Volume[] {
  if (duty.kind === 'egress-group') return [{ name: 'egress-services', configMap: { name: duty.configMap } }];
  if (!('serveConfig' in duty)) return [];
  const items = [{ key: SERVE_CONFIG, path: SERVE_CONFIG }];
  const secretName = stateSecretName(name, 0);
  const table = { secretName, items: [{ key: TABLE, path: TABLE }], optional: true };
  return [
    { name: SERVE_VOLUME, secret: { secretName, items, optional: true } },
    ...(hasTable(duty) ? [{ name: TABLE_VOLUME, secret: table }] : []),
  ];
}

function dutyMounts(name: string, duty: Duty): V1VolumeMount[] {
  if (duty.kind === 'egress-group')
    return [{ name: 'egress-services', mountPath: SERVICES_DIRECTORY, readOnly: true }];
  if (!('serveConfig' in duty)) return [];
  return [
    { name: SERVE_VOLUME, mountPath: `${SERVE_DIRECTORY}/${stateSecretName(name, 0)}`, readOnly: true },
  ];
}

/**
 * Returns the init container that enables packet forwarding in the pod's network. It runs privileged, because it writes
 * to `/proc/sys`.
 */
function forwardingContainer({ tailscaleImage }: SpecOptions): V1Container {
  const ipv6 = '/proc/sys/net/ipv6/conf/all/forwarding';
  return {
    name: 'sysctler',
    image: tailscaleImage,
    command: ['/bin/sh', '-c'],
    args: [`echo 1 > /proc/sys/net/ipv4/ip_forward && if [ -e ${ipv6} ]; then echo 1 > ${ipv6}; fi`],
    securityContext: { privileged: true },
  };
}

function proxyContainer(proxy: Proxy, { tailscaleImage }: SpecOptions): V1Container {
  const { group, duty } = proxy;
  const restricted = isRestricted(proxy);
  return {
    name: 'tailscale',
    image: tailscaleImage,
    env: [
      // A pod that forwards no packets, but only serves requests, needs neither kernel mode nor privileges.
      { name: 'TS_USERSPACE', value: String(!isKernel(duty)) },
      { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
      ...podFacts(),
      { name: 'TS_KUBE_SECRET', value: '$(POD_NAME)' },
      { name: 'TS_EXPERIMENTAL_VERSIONED_CONFIG_DIR', value: `${CONFIG_DIRECTORY}/$(POD_NAME)` },
      { name: 'TS_EXPERIMENTAL_SERVICE_AUTO_ADVERTISEMENT', value: 'false' },
      ...dutyVariables(duty),
      ...healthVariables(duty),
    ],
    ...(usesAllPorts(duty) ? {} : { readinessProbe: httpProbe('/healthz', LOCAL_PORT, 5, 2) }),
    securityContext: restricted ? LOCKED_DOWN : securityOf(duty),
    ...beforeEnd(duty),
    volumeMounts: [
      ...configMounts(group.name, group.replicas),
      ...dutyMounts(group.name, duty),
      ...(restricted ? [{ name: SCRATCH_VOLUME, mountPath: '/tmp' }] : []),
      ...(sharesSocket(duty) ? [SOCKET_MOUNT] : []),
    ],
  };
}

function securityOf(duty: Duty): V1SecurityContext {
  return isKernel(duty)
    ? { privileged: true }
    : { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } };
}

/** True if the Service may use any port of the pod, so that no port is free for probes, metrics or debugging. */
export function usesAllPorts(duty: Duty): boolean {
  const packets = packetDutyOf(duty);
  return packets !== undefined && leadsToTailnet(packets);
}

const SOCKET_VOLUME = 'tailscale';
const SCRATCH_VOLUME = 'tailscale-tmp';
/** First port that unprivileged processes may use by default. */
const FIRST_FREE_PORT = 1024;
/**
 * Port for the health checks of the tailcast container. If the Service of a forwarder uses this port, the health checks
 * get the next free port above it.
 */
const OPS_PORT = 9005;

/** Returns the security context for the strictest pod security standard (restricted). */
function podSecurity(duty: Duty): V1PodSecurityContext {
  const low = duty.kind === 'forward-out' && duty.ports.some((port) => port < FIRST_FREE_PORT);
  return {
    seccompProfile: { type: 'RuntimeDefault' },
    ...(low ? { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }] } : {}),
  };
}

const SOCKET_MOUNT: V1VolumeMount = { name: SOCKET_VOLUME, mountPath: SOCKET_DIRECTORY };

/** True if tailcast's ingress server runs next to tailscaled. */
function hasTable(duty: Duty): boolean {
  return duty.kind === 'web' && duty.table !== undefined;
}

/** True if a tailcast container connects to the socket of tailscaled. */
function sharesSocket(duty: Duty): boolean {
  return duty.kind === 'forward-out' || hasTable(duty);
}

/**
 * Returns the container with tailcast's ingress server. tailscaled forwards connections to the server's default
 * listeners. The server terminates TLS with the certificates of the Ingress or Gateway.
 */
function ingressContainer({ recorderImage }: SpecOptions): V1Container {
  const env = variables({
    TAILCAST_TABLE: `${TABLE_DIRECTORY}/${TABLE}`,
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
  });
  const table = { name: TABLE_VOLUME, mountPath: TABLE_DIRECTORY, readOnly: true };
  return roleContainer('ingress', recorderImage, env, [SOCKET_MOUNT, table]);
}

/**
 * Returns the container with tailcast's forwarder. The forwarder listens on the ports of the Service, and connects to
 * the same ports of the target through tailscaled.
 */
function forwarderContainer(
  { of, ports }: Extract<ForwardDuty, { readonly kind: 'forward-out' }>,
  { recorderImage }: SpecOptions,
): V1Container {
  let opsPort = OPS_PORT;
  while (ports.includes(opsPort)) opsPort += 1;
  const env = variables({
    TAILCAST_TARGET: of.target.replace(/\.$/, ''),
    TAILCAST_PORTS: ports.join(','),
    TAILCAST_SOCKET: SOCKET,
    TAILCAST_OPS_LISTEN: `:${opsPort}`,
  });
  return roleContainer('forwarder', recorderImage, env, [SOCKET_MOUNT]);
}

function dutyVariables(duty: Duty): readonly V1EnvVar[] {
  const serveFrom = { TS_SERVE_CONFIG: `${SERVE_DIRECTORY}/$(POD_NAME)/${SERVE_CONFIG}` };
  switch (duty.kind) {
    case 'ingress':
    case 'ingress-name':
    case 'egress-address':
    case 'egress-name':
      return variables({
        [PACKET_DUTIES[duty.kind].variable]: duty.target,
        TS_INTERNAL_APP: `k8s-operator-${leadsToTailnet(duty) ? 'egress' : 'ingress'}-proxy`,
      });
    case 'ingress-group':
      return [
        POD_ADDRESSES,
        ...variables({
          TS_INGRESS_PROXIES_CONFIG_PATH: `${CONFIG_DIRECTORY}/$(POD_NAME)/${RULES}`,
          TS_SERVE_CONFIG: `${CONFIG_DIRECTORY}/$(POD_NAME)/${SERVE_CONFIG}`,
          ...(duty.sharesCertificates ? { TS_EXPERIMENTAL_CERT_SHARE: 'true' } : {}),
          TS_INTERNAL_APP: 'k8s-operator-proxygroup-ingress',
        }),
      ];
    case 'egress-group':
      return [
        POD_ADDRESSES,
        ...variables({
          TS_EGRESS_PROXIES_CONFIG_PATH: SERVICES_DIRECTORY,
          TS_INTERNAL_APP: 'k8s-operator-proxygroup-egress',
        }),
      ];
    case 'web':
      return variables({
        ...serveFrom,
        ...(duty.table === undefined ? {} : { TS_SOCKET: SOCKET }),
        // An ACME order that renews a certificate may name the previous certificate only if the same ACME account got
        // both. With this variable, tailscaled does not name the previous certificate.
        TS_DEBUG_ACME_FORCE_RENEWAL: 'true',
        TS_INTERNAL_APP: 'k8s-operator-ingress-resource',
      });
    case 'forward-in':
      return variables({ ...serveFrom, TS_INTERNAL_APP: 'k8s-operator-ingress-proxy' });
    case 'forward-out':
      return variables({ TS_SOCKET: SOCKET, TS_INTERNAL_APP: 'k8s-operator-egress-proxy' });
    case 'connector':
      return variables({ TS_INTERNAL_APP: 'k8s-operator-connector-resource' });
  }
}

/**
 * Variable with the addresses of the pod. Reports of the pod contain these addresses, so that the operator recognizes
 * reports of earlier pods.
 */
const POD_ADDRESSES: V1EnvVar = { name: 'POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } };

/** Returns variables that enable containerboot's health check. The check succeeds when the rules are in effect. */
function healthVariables(duty: Duty): readonly V1EnvVar[] {
  if (usesAllPorts(duty)) return [];
  // The front Services may have addresses of both families, so containerboot listens on its default address, which
  // includes both.
  if (duty.kind === 'egress-group') return variables({ TS_ENABLE_HEALTH_CHECK: 'true' });
  return variables({ TS_LOCAL_ADDR_PORT: `$(POD_IP):${LOCAL_PORT}`, TS_ENABLE_HEALTH_CHECK: 'true' });
}

/**
 * Returns the ordinals of the replicas whose configuration every pod mounts. Some of these replicas may not exist yet.
 */
function mountedOrdinals(replicas: number): readonly number[] {
  const count = replicas <= 1 ? 1 : Math.ceil(replicas / MOUNTED_AT_LEAST) * MOUNTED_AT_LEAST;
  return Array.from({ length: count }, (_, ordinal) => ordinal);
}

/**
 * Returns volumes that contain the configurations from the state Secrets, but not the state itself. The Secrets are
 * optional, so a missing Secret does not block a pod.
 */
function configVolumes({ name, replicas }: NodeGroup, { kind }: Duty): V1Volume[] {
  const keys = kind === 'ingress-group' ? [...CONFIG_FILES, SERVE_CONFIG, RULES] : CONFIG_FILES;
  return mountedOrdinals(replicas).map((ordinal) => ({
    name: `tailscaledconfig-${ordinal}`,
    secret: {
      secretName: stateSecretName(name, ordinal),
      items: keys.map((key) => ({ key, path: key })),
      optional: true,
    },
  }));
}

/** Each configuration is a separate volume, because containerboot detects changes only in the directory of a volume. */
function configMounts(name: string, replicas: number): V1VolumeMount[] {
  return mountedOrdinals(replicas).map((ordinal) => ({
    name: `tailscaledconfig-${ordinal}`,
    mountPath: `${CONFIG_DIRECTORY}/${stateSecretName(name, ordinal)}`,
    readOnly: true,
  }));
}

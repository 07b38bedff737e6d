/**
 * The objects of a proxy: a headless Service, and a StatefulSet of the stock tailscale container, in kernel mode but where it
 * serves requests or forwards connections. Names, labels and variables are the reference's, so that its objects can be taken over. Pure.
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
  httpProbe,
  LOCKED_DOWN,
  opsProbes,
  podFacts,
  SOCKET,
  SOCKET_DIRECTORY,
  spreadOver,
  type DesiredStatefulSet,
  type ImmutableParts,
} from './pod-specs.ts';
import {
  stateSecretName,
  type NodeGroup,
  type SpecOptions,
  type Duty,
  type ForwardDuty,
  type Proxy,
} from './workload.ts';
import { CONFIG_FILES, SERVE_CONFIG, TABLE, RULES } from './proxy-config.ts';

const CONFIG_DIRECTORY = '/etc/tsconfig';
const SERVICES_DIRECTORY = '/etc/proxies';
const SERVE_DIRECTORY = '/etc/tailscaled';
const SERVE_VOLUME = 'serve-config-0';
const TABLE_DIRECTORY = '/etc/tailcast-ingress';
const TABLE_VOLUME = 'ingress-table';
/** Where the container says whether its rules are in, and what it counts. */
export const LOCAL_PORT = 9002;
/** Every pod mounts the Secrets of so many replicas, or a multiple: scaling within that restarts none. */
const MOUNTED_AT_LEAST = 4;

/** What was last set, for people who look at a pod. */
export const LAST_SET = 'tailscale.com/operator-last-set-';

/** The name under which the pods are found: egress Services point to it. */
export function headlessService({ group }: Proxy, options: SpecOptions): DesiredObject {
  const desired = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(group, options, group.name),
    spec: {
      clusterIP: 'None',
      ipFamilyPolicy: 'PreferDualStack',
      // Egress goes on to the old pod until the new one has its rules: pods that are not ready are left out.
      publishNotReadyAddresses: false,
      selector: selectorOf(group.uid),
    },
  };
  return desired;
}

/** The StatefulSet before any ProxyClass is merged into it. */
export function proxyStatefulSet(
  proxy: Proxy,
  options: SpecOptions,
  existing: ImmutableParts = { podManagementPolicy: 'Parallel' },
): DesiredStatefulSet {
  const { group, duty } = proxy;
  const selector = selectorOf(group.uid);
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(group, options, group.name),
    spec: {
      replicas: group.replicas,
      podManagementPolicy: existing.podManagementPolicy,
      serviceName: group.name,
      selector: { matchLabels: selector },
      template: {
        metadata: { labels: { ...group.labels, ...selector }, annotations: lastSet(duty) },
        spec: {
          serviceAccountName: group.account.name,
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
      },
    },
  };
}

/** Whether packets are carried by the kernel of the pod, which takes privileges. */
function isKernel({ kind }: Duty): boolean {
  return kind !== 'web' && kind !== 'forward-in' && kind !== 'forward-out';
}

function isRestricted({ duty, restricted = false }: Proxy): boolean {
  return restricted && !isKernel(duty);
}

function selectorOf(uid: string): { app: string } {
  return { app: uid };
}

function lastSet(duty: Duty): Record<string, string> {
  switch (duty.kind) {
    case 'ingress':
      return { [`${LAST_SET}cluster-ip`]: duty.address };
    case 'ingress-name':
      return { [`${LAST_SET}cluster-dns-name`]: duty.name };
    case 'egress-address':
      return { [`${LAST_SET}ts-tailnet-target-ip`]: duty.address };
    case 'egress-name':
      return { [`${LAST_SET}ts-tailnet-target-fqdn`]: duty.name };
    case 'forward-in':
    case 'forward-out':
      return lastSet(duty.of);
    case 'egress-group':
    case 'ingress-group':
    case 'web':
    case 'connector':
      return {};
  }
}

/** What the pods of a group wait for until the next one is replaced; the operator says it. */
export const GATES = {
  egress: 'tailscale.com/egress-services',
  ingress: 'tailscale.com/ingress-services',
} as const;

/** A pod goes when callers are led to others, and the next one goes when this one has taken over. */
function handingOver({ kind }: Duty): Pick<V1PodSpec, 'terminationGracePeriodSeconds' | 'readinessGates'> {
  if (kind !== 'egress-group' && kind !== 'ingress-group') return {};
  const conditionType = kind === 'egress-group' ? GATES.egress : GATES.ingress;
  return { terminationGracePeriodSeconds: 90, readinessGates: [{ conditionType }] };
}

/**
 * What a pod does before it ends. One that shares addresses gives them up first, and forwards what still comes until everybody has
 * heard of it; Tailscale Services containerboot gives up by itself.
 */
function beforeEnd({ kind }: Duty): Pick<V1Container, 'lifecycle'> {
  if (kind === 'egress-group') {
    const httpGet = { path: '/internal-egress-services-preshutdown', port: LOCAL_PORT };
    return { lifecycle: { preStop: { httpGet } } };
  }
  if (kind === 'ingress-group') return { lifecycle: { preStop: { exec: { command: [...GIVE_UP] } } } };
  return {};
}

/** Run in the tailscale container. */
export const GIVE_UP: readonly string[] = [
  '/bin/sh',
  '-c',
  'tailscale --socket=/tmp/tailscaled.sock set --advertise-routes=; sleep 10',
];

/** What the nodes of a group are to forward, and what a node is to serve. */
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

/** Packets are forwarded in the pod's network, which takes a privilege that the tailscale container alone does not need. */
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
      // What is served takes no packets, and so no privilege.
      { name: 'TS_USERSPACE', value: String(!isKernel(duty)) },
      { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
      ...podFacts(),
      { name: 'TS_KUBE_SECRET', value: '$(POD_NAME)' },
      { name: 'TS_EXPERIMENTAL_VERSIONED_CONFIG_DIR', value: `${CONFIG_DIRECTORY}/$(POD_NAME)` },
      { name: 'TS_EXPERIMENTAL_SERVICE_AUTO_ADVERTISEMENT', value: 'false' },
      ...dutyVariables(duty),
      ...healthVariables(duty),
    ],
    ...(isEgress(duty) || duty.kind === 'forward-out'
      ? {}
      : { readinessProbe: httpProbe('/healthz', LOCAL_PORT, 5, 2) }),
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

/** Everything that reaches such a pod goes on to the tailnet, probes included. */
export function isEgress({ kind }: Duty): boolean {
  return kind === 'egress-address' || kind === 'egress-name';
}

const SOCKET_VOLUME = 'tailscale';
const SCRATCH_VOLUME = 'tailscale-tmp';
/** Where a kernel lets everybody listen, unless it is told otherwise. */
const FIRST_FREE_PORT = 1024;
/** A container of ours says there whether tailscaled is up; of a forwarder, the first that no Service wants. */
const OPS_PORT = 9005;

/** What the strictest of Kubernetes' pod security standards lets in. */
function podSecurity(duty: Duty): V1PodSecurityContext {
  const low = duty.kind === 'forward-out' && duty.ports.some((port) => port < FIRST_FREE_PORT);
  return {
    seccompProfile: { type: 'RuntimeDefault' },
    ...(low ? { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }] } : {}),
  };
}

const SOCKET_MOUNT: V1VolumeMount = { name: SOCKET_VOLUME, mountPath: SOCKET_DIRECTORY };

/** Whether a server of ours stands beside tailscaled. */
function hasTable(duty: Duty): boolean {
  return duty.kind === 'web' && duty.table !== undefined;
}

/** Whether a container of ours asks tailscaled. */
function sharesSocket(duty: Duty): boolean {
  return duty.kind === 'forward-out' || hasTable(duty);
}

/** Serves what tailscaled leads to it, with certificates of its own. Its listeners are those of the role. */
function ingressContainer({ recorderImage }: SpecOptions): V1Container {
  const env = [
    ...variables({
      TAILCAST_TABLE: `${TABLE_DIRECTORY}/${TABLE}`,
      TAILCAST_SOCKET: SOCKET,
      TAILCAST_OPS_LISTEN: `:${OPS_PORT}`,
    }),
  ];
  return {
    name: 'ingress',
    image: recorderImage,
    args: ['ingress'],
    env,
    ...opsProbes(env),
    securityContext: LOCKED_DOWN,
    volumeMounts: [SOCKET_MOUNT, { name: TABLE_VOLUME, mountPath: TABLE_DIRECTORY, readOnly: true }],
  };
}

/** Listens on the ports of the Service, and dials the same port of its target through the tailscaled beside it. */
function forwarderContainer(
  { target, ports }: Extract<ForwardDuty, { readonly kind: 'forward-out' }>,
  { recorderImage }: SpecOptions,
): V1Container {
  let opsPort = OPS_PORT;
  while (ports.includes(opsPort)) opsPort += 1;
  const env = [
    ...variables({
      TAILCAST_TARGET: target,
      TAILCAST_PORTS: ports.join(','),
      TAILCAST_SOCKET: SOCKET,
      TAILCAST_OPS_LISTEN: `:${opsPort}`,
    }),
  ];
  return {
    name: 'forwarder',
    image: recorderImage,
    args: ['forwarder'],
    env,
    ...opsProbes(env),
    securityContext: LOCKED_DOWN,
    volumeMounts: [SOCKET_MOUNT],
  };
}

function dutyVariables(duty: Duty): readonly V1EnvVar[] {
  const serveFrom = { TS_SERVE_CONFIG: `${SERVE_DIRECTORY}/$(POD_NAME)/${SERVE_CONFIG}` };
  switch (duty.kind) {
    case 'ingress':
      return variables({ TS_DEST_IP: duty.address, TS_INTERNAL_APP: 'k8s-operator-ingress-proxy' });
    case 'ingress-name':
      return variables({
        TS_EXPERIMENTAL_DEST_DNS_NAME: duty.name,
        TS_INTERNAL_APP: 'k8s-operator-ingress-proxy',
      });
    case 'egress-address':
      return variables({ TS_TAILNET_TARGET_IP: duty.address, TS_INTERNAL_APP: 'k8s-operator-egress-proxy' });
    case 'egress-name':
      return variables({ TS_TAILNET_TARGET_FQDN: duty.name, TS_INTERNAL_APP: 'k8s-operator-egress-proxy' });
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
        // A renewal does not name the certificate before it, which would bind it to the account that asked for that one.
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

/** By which the operator knows which pod a report is of. */
const POD_ADDRESSES: V1EnvVar = { name: 'POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } };

/** It answers when its rules are in. */
function healthVariables(duty: Duty): readonly V1EnvVar[] {
  // Its ports are the Service's, and the forwarder answers for the pod.
  if (isEgress(duty) || duty.kind === 'forward-out') return [];
  // Its Services may have addresses of both families, so it listens for both, which is its default.
  if (duty.kind === 'egress-group') return variables({ TS_ENABLE_HEALTH_CHECK: 'true' });
  return variables({ TS_LOCAL_ADDR_PORT: `$(POD_IP):${LOCAL_PORT}`, TS_ENABLE_HEALTH_CHECK: 'true' });
}

function variables(values: Readonly<Record<string, string>>): readonly V1EnvVar[] {
  return Object.entries(values).map(([name, value]) => ({ name, value }));
}

/** The replicas whose configuration every pod mounts, there or not. */
function mountedOrdinals(replicas: number): readonly number[] {
  const count = replicas <= 1 ? 1 : Math.ceil(replicas / MOUNTED_AT_LEAST) * MOUNTED_AT_LEAST;
  return Array.from({ length: count }, (_, ordinal) => ordinal);
}

/** The state that lies in the same Secrets stays out, and a Secret that is not there is no reason to wait. */
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

/** containerboot notices changes of a folder that is a volume by itself. */
function configMounts(name: string, replicas: number): V1VolumeMount[] {
  return mountedOrdinals(replicas).map((ordinal) => ({
    name: `tailscaledconfig-${ordinal}`,
    mountPath: `${CONFIG_DIRECTORY}/${stateSecretName(name, ordinal)}`,
    readOnly: true,
  }));
}

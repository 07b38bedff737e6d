/**
 * The objects of a proxy: a headless Service, and a StatefulSet of the stock tailscale container, in kernel mode but where it
 * serves requests. Names,
 * labels and variables are the reference's, so that its objects can be taken over. Pure.
 */
import type { V1Container, V1EnvVar, V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import type { DesiredObject } from '../kube-object.ts';
import { stateSecretName, type SpecOptions } from '../nodes/node-group.ts';
import {
  httpProbe,
  podFacts,
  spreadOver,
  type DesiredStatefulSet,
  type ImmutableParts,
} from '../nodes/pods.ts';
import { metadataOf } from '../nodes/specs.ts';
import { CONFIG_FILES, SERVE_CONFIG } from './config-file.ts';
import type { Duty, Proxy } from './proxy.ts';

const CONFIG_DIRECTORY = '/etc/tsconfig';
const SERVICES_DIRECTORY = '/etc/proxies';
const SERVE_DIRECTORY = '/etc/tailscaled';
const SERVE_VOLUME = 'serve-config-0';
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
          ...(duty.kind === 'web' ? {} : { initContainers: [forwardingContainer(options)] }),
          containers: [proxyContainer(proxy, options)],
          volumes: [...configVolumes(group.name, group.replicas), ...dutyVolumes(group.name, duty)],
          ...(duty.kind === 'egress-group' ? HANDING_OVER : {}),
          ...(group.replicas > 1 ? { topologySpreadConstraints: spreadOver(group.labels) } : {}),
        },
      },
    },
  };
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
    case 'egress-group':
    case 'web':
    case 'connector':
      return {};
  }
}

/** A pod goes when the Services lead to others, and the next one goes when this one has taken over. */
const HANDING_OVER = {
  terminationGracePeriodSeconds: 90,
  readinessGates: [{ conditionType: 'tailscale.com/egress-services' }],
};

/** What the nodes of a group are to forward, and what a node is to serve. */
function dutyVolumes(name: string, duty: Duty): V1Volume[] {
  if (duty.kind === 'egress-group') return [{ name: 'egress-services', configMap: { name: duty.configMap } }];
  if (duty.kind !== 'web') return [];
  const items = [{ key: SERVE_CONFIG, path: SERVE_CONFIG }];
  return [{ name: SERVE_VOLUME, secret: { secretName: stateSecretName(name, 0), items, optional: true } }];
}

function dutyMounts(name: string, duty: Duty): V1VolumeMount[] {
  if (duty.kind === 'egress-group')
    return [{ name: 'egress-services', mountPath: SERVICES_DIRECTORY, readOnly: true }];
  if (duty.kind !== 'web') return [];
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

function proxyContainer({ group, duty }: Proxy, { tailscaleImage }: SpecOptions): V1Container {
  return {
    name: 'tailscale',
    image: tailscaleImage,
    env: [
      // What is served takes no packets, and so no privilege.
      { name: 'TS_USERSPACE', value: String(duty.kind === 'web') },
      { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
      ...podFacts(),
      { name: 'TS_KUBE_SECRET', value: '$(POD_NAME)' },
      { name: 'TS_EXPERIMENTAL_VERSIONED_CONFIG_DIR', value: `${CONFIG_DIRECTORY}/$(POD_NAME)` },
      { name: 'TS_EXPERIMENTAL_SERVICE_AUTO_ADVERTISEMENT', value: 'false' },
      ...dutyVariables(duty),
      ...healthVariables(duty),
    ],
    ...(isEgress(duty) ? {} : { readinessProbe: httpProbe('/healthz', LOCAL_PORT, 5, 2) }),
    securityContext:
      duty.kind === 'web'
        ? { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }
        : { privileged: true },
    ...(duty.kind === 'egress-group'
      ? {
          lifecycle: {
            preStop: { httpGet: { path: '/internal-egress-services-preshutdown', port: LOCAL_PORT } },
          },
        }
      : {}),
    volumeMounts: [...configMounts(group.name, group.replicas), ...dutyMounts(group.name, duty)],
  };
}

/** Everything that reaches such a pod goes on to the tailnet, probes included. */
export function isEgress({ kind }: Duty): boolean {
  return kind === 'egress-address' || kind === 'egress-name';
}

function dutyVariables(duty: Duty): readonly V1EnvVar[] {
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
    case 'egress-group':
      return [
        { name: 'POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } },
        ...variables({
          TS_EGRESS_PROXIES_CONFIG_PATH: SERVICES_DIRECTORY,
          TS_INTERNAL_APP: 'k8s-operator-proxygroup-egress',
        }),
      ];
    case 'web':
      return variables({
        TS_SERVE_CONFIG: `${SERVE_DIRECTORY}/$(POD_NAME)/${SERVE_CONFIG}`,
        TS_INTERNAL_APP: 'k8s-operator-ingress-resource',
      });
    case 'connector':
      return variables({ TS_INTERNAL_APP: 'k8s-operator-connector-resource' });
  }
}

/** It answers when its rules are in. */
function healthVariables(duty: Duty): readonly V1EnvVar[] {
  if (isEgress(duty)) return [];
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
function configVolumes(name: string, replicas: number): V1Volume[] {
  return mountedOrdinals(replicas).map((ordinal) => ({
    name: `tailscaledconfig-${ordinal}`,
    secret: {
      secretName: stateSecretName(name, ordinal),
      items: CONFIG_FILES.map((key) => ({ key, path: key })),
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

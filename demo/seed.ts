import { timestamp } from './container.ts';
import type { ApiObject } from './json.ts';
import { NODE_NAME } from './objects.ts';
import { HOST_ADDRESS } from './pod-status.ts';
import { requireResource, type Resource } from './resources.ts';

/** An initial object of the cluster. */
export interface Seed {
  readonly resource: Resource;
  readonly namespace: string;
  readonly object: ApiObject;
}

const HEARTBEAT =
  'trap "exit 0" TERM; n=0; while :; do n=$((n+1)); echo "$(date -u +%FT%TZ) heartbeat $n"; sleep 5 & wait $!; done';

/** Returns the namespaces of a new cluster. */
export const SEED_NAMESPACES = ['default', 'kube-node-lease', 'kube-public', 'kube-system', 'web'] as const;

/** Returns the node, Services and pods of a new cluster. `version` is the kubelet version that the node reports. */
export function seeds(version: string, now: Date): readonly Seed[] {
  return [
    seed('', 'nodes', '', node(version, now)),
    seed('', 'services', 'default', service('kubernetes', {}, 443)),
    seed('', 'services', 'web', service('nginx', { app: 'nginx' }, 80)),
    seed('', 'pods', 'default', {
      metadata: { name: 'shell', labels: { app: 'shell' } },
      spec: { containers: [{ name: 'shell', image: 'busybox', command: ['sh', '-c', HEARTBEAT] }] },
    }),
    deployment('web', 'nginx', {
      name: 'nginx',
      image: 'nginx',
      ports: [{ containerPort: 80, protocol: 'TCP' }],
    }),
    deployment('kube-system', 'coredns', { name: 'coredns', image: 'registry.k8s.io/coredns/coredns' }),
  ];
}

function seed(group: string, plural: string, namespace: string, object: ApiObject): Seed {
  return { resource: requireResource(group, plural), namespace, object };
}

function deployment(namespace: string, name: string, container: ApiObject): Seed {
  return seed('apps', 'deployments', namespace, {
    metadata: { name, labels: { app: name } },
    spec: {
      replicas: 1,
      selector: { matchLabels: { app: name } },
      strategy: { type: 'RollingUpdate' },
      template: { metadata: { labels: { app: name } }, spec: { containers: [container] } },
    },
  });
}

function service(name: string, selector: ApiObject, port: number): ApiObject {
  const ports = [{ name: port === 443 ? 'https' : 'http', port, targetPort: port, protocol: 'TCP' }];
  return {
    metadata: { name },
    spec: { ports, selector, clusterIP: port === 443 ? '10.43.0.1' : '10.43.0.80' },
  };
}

function node(version: string, now: Date): ApiObject {
  const time = timestamp(now);
  const resources = { cpu: '2', memory: '4Gi', pods: '50' };
  return {
    metadata: {
      name: NODE_NAME,
      labels: {
        'kubernetes.io/hostname': NODE_NAME,
        'kubernetes.io/os': process.platform,
        'kubernetes.io/arch': process.arch,
        'node-role.kubernetes.io/control-plane': '',
      },
    },
    spec: { podCIDR: '10.42.0.0/16', providerID: `demo://${NODE_NAME}` },
    status: {
      addresses: [
        { type: 'InternalIP', address: HOST_ADDRESS },
        { type: 'Hostname', address: NODE_NAME },
      ],
      capacity: resources,
      allocatable: resources,
      conditions: [
        {
          type: 'Ready',
          status: 'True',
          reason: 'KubeletReady',
          message: 'this machine is the node',
          lastHeartbeatTime: time,
          lastTransitionTime: time,
        },
      ],
      nodeInfo: {
        kubeletVersion: version,
        kubeProxyVersion: version,
        osImage: 'this machine',
        kernelVersion: process.platform,
        containerRuntimeVersion: 'demo://1',
        operatingSystem: process.platform,
        architecture: process.arch,
        machineID: '',
        systemUUID: '',
        bootID: '',
      },
    },
  };
}

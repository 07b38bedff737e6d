/** Applies the settings of a ProxyClass to the StatefulSet of a proxy. Pure. */
import type {
  V1Container,
  V1EnvVar,
  V1ObjectMeta,
  V1PodSpec,
  V1StatefulSetSpec,
} from '@kubernetes/client-node';
import type { ProxyClass } from '../proxy-class/resource.ts';
import type { DesiredStatefulSet } from './pod-specs.ts';
import { isEgress, LOCAL_PORT } from './proxy-specs.ts';
import type { ContainerOverrides } from './schema.ts';
import type { Duty } from './workload.ts';

const DEBUG_PORT = 9001;

/** Type of a plain object with the same fields as a TypeScript class of the Kubernetes client. */
type Plain<T> = { [Key in keyof T]: T[Key] };
type PodTemplate = V1StatefulSetSpec['template'];

/**
 * Returns the StatefulSet with the settings of a class. The class cannot change the operator's labels, the selector, or
 * the annotations that show the last configuration. Security contexts in the class replace the operator's completely,
 * even if they are empty. The user's environment variables override those of the operator.
 */
export function withClass(
  desired: DesiredStatefulSet,
  { spec }: Pick<ProxyClass, 'spec'>,
  duty: Duty,
): DesiredStatefulSet {
  const { labels, annotations } = spec.statefulSet;
  const { metadata } = desired;
  const plainSpec: Plain<V1StatefulSetSpec> = desired.spec;
  return {
    ...desired,
    metadata: {
      ...metadata,
      labels: { ...labels, ...metadata.labels },
      ...withAnnotations({ ...annotations, ...metadata.annotations }),
    },
    spec: { ...plainSpec, template: templateWith(desired.spec.template, spec, duty) },
  };
}

function withAnnotations(annotations: Record<string, string>): { annotations?: Record<string, string> } {
  return Object.keys(annotations).length === 0 ? {} : { annotations };
}

function templateWith(template: Plain<PodTemplate>, spec: ProxyClass['spec'], duty: Duty): PodTemplate {
  const { pod } = spec.statefulSet;
  const podSpec: Plain<V1PodSpec> = template.spec ?? { containers: [] };
  const metadata: Plain<V1ObjectMeta> = template.metadata ?? {};
  const fields = {
    affinity: pod.affinity,
    securityContext: pod.securityContext,
    imagePullSecrets: pod.imagePullSecrets,
    nodeName: pod.nodeName,
    nodeSelector: pod.nodeSelector,
    tolerations: pod.tolerations,
    topologySpreadConstraints: pod.topologySpreadConstraints,
    priorityClassName: pod.priorityClassName,
    dnsPolicy: pod.dnsPolicy,
    dnsConfig: pod.dnsConfig,
  };
  const stated = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  return {
    ...template,
    metadata: {
      ...metadata,
      labels: { ...pod.labels, ...metadata.labels },
      ...withAnnotations({ ...pod.annotations, ...metadata.annotations }),
    },
    spec: {
      ...podSpec,
      ...stated,
      containers: podSpec.containers.map((container) =>
        container.name === 'tailscale' ? tailscaleWith(container, spec, duty) : container,
      ),
      ...(podSpec.initContainers === undefined
        ? {}
        : {
            initContainers: podSpec.initContainers.map((container) =>
              containerWith(container, pod.tailscaleInitContainer),
            ),
          }),
    },
  };
}

/**
 * Returns the tailscale container with the settings of a class. Egress pods get no ports for metrics and debugging,
 * because the Service may use any of their ports.
 */
function tailscaleWith(
  container: Plain<V1Container>,
  { statefulSet, ...spec }: ProxyClass['spec'],
  duty: Duty,
): V1Container {
  const { tailscaleContainer } = statefulSet.pod;
  // The Service may use any port of these pods, so no port is reserved for metrics or debugging.
  const outward = isEgress(duty) || duty.kind === 'forward-out';
  const metrics = spec.metrics.enable && !outward;
  const debug = tailscaleContainer.debug.enable && !outward;
  const env: V1EnvVar[] = [
    ...(metrics ? [{ name: 'TS_ENABLE_METRICS', value: 'true' }] : []),
    ...(debug
      ? [
          { name: 'TS_DEBUG_ADDR_PORT', value: `$(POD_IP):${DEBUG_PORT}` },
          { name: 'TS_TAILSCALED_EXTRA_ARGS', value: '--debug=$(TS_DEBUG_ADDR_PORT)' },
        ]
      : []),
    ...(spec.useLetsEncryptStagingEnvironment
      ? [
          {
            name: 'TS_DEBUG_ACME_DIRECTORY_URL',
            value: 'https://acme-staging-v02.api.letsencrypt.org/directory',
          },
        ]
      : []),
  ];
  const ports = [
    ...(metrics ? [{ name: 'metrics', containerPort: LOCAL_PORT, protocol: 'TCP' }] : []),
    ...(debug ? [{ name: 'debug', containerPort: DEBUG_PORT, protocol: 'TCP' }] : []),
  ];
  const own: V1Container = {
    ...container,
    env: [...(container.env ?? []), ...env],
    ...(ports.length === 0 ? {} : { ports: [...(container.ports ?? []), ...ports] }),
  };
  return containerWith(own, tailscaleContainer);
}

function containerWith(container: Plain<V1Container>, spec: ContainerOverrides): V1Container {
  const { env, image, imagePullPolicy, resources, securityContext } = spec;
  const named = new Set(env.map(({ name }) => name));
  // Server-side apply rejects duplicate names, so of several variables with the same name only the last one stays.
  const last = new Map(env.map(({ name, value }) => [name, value]));
  const merged = [
    ...(container.env ?? []).filter(({ name }) => !named.has(name)),
    ...[...last].map(([name, value]) => ({ name, value })),
  ];
  return {
    ...container,
    ...(merged.length === 0 ? {} : { env: merged }),
    ...(image === '' ? {} : { image }),
    ...(imagePullPolicy === '' ? {} : { imagePullPolicy }),
    ...(resources === undefined ? {} : { resources }),
    ...(securityContext === undefined ? {} : { securityContext }),
  };
}

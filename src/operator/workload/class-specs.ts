/** Applies the settings of a ProxyClass to the StatefulSet of a proxy. Pure. */
import type { V1Container, V1ObjectMeta, V1PodSpec, V1StatefulSetSpec } from '@kubernetes/client-node';
import type { ProxyClass } from '../proxy-class/resource.ts';
import { defined, variables, withOverrides, type DesiredStatefulSet, type Plain } from './pod-specs.ts';
import { LOCAL_PORT, usesAllPorts } from './proxy-specs.ts';
import type { ContainerOverrides } from './schema.ts';
import type { Duty } from './workload.ts';

const DEBUG_PORT = 9001;

type PodTemplate = V1StatefulSetSpec['template'];

/**
 * Returns the StatefulSet with the settings of a class. The class cannot change the operator's labels, the selector, or
 * the annotations with the configuration that the operator set last. Security contexts in the class completely replace
 * those of the operator, even if they are empty. The user's environment variables override those of the operator.
 */
export function withClass(
  desired: DesiredStatefulSet,
  { spec }: Pick<ProxyClass, 'spec'>,
  duty: Duty,
): DesiredStatefulSet {
  const { labels, annotations } = spec.statefulSet;
  const { metadata } = desired;
  return {
    ...desired,
    metadata: {
      ...metadata,
      labels: { ...labels, ...metadata.labels },
      ...withAnnotations({ ...annotations, ...metadata.annotations }),
    },
    spec: { ...desired.spec, template: templateWith(desired.spec.template, spec, duty) },
  };
}

function withAnnotations(annotations: Record<string, string>): { annotations?: Record<string, string> } {
  return Object.keys(annotations).length === 0 ? {} : { annotations };
}

function templateWith(template: Plain<PodTemplate>, spec: ProxyClass['spec'], duty: Duty): PodTemplate {
  const {
    labels,
    annotations,
    tailscaleContainer: _own,
    tailscaleInitContainer,
    ...fields
  } = spec.statefulSet.pod;
  const podSpec: Plain<V1PodSpec> = template.spec ?? { containers: [] };
  const metadata: Plain<V1ObjectMeta> = template.metadata ?? {};
  return {
    ...template,
    metadata: {
      ...metadata,
      labels: { ...labels, ...metadata.labels },
      ...withAnnotations({ ...annotations, ...metadata.annotations }),
    },
    spec: {
      ...podSpec,
      ...defined(fields),
      containers: podSpec.containers.map((container) =>
        container.name === 'tailscale' ? tailscaleWith(container, spec, duty) : container,
      ),
      ...(podSpec.initContainers === undefined
        ? {}
        : {
            initContainers: podSpec.initContainers.map((container) =>
              containerWith(container, tailscaleInitContainer),
            ),
          }),
    },
  };
}

/**
 * Returns the tailscale container with the settings of a class. Egress pods get no ports for metrics and debugging,
 * because the Service may use any of their ports.
 */
function tailscaleWith(container: Plain<V1Container>, spec: ProxyClass['spec'], duty: Duty): V1Container {
  const overrides = spec.statefulSet.pod.tailscaleContainer;
  const hasFreePorts = !usesAllPorts(duty);
  const metrics = spec.metrics.enable && hasFreePorts;
  const debug = overrides.debug.enable && hasFreePorts;
  const env = variables({
    ...(metrics ? { TS_ENABLE_METRICS: 'true' } : {}),
    ...(debug
      ? {
          TS_DEBUG_ADDR_PORT: `$(POD_IP):${DEBUG_PORT}`,
          TS_TAILSCALED_EXTRA_ARGS: '--debug=$(TS_DEBUG_ADDR_PORT)',
        }
      : {}),
    ...(spec.useLetsEncryptStagingEnvironment
      ? { TS_DEBUG_ACME_DIRECTORY_URL: 'https://acme-staging-v02.api.letsencrypt.org/directory' }
      : {}),
  });
  const ports = [
    ...(metrics ? [{ name: 'metrics', containerPort: LOCAL_PORT, protocol: 'TCP' }] : []),
    ...(debug ? [{ name: 'debug', containerPort: DEBUG_PORT, protocol: 'TCP' }] : []),
  ];
  const own: V1Container = {
    ...container,
    env: [...(container.env ?? []), ...env],
    ...(ports.length === 0 ? {} : { ports: [...(container.ports ?? []), ...ports] }),
  };
  return containerWith(own, overrides);
}

function containerWith(
  container: Plain<V1Container>,
  { env, ...overrides }: ContainerOverrides,
): V1Container {
  // Server-side apply rejects duplicate names, so only the last of several variables with the same name stays.
  const last = Object.fromEntries(env.map(({ name, value }) => [name, value]));
  const merged = [
    ...(container.env ?? []).filter(({ name }) => !Object.hasOwn(last, name)),
    ...variables(last),
  ];
  return withOverrides({ ...container, ...(merged.length === 0 ? {} : { env: merged }) }, overrides);
}

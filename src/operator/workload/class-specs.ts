/** What a ProxyClass makes of the StatefulSet of a proxy, field by field. Pure. */
import type {
  V1Container,
  V1EnvVar,
  V1ObjectMeta,
  V1PodSpec,
  V1StatefulSetSpec,
} from '@kubernetes/client-node';
import { isIP } from 'node:net';
import type { ProxyClass } from '../proxy-class/resource.ts';
import type { DesiredStatefulSet } from './pod-specs.ts';
import { isEgress, LOCAL_PORT } from './proxy-specs.ts';
import type { ContainerWish } from './schema.ts';
import type { Duty, ForwardDuty, PacketDuty } from './workload.ts';

const DEBUG_PORT = 9001;

/** The core types are declared as classes; ours are plain objects. */
type Plain<T> = { [Key in keyof T]: T[Key] };
type PodTemplate = V1StatefulSetSpec['template'];

/**
 * The StatefulSet with a class merged into it. What the operator goes by stays as it is: its own labels, the selector's,
 * and the annotations of what was last set. Fields of the pod and security contexts are replaced as a whole, also by an
 * empty one; variables are added behind the operator's, so that the user's win.
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

/** The tailscale container; egress has no ports of its own, because everything goes on to the tailnet. */
function tailscaleWith(
  container: Plain<V1Container>,
  { statefulSet, ...spec }: ProxyClass['spec'],
  duty: Duty,
): V1Container {
  const { tailscaleContainer } = statefulSet.pod;
  // Their ports are those of the Service.
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

function containerWith(container: Plain<V1Container>, wish: ContainerWish): V1Container {
  const { env, image, imagePullPolicy, resources, securityContext } = wish;
  const named = new Set(env.map(({ name }) => name));
  // Server-side apply takes each name once: the last one is the one that counts.
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

/**
 * Proxies for clusters that admit no privileged pod: what would be packets are TCP connections then, and each declared port is
 * forwarded by itself. Pure.
 */

/** On a ProxyClass: `"true"`. */
export const UNPRIVILEGED = 'tailcast.dev/unprivileged';

export function isUnprivileged(proxyClass: Pick<ProxyClass, 'metadata'> | undefined): boolean {
  return proxyClass?.metadata.annotations[UNPRIVILEGED] === 'true';
}

/** A port that a Service declares. */
export interface DeclaredPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

export type ForwardPlan =
  /** `unserved`: what is declared and cannot be carried, as a sentence. */
  | { readonly kind: 'planned'; readonly duty: ForwardDuty; readonly unserved: string | undefined }
  | { readonly kind: 'impossible'; readonly message: string };

/** What a Service's proxy is to do without a privilege. */
export function planForwards(duty: PacketDuty, declared: readonly DeclaredPort[]): ForwardPlan {
  const ports = [...new Set(declared.filter(({ protocol }) => protocol === 'TCP').map(({ port }) => port))];
  const others = declared.filter(({ protocol }) => protocol !== 'TCP');
  const shown = others.map(
    ({ protocol, port, name }) => `${protocol} ${port}${name === '' ? '' : ` (${name})`}`,
  );
  if (ports.length === 0) {
    const what = shown.length === 0 ? 'none is declared' : `there is only ${shown.join(', ')}`;
    return {
      kind: 'impossible',
      message: `spec.ports: an unprivileged proxy carries the TCP ports that are declared, and ${what}: declare them, or name a ProxyClass without ${UNPRIVILEGED}`,
    };
  }
  const unserved =
    shown.length === 0
      ? undefined
      : `not served: ${shown.join(', ')}: an unprivileged proxy carries TCP alone; a ProxyClass without ${UNPRIVILEGED} carries all`;
  return {
    kind: 'planned',
    duty: forwardDuty(
      duty,
      ports.toSorted((a, b) => a - b),
    ),
    unserved,
  };
}

function forwardDuty(duty: PacketDuty, ports: readonly number[]): ForwardDuty {
  switch (duty.kind) {
    case 'ingress':
      return { kind: 'forward-in', of: duty, serveConfig: forwardsTo(duty.address, ports) };
    case 'ingress-name':
      return { kind: 'forward-in', of: duty, serveConfig: forwardsTo(duty.name, ports) };
    case 'egress-address':
      return { kind: 'forward-out', of: duty, target: duty.address, ports };
    case 'egress-name':
      return { kind: 'forward-out', of: duty, target: duty.name.replace(/\.$/, ''), ports };
  }
}

/** The serve configuration of tailscaled with a forward for each port. */
function forwardsTo(host: string, ports: readonly number[]): string {
  const bracketed = isIP(host) === 6 ? `[${host}]` : host;
  const TCP: Record<string, { readonly TCPForward: string }> = {};
  for (const port of ports) TCP[port] = { TCPForward: `${bracketed}:${port}` };
  return JSON.stringify({ TCP });
}

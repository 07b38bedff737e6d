/** Computes the configuration of a group's nodes from its served members. Pure. */
import { isIP } from 'node:net';
import type { HostRoutes, IngressProblem } from '../ingress/routes.ts';
import { CERT_DOMAIN, planServe, type ServeConfig } from '../ingress/serve-config.ts';
import { hostRoute } from '../networks.ts';
import type { NodeOrders } from '../workload/workload.ts';
import { clusterAddresses, type GroupMember } from './member.ts';
import { tailnetServiceName } from './tailnet-service.ts';
import type { Offer } from '../workload/proxy-config.ts';

/**
 * Source of the members' addresses: Tailscale Services, or advertised routes if the control server does not support
 * Tailscale Services.
 */
export type ServeMode = 'service' | 'route';

/** Options for serving an Ingress. */
export interface WebChoices {
  readonly redirect: boolean;
  /** True if HTTP is served in addition to HTTPS. */
  readonly http: boolean;
  /** True if the nodes have certificates. */
  readonly https: boolean;
}

type Web = NonNullable<ServeConfig['Web']>;

/** Serve configuration for one name of an Ingress. */
export interface WebPlan {
  readonly web: Web;
  readonly ports: readonly number[];
  readonly problems: readonly IngressProblem[];
}

/** A member that the group serves. */
export interface ServedMember {
  readonly member: GroupMember;
  /** Addresses, one for each family. */
  readonly addresses: readonly string[];
  /** Name of the member in the tailnet; undefined until a node has joined. */
  readonly dnsName: string | undefined;
  /** Serve configuration of an Ingress; undefined for a Service. */
  readonly web: WebPlan | undefined;
  /** True while the member's certificate does not exist. */
  readonly isCertificatePending: boolean;
  /**
   * True if no endpoint of the Service is ready. The group then does not advertise the member, so that callers reach
   * another cluster.
   */
  readonly unready: boolean;
  /** In route mode: hosts and ports that the group already serves for this member. */
  readonly hosts: readonly string[];
}

const NOTHING: WebPlan = { web: {}, ports: [], problems: [] };

/** Plans the serve configuration for an Ingress. */
export function planWeb(
  mode: ServeMode,
  hosts: ReadonlyMap<string, HostRoutes>,
  {
    hostname,
    dnsName,
    addresses,
  }: {
    readonly hostname: string;
    readonly dnsName: string | undefined;
    readonly addresses: readonly string[];
  },
  { redirect, http, https }: WebChoices,
): WebPlan {
  if (dnsName === undefined) return NOTHING;
  const hasCertificate = https && mode === 'service';
  const choices = { hostname, redirect: redirect && !http, funnel: false };
  const own = mode === 'route' ? addresses : [];
  const { config, ports, problems } = planServe(hosts, { dnsName, addresses: own, hasCertificate }, choices);
  const web: Web = Object.fromEntries(
    Object.entries(config.Web ?? {}).map(([key, value]) => [key.replace(CERT_DOMAIN, dnsName), value]),
  );
  const secure = web[`${dnsName}:443`];
  if (mode === 'route' || !hasCertificate) return { web, ports, problems };
  if (!http || secure === undefined) return { web, ports, problems };
  return { web: { ...web, [`${dnsName}:80`]: secure }, ports: [443, 80], problems };
}

/** Returns the packet forwarding rule of a member on a node; undefined if tailscaled serves the member. */
export function ruleOf(
  mode: ServeMode,
  { member, addresses }: ServedMember,
  nodeAddresses: readonly string[],
): Readonly<Record<string, object>> | undefined {
  // In service mode an Ingress needs no rule, because tailscaled itself accepts connections to the address of the
  // Tailscale Service.
  const targets = member.type === 'svc' ? clusterAddresses(member) : mode === 'route' ? nodeAddresses : [];
  const mappings = addresses.flatMap((address) => {
    const family = isIP(address);
    const target = targets.find((one) => isIP(one) === family);
    return target === undefined
      ? []
      : [[`IPv${family}Mapping`, { TailscaleServiceIP: address, ClusterIP: target }] as const];
  });
  return mappings.length === 0 ? undefined : Object.fromEntries(mappings);
}

/** State of a node that determines its next configuration. */
export interface NodeFacts {
  readonly joined: boolean;
  readonly addresses: readonly string[];
  /** Routes and Tailscale Services that the node's current configuration advertises. */
  readonly offer: Offer;
  /** Returns true if the current pod has applied exactly this rule. */
  readonly forwards: (name: string, rule: object) => boolean;
}

/**
 * Returns the configuration of one node. A node starts to advertise an address only after its pod has reported the
 * forwarding rule. While this pod is replaced, the node keeps advertising the address, because the new pod gets the
 * same rules. Meanwhile, other nodes serve callers.
 */
export function ordersOf(mode: ServeMode, exposures: readonly ServedMember[], facts: NodeFacts): NodeOrders {
  const rules: Record<string, object> = {};
  const routes: string[] = [];
  const services: string[] = [];
  for (const exposure of exposures) {
    const name = tailnetServiceName(exposure.member);
    const rule = ruleOf(mode, exposure, facts.addresses);
    if (rule !== undefined) rules[name] = rule;
    const own = mode === 'route' ? exposure.addresses.map(hostRoute) : [];
    const offered =
      mode === 'route'
        ? own.every((route) => facts.offer.routes.includes(route))
        : facts.offer.services.includes(name);
    const able = rule === undefined ? facts.joined && mode === 'service' : facts.forwards(name, rule);
    if (isIdle(exposure) || !(offered || able)) continue;
    if (mode === 'route') routes.push(...own);
    else services.push(name);
  }
  return {
    rules,
    routes: routes.toSorted(),
    services: services.toSorted(),
    serveConfig: serveConfigOf(mode, exposures),
  };
}

/** True if callers of the member would get no response at present. */
export function isIdle({ web, isCertificatePending, unready }: ServedMember): boolean {
  if (web === undefined) return unready;
  const open = isCertificatePending ? web.ports.filter((port) => port !== 443) : web.ports;
  return open.length === 0;
}

function serveConfigOf(mode: ServeMode, exposures: readonly ServedMember[]): object {
  if (mode === 'service') {
    const services = exposures.map(({ member, web }) => {
      const config = web === undefined ? { Tun: true } : { TCP: portsOf(web.ports), Web: web.web };
      return [tailnetServiceName(member), config] as const;
    });
    return services.length === 0 ? {} : { Services: Object.fromEntries(services) };
  }
  const web: Record<string, object> = {};
  for (const [key, owner] of ownersOfHosts(exposures)) Object.assign(web, { [key]: owner.web?.web[key] });
  return Object.keys(web).length === 0 ? {} : { TCP: portsOf([80]), Web: web };
}

function portsOf(ports: readonly number[]): object {
  return Object.fromEntries(ports.map((port) => [port, port === 443 ? { HTTPS: true } : { HTTP: true }]));
}

/**
 * Returns a map from the key of an Ingress to the hosts in its rules that another Ingress of the group serves instead.
 */
export function takenHosts(exposures: readonly ServedMember[]): ReadonlyMap<string, readonly string[]> {
  const owners = ownersOfHosts(exposures);
  const taken = new Map<string, readonly string[]>();
  for (const exposure of exposures) {
    const lost = Object.keys(exposure.web?.web ?? {}).filter((name) => owners.get(name) !== exposure);
    if (lost.length > 0) taken.set(exposure.member.key, lost);
  }
  return taken;
}

/** Returns a map from the key of a member to the hosts and ports that the group serves for it in route mode. */
export function servedHosts(exposures: readonly ServedMember[]): ReadonlyMap<string, readonly string[]> {
  const byMember = Map.groupBy(ownersOfHosts(exposures), ([, { member }]) => member.key);
  return new Map([...byMember].map(([key, owned]) => [key, owned.map(([host]) => host)]));
}

/**
 * Returns, for each host, the Ingress that serves it. First choice is the Ingress whose own name or address is the
 * host. Second is the Ingress that already serves the host. Last is the oldest Ingress with a rule for the host. If the
 * author of an old Ingress adds a host, the old Ingress can therefore not take this host from a newer one that already
 * serves it.
 */
function ownersOfHosts(exposures: readonly ServedMember[]): ReadonlyMap<string, ServedMember> {
  const owners = new Map<string, ServedMember>();
  const isOwn = ({ dnsName, addresses }: ServedMember, key: string): boolean =>
    [dnsName, ...addresses].some(
      (name) => name !== undefined && (key.startsWith(`${name}:`) || key.startsWith(`${name}.`)),
    );
  const isServed = ({ hosts }: ServedMember, key: string): boolean => hosts.includes(key);
  for (const isFirst of [isOwn, isServed, () => true]) {
    for (const exposure of exposures) {
      for (const key of Object.keys(exposure.web?.web ?? {}))
        if (isFirst(exposure, key) && !owners.has(key)) owners.set(key, exposure);
    }
  }
  return owners;
}

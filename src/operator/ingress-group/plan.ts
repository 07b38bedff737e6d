/** What the nodes of a group are told, from what it serves. Pure. */
import { isIP } from 'node:net';
import type { HostRoutes, IngressProblem } from '../ingress/routes.ts';
import { CERT_DOMAIN, planServe, type ServeConfig } from '../ingress/serve-config.ts';
import { hostRoute } from '../networks.ts';
import type { NodeOrders } from '../workload/workload.ts';
import { clusterAddresses, type GroupMember } from './member.ts';
import { tailnetServiceName } from './tailnet-service.ts';
import type { Offer } from '../workload/proxy-config.ts';

/** How addresses come to the nodes: by Tailscale Services, or by routes where the control server has none. */
export type ServeMode = 'service' | 'route';

/** What an Ingress asks for besides its rules. */
export interface WebChoices {
  readonly redirect: boolean;
  /** HTTP beside HTTPS. */
  readonly http: boolean;
  /** Whether there are certificates. */
  readonly https: boolean;
}

type Web = NonNullable<ServeConfig['Web']>;

/** What is served under one name. */
export interface WebPlan {
  readonly web: Web;
  readonly ports: readonly number[];
  readonly problems: readonly IngressProblem[];
}

/** A member that is served. */
export interface ServedMember {
  readonly member: GroupMember;
  /** One for each family. */
  readonly addresses: readonly string[];
  /** Its name in the tailnet; undefined until a node has joined. */
  readonly dnsName: string | undefined;
  /** Of an Ingress. */
  readonly web: WebPlan | undefined;
  /** Whether it waits for a certificate. */
  readonly waitsForCertificate: boolean;
  /** No endpoint of the Service is ready, so that others should be asked. */
  readonly unready: boolean;
}

const NOTHING: WebPlan = { web: {}, ports: [], problems: [] };

/** What tailscaled serves for an Ingress. */
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

/** Where packets to its addresses go on a node; undefined: tailscaled itself serves it. */
export function ruleOf(
  mode: ServeMode,
  { member, addresses }: ServedMember,
  nodeAddresses: readonly string[],
): Readonly<Record<string, object>> | undefined {
  // A node answers at its own address for what it serves itself.
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

/** What a node has said and done so far. */
export interface NodeFacts {
  readonly joined: boolean;
  readonly addresses: readonly string[];
  /** What it was told to offer. */
  readonly offer: Offer;
  /** Whether the pod that runs now forwards just this. */
  readonly forwards: (name: string, rule: object) => boolean;
}

/**
 * What one node is told. It offers an address when it has said that it forwards what comes there, and goes on offering it while that is
 * wanted: a pod that takes the place of another has the same rules, and others are asked meanwhile.
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

/** Whether nobody would get an answer from it yet. */
export function isIdle({ web, waitsForCertificate, unready }: ServedMember): boolean {
  if (web === undefined) return unready;
  const open = waitsForCertificate ? web.ports.filter((port) => port !== 443) : web.ports;
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

/** Hosts that an older Ingress of the group has already, by the key of the one that wants them as well. */
export function takenHosts(exposures: readonly ServedMember[]): ReadonlyMap<string, readonly string[]> {
  const owners = ownersOfHosts(exposures);
  const taken = new Map<string, readonly string[]>();
  for (const exposure of exposures) {
    const lost = Object.keys(exposure.web?.web ?? {}).filter((name) => owners.get(name) !== exposure);
    if (lost.length > 0) taken.set(exposure.member.key, lost);
  }
  return taken;
}

/** The Ingress that serves each host: the one whose own name or address it is, else the oldest one that names it. */
function ownersOfHosts(exposures: readonly ServedMember[]): ReadonlyMap<string, ServedMember> {
  const owners = new Map<string, ServedMember>();
  const isOwn = ({ dnsName, addresses }: ServedMember, key: string): boolean =>
    [dnsName, ...addresses].some(
      (name) => name !== undefined && (key.startsWith(`${name}:`) || key.startsWith(`${name}.`)),
    );
  for (const own of [true, false]) {
    for (const exposure of exposures) {
      for (const key of Object.keys(exposure.web?.web ?? {}))
        if (isOwn(exposure, key) === own && !owners.has(key)) owners.set(key, exposure);
    }
  }
  return owners;
}

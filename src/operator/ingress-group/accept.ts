/** Selects the members that a group serves, and determines their names, addresses and backends. Effects. */
import { createKeyedCounter, type KeyedCounter } from '../../keyed-counter.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { isOfOther, problemsOfIngress, secretIgnored } from '../ingress/reconcile.ts';
import { backendNames, INGRESS_ANNOTATIONS } from '../ingress/resource.ts';
import { ingressRoutesOf, type HostRoutes, type IngressProblem } from '../ingress/routes.ts';
import { addFinalizer, type ReconcilerDeps, warnOfAll } from '../workload/reconciler.ts';
import { forEachMember } from '../workload/for-each-member.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { claimNames, isSettled, namesByOwner, releaseNames, type NameClaim } from '../workload/names.ts';
import { ANNOTATIONS } from '../service/predicates.ts';
import { grantRoutes, grantServices, createCertificateObjects, type Granted } from './address-allocation.ts';
import type { Allocations } from './allocations.ts';
import { allocationsOf, type Candidates, type GroupContext } from './candidates.ts';
import {
  inOrderOfAge,
  keyOfMember,
  problemOfMember,
  isGroupMember,
  type IngressMember,
  type GroupMember,
} from './member.ts';
import { planWeb, takenHosts, type ServedMember, type ServeMode, type WebPlan } from './plan.ts';
import type { GroupNode } from './reports.ts';

export interface Accepted {
  /** Served members, oldest first. */
  readonly exposures: readonly ServedMember[];
  /** Reasons why the other members are not served. */
  readonly refused: ReadonlyMap<GroupMember, string>;
  /** Allocations at the start of this reconciliation. */
  readonly allocations: Allocations;
  /** True if another resource already owns the name of at least one member. */
  readonly isNameTaken: boolean;
  /** Names for which the nodes request certificates. */
  readonly domains: readonly string[];
  /** First error that concerned only one member. The other members are served. */
  readonly failure: Error | undefined;
}

interface ReconcileInput {
  readonly group: NodeGroup;
  /** Name of the group's `Tailnet` resource; empty for the operator's tailnet. */
  readonly tailnet: string;
  readonly mode: ServeMode;
  readonly candidates: Candidates;
  readonly nodes: readonly GroupNode[];
  readonly control: TailnetControl;
}

/** A member that the group can serve after it has addresses. */
interface ServeRequest {
  readonly member: GroupMember;
  readonly dnsName: string | undefined;
  readonly hosts: ReadonlyMap<string, HostRoutes>;
  readonly problems: readonly IngressProblem[];
}

/** Selects the members that a group serves, and allocates their addresses. */
export async function exposuresOf(context: GroupContext, input: ReconcileInput): Promise<Accepted> {
  const { deps } = context;
  const { group, mode, candidates } = input;
  const refused = new Map<GroupMember, string>();
  const allocations = allocationsOf(candidates.ledgers, group.name);
  const owners = await namesByOwner(deps);
  const accepted = await accept(deps, input, { refused, allocations, owners });
  const { requests, isNameTaken } = accepted;
  const granted = await grant(context, input, requests, allocations);
  const domains = certifiedNames(input, requests);
  const certificates = await createCertificateObjects(deps, group, domains);
  const { filled } = certificates;
  const exposures = requests.flatMap((request) => {
    const before = allocations.get(request.member.key);
    const addresses = addressesOf(granted.get(request.member.key), before?.addresses);
    if (addresses.length === 0) return [];
    const { member, dnsName } = request;
    const isCertificatePending = dnsName !== undefined && domains.includes(dnsName) && !filled.has(dnsName);
    const web = webOf(input, request, addresses);
    // In route mode, members without ready endpoints stay advertised: only this group has their addresses, so callers
    // could not use another cluster.
    const unready = mode === 'service' && member.type === 'svc' && !candidates.hasReadyEndpoint(member);
    return [{ member, addresses, dnsName, web, isCertificatePending, unready, hosts: before?.hosts ?? [] }];
  });
  for (const { member } of requests) {
    const answer = granted.get(member.key);
    if (answer?.kind === 'refused') refused.set(member, answer.message);
  }
  await reportProblems(deps, input, requests, exposures);
  const failure =
    accepted.failure ??
    certificates.failure ??
    [...granted.values()].find((answer) => answer.kind === 'failed')?.error;
  for (const { member } of exposures) {
    const claim = claimOf(member, input.tailnet);
    if (!isSettled(claim, owners)) await releaseNames(deps, claim);
  }
  return { exposures, refused, isNameTaken, allocations, domains, failure };
}

/** Claims the names of the members, oldest first, and adds finalizers to the members. */
async function accept(
  deps: ReconcilerDeps,
  input: ReconcileInput,
  {
    refused,
    allocations,
    owners,
  }: {
    readonly refused: Map<GroupMember, string>;
    readonly allocations: Allocations;
    readonly owners: ReadonlyMap<string, readonly string[]>;
  },
) {
  const requests: ServeRequest[] = [];
  const domain = domainOf(input.nodes);
  let isNameTaken = false;
  const used = createKeyedCounter();
  const take = async (member: GroupMember): Promise<void> => {
    const dnsName = domain === undefined ? undefined : `${member.hostname}.${domain}`;
    const request = { member, dnsName, ...routesOf(member, input.candidates) };
    const bytes = sizeOfMember(input, request);
    const { namespace = '' } = member.metadata;
    const tooLarge = problemOfSize(input.group, namespace, bytes, used);
    if (tooLarge !== undefined) {
      refused.set(member, tooLarge);
      return;
    }
    // If a request fails and the group already serves the member, the group continues to serve the member.
    let isAccepted = allocations.get(member.key)?.hostname === member.hostname;
    try {
      const claim = claimOf(member, input.tailnet);
      const taken = isSettled(claim, owners) ? undefined : await claimNames(deps, claim);
      isAccepted = taken === undefined && isAccepted;
      if (taken !== undefined) {
        const field = member.type === 'svc' ? ANNOTATIONS.hostname : 'spec.tls[0].hosts[0]';
        refused.set(member, `${field}: ${taken}`);
        isNameTaken = true;
        return;
      }
      // Without the finalizer, a member could be deleted before its addresses are released.
      await addFinalizer(deps, member);
      isAccepted = true;
    } finally {
      if (isAccepted) {
        requests.push(request);
        used.take(namespace, bytes);
      }
    }
  };
  const members = await choose(deps, input, refused);
  const failure = await forEachMember(deps, members, keyOfMember, take);
  return { requests, isNameTaken, failure };
}

/**
 * Maximum total size of the configurations of all members, in bytes. The state Secret of a node, which has at most 1
 * MiB, contains these configurations twice: the operator's copy and that of tailscaled.
 */
const MAX_GROUP_BYTES = 320 * 1024;
/** Maximum size of the configuration of one member, in bytes. */
const MAX_MEMBER_BYTES = 64 * 1024;
/** Size of the rule and the routes of a member, in bytes. */
const RULE_BYTES = 256;

/** Returns the number of bytes that a member adds to the configuration of a node. */
function sizeOfMember(input: ReconcileInput, request: ServeRequest): number {
  // In route mode, the configuration repeats the paths for the member's IPv4 address. This example address stands for
  // it, because the member may have no address yet.
  const { web = {} } = webOf(input, request, ['255.255.255.255']) ?? {};
  // tailscaled encodes each of these characters with six bytes.
  return RULE_BYTES + Buffer.byteLength(JSON.stringify(web).replaceAll(/[<>&\u2028\u2029]/g, '\\u0000'));
}

/**
 * Returns the reason why the configuration of a member is too large, or undefined. The members of one namespace use at
 * most half of the space that other namespaces leave free, so that no single namespace can take all space.
 */
function problemOfSize(
  { name }: NodeGroup,
  namespace: string,
  bytes: number,
  used: KeyedCounter,
): string | undefined {
  if (bytes > MAX_MEMBER_BYTES) {
    return (
      `spec.rules: the paths need ${Math.ceil(bytes / 1024)} KiB, and a ProxyGroup serves at most ` +
      `${MAX_MEMBER_BYTES / 1024} KiB of one Ingress: remove paths, or remove ${ANNOTATIONS.proxyGroup}`
    );
  }
  const own = used.usedBy(namespace);
  const share = (MAX_GROUP_BYTES - (used.total - own)) / 2;
  return own + bytes > share
    ? `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}" has no space left for namespace ${namespace}: its older ` +
        `members use ${Math.ceil(own / 1024)} of ${Math.floor(share / 1024)} KiB: name another ProxyGroup`
    : undefined;
}

function claimOf({ kind, metadata, hostname }: GroupMember, tailnet: string): NameClaim {
  return { kind, metadata, tailnet, names: [hostname] };
}

/** Returns the allocated addresses. If the control server failed, the member keeps its previous addresses. */
function addressesOf(answer: Granted | undefined, before: readonly string[] = []): readonly string[] {
  if (answer?.kind === 'granted') return answer.addresses;
  return answer?.kind === 'failed' ? before : [];
}

/** Returns the members that the group can serve, oldest first. */
async function choose(
  deps: ReconcilerDeps,
  { group, candidates }: ReconcileInput,
  refused: Map<GroupMember, string>,
): Promise<readonly GroupMember[]> {
  let members = candidates.members.filter((one) => isGroupMember(one) && one.group === group.name);
  if (members.some(({ type }) => type === 'ingress') && (await isOfOther(deps))) {
    members = members.filter(({ type }) => type !== 'ingress');
  }
  const valid: GroupMember[] = [];
  for (const member of members) {
    const problem = problemOfMember(member) ?? (await problemOfTags(deps, member));
    if (problem === undefined) valid.push(member);
    else refused.set(member, problem);
  }
  return inOrderOfAge(valid);
}

/** Checks the tags of a member's Tailscale Service: the member's own tags, or the default tags. */
async function problemOfTags(
  { tags, options }: ReconcilerDeps,
  member: GroupMember,
): Promise<string | undefined> {
  const wanted = member.tags.length === 0 ? options.defaultTags : member.tags;
  const problem = await tags.problemOf({ namespace: member.metadata.namespace, tags: wanted });
  return problem === undefined ? undefined : `${ANNOTATIONS.tags}: ${problem}`;
}

function grant(
  { deps, inTurn }: GroupContext,
  { group, mode, candidates, nodes, control }: ReconcileInput,
  requests: readonly ServeRequest[],
  allocations: Allocations,
): Promise<ReadonlyMap<string, Granted>> {
  const members = requests.map(({ member }) => member);
  if (mode === 'route' || control.services === undefined) {
    return grantRoutes(deps, group, members, inTurn);
  }
  const asked = requests
    // The ports of an Ingress depend on its name in the tailnet. While this name is unknown, the Ingress gets no
    // address.
    .filter(({ member, dnsName }) => member.type === 'svc' || dnsName !== undefined)
    .map((request) => ({ member: request.member, ports: webOf({ mode, nodes }, request, [])?.ports ?? [] }))
    .filter(({ member, ports }) => member.type === 'svc' || ports.length > 0);
  const present = new Set(candidates.members.map(({ metadata }) => metadata.uid));
  return grantServices(deps, control.services, group, asked, present, allocations);
}

function routesOf(member: GroupMember, candidates: Candidates): Pick<ServeRequest, 'hosts' | 'problems'> {
  if (member.type === 'svc') return { hosts: new Map(), problems: [] };
  const { metadata, resource } = member;
  return ingressRoutesOf(resource, candidates.services(metadata.namespace, backendNames(resource)));
}

function webOf(
  { mode, nodes }: Pick<ReconcileInput, 'mode' | 'nodes'>,
  { member, dnsName, hosts }: ServeRequest,
  addresses: readonly string[],
): WebPlan | undefined {
  if (member.type === 'svc') return undefined;
  const { annotations } = member.metadata;
  const choices = {
    redirect: annotations[INGRESS_ANNOTATIONS.redirect] === 'true',
    http: annotations[INGRESS_ANNOTATIONS.http] === 'enabled',
    https: hasCertificates(nodes),
  };
  return planWeb(mode, hosts, { hostname: member.hostname, dnsName, addresses }, choices);
}

/** Returns the domain of the tailnet, which is part of the names of the nodes. */
function domainOf(nodes: readonly GroupNode[]): string | undefined {
  const name = nodes.find(({ dnsName }) => dnsName !== undefined)?.dnsName;
  return name?.slice(name.indexOf('.') + 1);
}

function hasCertificates(nodes: readonly GroupNode[]): boolean {
  return nodes.every(({ https }) => https);
}

/** Returns the names for which the nodes request certificates. */
function certifiedNames(
  { mode, nodes, control }: ReconcileInput,
  requests: readonly ServeRequest[],
): readonly string[] {
  if (mode === 'route' || !control.issuesCertificates || !hasCertificates(nodes)) return [];
  return requests.flatMap((request) =>
    request.dnsName !== undefined && webOf({ mode, nodes }, request, [])?.ports.includes(443) === true
      ? [request.dnsName]
      : [],
  );
}

/** Reports problems of an Ingress as events, because an Ingress has no conditions. */
async function reportProblems(
  deps: ReconcilerDeps,
  { mode, nodes }: ReconcileInput,
  requests: readonly ServeRequest[],
  exposures: readonly ServedMember[],
): Promise<void> {
  const taken = takenHosts(exposures);
  for (const { member, web, addresses } of exposures) {
    if (member.type !== 'ingress') continue;
    const request = requests.find((one) => one.member.key === member.key);
    const problems = [
      ...(request?.problems ?? []),
      ...(web?.problems ?? []),
      ...problemsOfIngress(
        member.resource,
        { dnsName: addresses[0], hasCertificate: mode === 'service' && hasCertificates(nodes) },
        request?.hosts.size ?? 0,
      ),
      ...problemsOfGroup(member, taken.get(member.key) ?? []),
    ];
    await warnOfAll(deps, member, problems);
  }
}

function problemsOfGroup(
  { metadata, resource }: IngressMember,
  taken: readonly string[],
): readonly IngressProblem[] {
  const { funnel } = INGRESS_ANNOTATIONS;
  return [
    ...secretIgnored(
      resource,
      `a ProxyGroup serves no certificates of Secrets: remove it, or remove ${ANNOTATIONS.proxyGroup}, and the ` +
        'Ingress gets its own node, which serves them',
    ),
    ...(metadata.annotations[funnel] === 'true'
      ? [{ reason: 'FunnelIgnored', message: `${funnel}: a ProxyGroup serves only the tailnet: remove it` }]
      : []),
    ...taken.map((key) => ({
      reason: 'UnsupportedHost',
      message: `spec.rules: another Ingress of the group has ${key.replace(/:\d+$/, '')} already: name another host`,
    })),
  ];
}

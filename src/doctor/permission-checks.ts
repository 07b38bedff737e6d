/**
 * Checks that the gateway's account may impersonate, and has no other rights. If the account had more rights, a defect
 * in the gateway could let a request succeed that must be rejected.
 */
import type { ApiClient } from './api-client.ts';
import { failed, ok, skipped, warning, type Check, type CheckVerdict } from './checks.ts';
import { may, readRules, type Access, type Rule } from './reviews.ts';

export interface PermissionFacts {
  readonly client: () => Promise<ApiClient>;
  readonly mode: 'auth' | 'noauth';
  /** Namespace for the review of rules. Kubernetes lists rules only for a single namespace. */
  readonly namespace: string;
  /** Name of this pod. The Secrets with the keys of tailnet nodes have the names of the pods. */
  readonly podName?: string | undefined;
}

/** Dangerous rights that the gateway's account must not have. */
const DANGEROUS: readonly Access[] = [
  { verb: '*', group: '*', resource: '*' },
  { verb: 'get', group: '', resource: 'secrets' },
  { verb: 'create', group: '', resource: 'pods' },
  { verb: 'create', group: '', resource: 'pods', subresource: 'exec' },
  { verb: 'create', group: 'rbac.authorization.k8s.io', resource: 'clusterrolebindings' },
  { verb: 'impersonate', group: '', resource: 'serviceaccounts' },
];

const BIND =
  'bind the ClusterRole of deploy/rbac/gateway.yaml to the account; the chart does this with rbac.create=true';
const LESS =
  'remove these rights: the account needs only `impersonate` on users and groups; use its own service account';

export function permissionChecks(facts: PermissionFacts): readonly Check[] {
  return [
    {
      id: 'may-impersonate',
      title: 'may impersonate',
      needs: ['credential'],
      remedy: BIND,
      run: (signal) => (facts.mode === 'noauth' ? notNeeded() : mayImpersonate(facts, signal)),
    },
    {
      id: 'may-nothing-else',
      title: 'may nothing else',
      needs: ['credential'],
      remedy: LESS,
      run: (signal) => (facts.mode === 'noauth' ? notNeeded() : hasNoOtherRights(facts, signal)),
    },
  ];
}

async function notNeeded(): Promise<CheckVerdict> {
  return skipped(
    'mode noauth: callers use their own tokens or exec plugins; client certificates do not work through a gateway',
  );
}

async function mayImpersonate(facts: PermissionFacts, signal: AbortSignal): Promise<CheckVerdict> {
  const client = await facts.client();
  const wanted = ['users', 'groups'];
  const allowed = await Promise.all(
    wanted.map((resource) => may(client, { verb: 'impersonate', group: '', resource }, signal)),
  );
  const { rules } = await readRules(client, facts.namespace, signal);
  if (wanted.every((resource) => isConstrainedTo(rules, resource)))
    return ok('users and groups, constrained');
  const named: string[] = [];
  const missing: string[] = [];
  for (const [index, resource] of wanted.entries()) {
    if (allowed[index] === true) continue;
    const names = rules
      .filter(({ verbs, resources }) => verbs.includes('impersonate') && resources.includes(resource))
      .flatMap(({ resourceNames }) => resourceNames);
    if (names.length > 0) named.push(`${resource} ${shorten(names)}`);
    else missing.push(resource);
  }
  if (missing.length > 0) return failed(`the account may not impersonate ${missing.join(' and ')}`, BIND);
  return ok(named.length === 0 ? 'users and groups' : `only ${named.join('; ')}`);
}

async function hasNoOtherRights(facts: PermissionFacts, signal: AbortSignal): Promise<CheckVerdict> {
  const client = await facts.client();
  const verdicts = await Promise.all(
    DANGEROUS.map(async (access) => ({ access, allowed: await may(client, access, signal) })),
  );
  const dangerous = verdicts.filter(({ allowed }) => allowed).map(({ access }) => describe(access));
  if (dangerous.length > 0) return failed(`the account may ${shorten(dangerous)} in every namespace`, LESS);
  const { rules, incomplete } = await readRules(client, facts.namespace, signal);
  const more = rules
    .filter((rule) => !isHarmless(rule) && !isNodeState(rule, facts.podName))
    .map(({ verbs, resources }) => `${verbs.join('/')} ${resources.join(', ')}`);
  if (more.length > 0)
    return warning(`in namespace ${facts.namespace} the account may also ${shorten(more)}`, LESS);
  return ok(incomplete ? 'as far as the API server can list it' : 'nothing else');
}

const PEOPLE: ReadonlySet<string> = new Set(['users', 'groups']);
/** Verb for constrained impersonation (KEP-5284) of users, except nodes and service accounts. */
const CONSTRAINED = 'impersonate:user-info';

function isConstrainedTo(rules: readonly Rule[], resource: string): boolean {
  return rules.some(({ verbs, resources }) => verbs.includes(CONSTRAINED) && resources.includes(resource));
}

/** True if a rule contains only rights that every account has or that the gateway needs. */
function isHarmless({ verbs, resources }: Rule): boolean {
  if (resources.every((resource) => /^self(subject|node)/.test(resource))) return true;
  // With constrained impersonation, `impersonate-on:` rights apply only to actions as the impersonated user.
  if (verbs.every((verb) => verb.startsWith('impersonate-on:'))) return true;
  if (resources.every((resource) => /^accessrequests(?:\/status)?$/.test(resource))) return true;
  const impersonates = verbs.every((verb) => verb === 'impersonate' || verb === CONSTRAINED);
  return (
    impersonates && resources.every((resource) => PEOPLE.has(resource) || resource.startsWith('userextras/'))
  );
}

/**
 * Returns true if the rule permits only access to the Secrets in which the pods of this StatefulSet keep their node
 * keys. The tailscale container of the pod needs this right, and uses the same account.
 */
function isNodeState({ resources, resourceNames, verbs }: Rule, podName: string | undefined): boolean {
  const prefix = /^(.+-)\d+$/.exec(podName ?? '')?.[1];
  if (prefix === undefined || resources.some((resource) => resource !== 'secrets')) return false;
  const named = resourceNames.length > 0 && resourceNames.every((name) => name.startsWith(prefix));
  return named && verbs.every((verb) => ['get', 'patch', 'update'].includes(verb));
}

function describe({ verb, resource, subresource, group }: Access): string {
  if (verb === '*') return 'do everything';
  const name = subresource === undefined ? resource : `${resource}/${subresource}`;
  return `${verb} ${group === '' ? name : `${name}.${group}`}`;
}

function shorten(names: readonly string[]): string {
  const shown = names.slice(0, 6);
  return shown.join(', ') + (names.length > shown.length ? ` and ${names.length - shown.length} more` : '');
}

/** Finds objects in the cluster and nodes in the tailnet that no resource needs any more. */
import type { TailnetNodeEntry } from '../../operator/auth-keys.ts';
import { KINDS, labelValue, type KubeObject, type ResourceKind } from '../../operator/kube-object.ts';
import { kindSelector, parentOf, typeSelector, type ParentType } from '../../operator/workload/workload.ts';
import { machineKeyOf, readNodeState } from '../../operator/workload/node-state.ts';
import { ok, warning, type Check } from '../checks.ts';
import type { ClusterView, ParentKind } from './cluster-view.ts';
import { some } from './parents.ts';

export interface LeftoverFacts {
  readonly view: ClusterView;
  readonly namespace: string;
  readonly defaultTags: readonly string[];
  readonly nodes: () => Promise<readonly TailnetNodeEntry[]>;
}

const PARENT_TYPES: readonly { readonly type: ParentType; readonly kind: ParentKind }[] = [
  { type: 'svc', kind: 'Service' },
  { type: 'ingress', kind: 'Ingress' },
  { type: 'gateway', kind: 'Gateway' },
  { type: 'connector', kind: 'Connector' },
  { type: 'proxygroup', kind: 'ProxyGroup' },
];
const MADE: readonly ResourceKind[] = [
  KINDS.statefulSet,
  KINDS.secret,
  KINDS.service,
  KINDS.serviceAccount,
  KINDS.role,
  KINDS.roleBinding,
];
/** Prefix of the finalizers of the operator and of the reference (Tailscale's operator). */
const MARK = 'tailscale.com/';

export function leftoverChecks(facts: LeftoverFacts): readonly Check[] {
  const { view, namespace, defaultTags, nodes } = facts;
  return [
    {
      id: 'left-objects',
      title: 'objects without owner',
      needs: ['resources', 'rights'],
      remedy: 'check that the operator’s account may read them',
      async run() {
        const left = await orphansOf(view);
        if (left.length === 0) return ok('none');
        const names = left.map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`);
        return warning(
          `${left.length}: ${some(names)}`,
          `their resources are deleted or no longer need them: kubectl -n ${namespace} delete ` +
            `${names.slice(0, 5).join(' ')}`,
        );
      },
    },
    {
      id: 'left-nodes',
      title: 'nodes without owner',
      needs: ['control', 'rights'],
      remedy: 'check that the control server lists its nodes',
      async run() {
        const secrets = await statesOf(view);
        const known = new Set(
          secrets.flatMap((secret) => [readNodeState(secret).deviceId, machineKeyOf(secret)]),
        );
        const ours = (await nodes()).filter(({ tags }) => tags.some((tag) => defaultTags.includes(tag)));
        const left = ours.filter(({ id, machineKey }) => !known.has(id) && !known.has(machineKey));
        if (left.length === 0) return ok(`none; ${ours.length} with ${defaultTags.join(' or ')}`);
        return warning(
          `${left.length} with ${defaultTags.join(' or ')} unknown in namespace ${namespace}: ` +
            `${some(left.map(({ name }) => name))}`,
          'if no other cluster or machine uses this tag, remove the nodes at the control server; give each ' +
            'operator its own --default-tags',
        );
      },
    },
  ];
}

async function orphansOf(view: ClusterView): Promise<readonly KubeObject[]> {
  const left: KubeObject[] = [];
  for (const { type, kind } of PARENT_TYPES) {
    const parents = await view.parents(kind);
    if (parents === undefined) continue;
    const isMarked = ({ metadata }: KubeObject): boolean =>
      metadata.finalizers?.some((one) => one.startsWith(MARK)) === true;
    const asking = new Set(
      parents
        .filter(isMarked)
        .map(({ metadata }) => `${metadata.namespace ?? ''}/${labelValue(metadata.name)}`),
    );
    const isCluster = kind === 'Connector' || kind === 'ProxyGroup';
    for (const made of MADE) {
      for (const object of await view.made(made, typeSelector(type))) {
        const parent = parentOf(object);
        if (parent === undefined || object.metadata.deletionTimestamp !== undefined) continue;
        if (!asking.has(`${isCluster ? '' : parent.namespace}/${parent.name}`)) left.push(object);
      }
    }
  }
  return left;
}

/** Returns the state Secrets of all tailnet nodes that the operator has created, for any kind of resource. */
async function statesOf(view: ClusterView): Promise<readonly KubeObject[]> {
  const selectors = [
    ...PARENT_TYPES.map(({ type }) => typeSelector(type)),
    kindSelector('Recorder'),
    kindSelector('ProxyGroup'),
  ];
  const found = await Promise.all(selectors.map((one) => view.made(KINDS.secret, one)));
  return found.flat();
}

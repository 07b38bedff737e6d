/** May the operator read the Secrets that Ingresses name? It need not: the right is optional, and in a file of its own. */
import { parseIngress, wantsProxy } from '../../operator/ingress/resource.ts';
import { secretNames } from '../../operator/ingress/table.ts';
import type { KubeObject } from '../../operator/kube-object.ts';
import type { ApiClient } from '../api-client.ts';
import { ok, skipped, warning, type Check } from '../checks.ts';
import { may } from '../reviews.ts';
import type { ClusterView } from './cluster-view.ts';
import { some } from './parents.ts';

const GRANT =
  'grant it get on them (kubectl apply -f deploy/rbac/ingress-secrets.yaml, in the chart operator.ingresses.secrets: true; for some namespaces alone, bind that ClusterRole there), or remove secretName';
const GET_SECRETS = { verb: 'get', group: '', resource: 'secrets' } as const;

/** As many questions as there are Secrets, at most, within the time of a check. */
export function ingressSecretsCheck(facts: {
  readonly view: Pick<ClusterView, 'parents'>;
  readonly client: () => Promise<ApiClient>;
}): Check {
  return {
    id: 'ingress-secrets',
    title: 'Secrets of Ingresses',
    needs: ['resources'],
    remedy: GRANT,
    async run(signal) {
      const ingresses = await facts.view.parents('Ingress', signal);
      if (ingresses === undefined) return skipped('switched off');
      const api = await facts.client();
      const named = namedBy(ingresses);
      if (await may(api, GET_SECRETS, signal)) {
        return ok(`it may read the Secrets of every namespace; Ingresses name ${named.length}`);
      }
      if (named.length === 0) return ok('it may not read Secrets, and no Ingress names one');
      const unread: Named[] = [];
      for (const secret of named) {
        const { namespace, name } = secret;
        if (!(await may(api, { ...GET_SECRETS, namespace, name }, signal))) unread.push(secret);
      }
      if (unread.length === 0) return ok(`it may read all ${named.length} that Ingresses name`);
      const texts = unread.map(({ namespace, name, ingress }) => `${namespace}/${name} (Ingress ${ingress})`);
      return warning(`it may not read ${some(texts)}: certificates in them are not served`, GRANT);
    },
  };
}

interface Named {
  readonly namespace: string;
  readonly name: string;
  /** The first that names it. */
  readonly ingress: string;
}

/** Each once. Those of ProxyGroups are left out: no right makes a group serve them. */
function namedBy(ingresses: readonly KubeObject[]): readonly Named[] {
  const found = new Map<string, Named>();
  for (const ingress of ingresses.map(parseIngress).filter(wantsProxy)) {
    const { namespace = '', name: by } = ingress.metadata;
    for (const name of secretNames(ingress)) {
      const key = `${namespace}/${name}`;
      if (!found.has(key)) found.set(key, { namespace, name, ingress: by });
    }
  }
  return [...found.values()];
}

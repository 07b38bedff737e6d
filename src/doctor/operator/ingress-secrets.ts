/**
 * Checks that the operator can read the Secrets of Ingresses and Gateways. The right is optional, and has its own
 * manifest.
 */
import { certificateNames } from '../../operator/gateway/listeners.ts';
import { parseGateway } from '../../operator/gateway/resource.ts';
import { parseIngress, hasOwnProxy } from '../../operator/ingress/resource.ts';
import { secretNames } from '../../operator/ingress/table.ts';
import type { KubeObject } from '../../operator/kube-object.ts';
import type { ApiClient } from '../api-client.ts';
import { ok, skipped, warning, type Check } from '../checks.ts';
import { may } from '../reviews.ts';
import type { ClusterView } from './cluster-view.ts';
import { some } from './parents.ts';

const GRANT =
  'give the account the right to get Secrets (kubectl apply -f deploy/rbac/ingress-secrets.yaml, or ' +
  'operator.ingresses.secrets in the chart; to limit it, bind that ClusterRole in single namespaces), or remove ' +
  'secretName';
const GET_SECRETS = { verb: 'get', group: '', resource: 'secrets' } as const;

/** Maximum number of reviews, one per Secret, within the time of a check. */
export function ingressSecretsCheck(facts: {
  readonly view: Pick<ClusterView, 'parents'>;
  readonly client: () => Promise<ApiClient>;
}): Check {
  return {
    id: 'ingress-secrets',
    title: 'Secrets of Ingresses and Gateways',
    needs: ['resources'],
    remedy: GRANT,
    async run(signal) {
      const ingresses = await facts.view.parents('Ingress', signal);
      const gateways = await facts.view.parents('Gateway', signal);
      if (ingresses === undefined && gateways === undefined) return skipped('disabled');
      const api = await facts.client();
      const named = namedBy(ingresses ?? [], gateways ?? []);
      if (await may(api, GET_SECRETS, signal)) {
        return ok(`the account may read the Secrets of every namespace; resources name ${named.length}`);
      }
      if (named.length === 0) return ok('the account may not read Secrets, and no resource names a Secret');
      const unread: Named[] = [];
      for (const secret of named) {
        const { namespace, name } = secret;
        if (!(await may(api, { ...GET_SECRETS, namespace, name }, signal))) unread.push(secret);
      }
      if (unread.length === 0) return ok(`the account may read all ${named.length} named Secrets`);
      const texts = unread.map(({ namespace, name, by }) => `${namespace}/${name} (${by})`);
      return warning(`the account may not read ${some(texts)}: their certificates are not served`, GRANT);
    },
  };
}

interface Named {
  readonly namespace: string;
  readonly name: string;
  /** First object that names the Secret. */
  readonly by: string;
}

/**
 * Secrets of the objects, without duplicates. Objects of ProxyGroups are skipped, because groups never serve these
 * Secrets.
 */
function namedBy(ingresses: readonly KubeObject[], gateways: readonly KubeObject[]): readonly Named[] {
  const found = new Map<string, Named>();
  const note = ({ namespace = '' }: KubeObject['metadata'], names: readonly string[], by: string): void => {
    for (const name of names) {
      const key = `${namespace}/${name}`;
      if (!found.has(key)) found.set(key, { namespace, name, by });
    }
  };
  for (const ingress of ingresses.map(parseIngress).filter(hasOwnProxy))
    note(ingress.metadata, secretNames(ingress), `Ingress ${ingress.metadata.name}`);
  for (const gateway of gateways.map(parseGateway))
    note(gateway.metadata, certificateNames(gateway), `Gateway ${gateway.metadata.name}`);
  return [...found.values()];
}

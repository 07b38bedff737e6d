/** The CustomResourceDefinitions of Tailnet and ProxyGroupPolicy: the reference's fields. */
import { conditionsSchema, crd, list, object, text } from './schema-parts.ts';

export function tailnetCrd(): object {
  const credentials = object(
    'Location of the credentials.',
    {
      secretName: text(
        'Name of a Secret in the namespace of the operator, with client_id and either client_secret or audience (workload identity federation).',
      ),
    },
    { required: ['secretName'] },
  );
  return crd({
    kind: 'Tailnet',
    shortName: 'tn',
    description: 'A tailnet that nodes of other resources join instead of the tailnet of the operator.',
    ageFirst: true,
    required: ['metadata', 'spec'],
    columns: [
      {
        name: 'Status',
        type: 'string',
        description: 'Result of the last check of the credentials.',
        jsonPath: '.status.conditions[?(@.type == "TailnetReady")].reason',
      },
    ],
    spec: object(
      'The tailnet.',
      { credentials, loginUrl: text('URL of its control server. Default: the URL of Tailscale.') },
      { required: ['credentials'] },
    ),
    status: object('Result of the last check.', {
      conditions: conditionsSchema('TailnetReady: true if the credentials work.', 'TailnetReady'),
    }),
  });
}

export function proxyGroupPolicyCrd(): object {
  const groups = (what: string): object =>
    list(`Names of ProxyGroups that ${what} of this namespace may use. An empty list allows none.`, {
      type: 'string',
    });
  return crd({
    kind: 'ProxyGroupPolicy',
    plural: 'proxygrouppolicies',
    shortName: 'pgp',
    description:
      'The ProxyGroups that a namespace may use. The policies of a namespace add up. A namespace without a policy may use all groups.',
    scope: 'Namespaced',
    required: ['metadata', 'spec'],
    columns: [],
    spec: object('The allowed groups.', {
      ingress: groups('Ingresses and exposed Services'),
      egress: groups('Services that lead to the tailnet'),
    }),
    status: object('State of the policy.', {
      conditions: conditionsSchema('Reserved for conditions.', 'Type of the condition.'),
    }),
  });
}

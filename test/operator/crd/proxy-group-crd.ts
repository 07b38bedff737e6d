/**
 * The CustomResourceDefinition of ProxyGroup: the reference's fields, so that groups of every type can be stored. The
 * operator sees to those of the types kube-apiserver and egress. `deploy/crds/proxygroup.yaml` is what `regenerate.ts` wrote.
 */
import type { Schema } from './core-schema.ts';
import { conditionsSchema, crd, devicesSchema, list, object, text } from './schema-parts.ts';

const never = (field: string): Schema => ({
  'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: `ProxyGroup ${field} is immutable` }],
});

export function proxyGroupCrd(): object {
  return crd({
    kind: 'ProxyGroup',
    shortName: 'pg',
    description:
      'Nodes of the tailnet that do the same work. With type kube-apiserver: gateways to this API server; with type egress: the ways of many Services into the tailnet.',
    columns: [
      {
        name: 'Status',
        type: 'string',
        description: 'How far the group is deployed.',
        jsonPath: '.status.conditions[?(@.type == "ProxyGroupReady")].reason',
      },
      {
        name: 'URL',
        type: 'string',
        description: 'Where the API server is reached, with type kube-apiserver.',
        jsonPath: '.status.url',
      },
      { name: 'Type', type: 'string', description: 'What its nodes do.', jsonPath: '.spec.type' },
    ],
    spec: specSchema(),
    status: statusSchema(),
  });
}

function specSchema(): Schema {
  return object(
    'The nodes that are wanted.',
    {
      type: text('What the nodes do. This operator sees to kube-apiserver and egress.', {
        enum: ['egress', 'ingress', 'kube-apiserver'],
        ...never('type'),
      }),
      replicas: {
        description: 'How many nodes there are. Default: 2.',
        type: 'integer',
        format: 'int32',
        minimum: 0,
      },
      tags: list('Tags of the nodes. Default: what the operator is told, tag:k8s.', {
        type: 'string',
        pattern: '^tag:[a-zA-Z][a-zA-Z0-9-]*$',
      }),
      hostnamePrefix: text(
        'Beginning of the nodes’ names; a hyphen and their number follow. Default: the name of the group.',
        {
          pattern: '^[a-z0-9][a-z0-9-]{0,61}$',
        },
      ),
      proxyClass: text('Name of a ProxyClass that the pods follow. Gateways follow none: an event says so.'),
      tailnet: text(
        'Name of the Tailnet resource whose tailnet the nodes join. Default: the operator’s.',
        never('tailnet'),
      ),
      kubeAPIServer: object('What gateways do, with type kube-apiserver.', {
        mode: text(
          'auth: impersonate the tailnet identity; noauth: pass the client’s own credentials through. Default: auth.',
          {
            enum: ['auth', 'noauth'],
          },
        ),
        hostname: text(
          'The one name of all gateways, where the control server has Services. Default: the name of the group.',
          {
            pattern: '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$',
          },
        ),
      }),
    },
    { required: ['type'] },
  );
}

function statusSchema(): Schema {
  return object('What the operator has done.', {
    conditions: conditionsSchema(
      'ProxyGroupReady: whether everything is deployed and every gateway takes callers; ProxyGroupAvailable: whether a node has joined; KubeAPIServerProxyValid: whether the name can be had; KubeAPIServerProxyConfigured: whether a gateway takes callers.',
      'Which condition.',
    ),
    devices: devicesSchema({
      staticEndpoints: list('Fixed addresses under which peers reach it, if it has any.', { type: 'string' }),
    }),
    url: text('Where the API server is reached.'),
  });
}

/** The CustomResourceDefinition of Connector: the reference's fields and rules. */
import type { Schema } from './core-schema.ts';
import { conditionsSchema, crd, flag, list, object, plainDevicesSchema, text } from './schema-parts.ts';

const CIDR = { type: 'string', format: 'cidr' } as const;

export function connectorCrd(): object {
  return crd({
    kind: 'Connector',
    shortName: 'cn',
    description:
      'Nodes of the tailnet that route: to networks of the cluster, out to the internet, or to applications by name.',
    columns: [
      {
        name: 'SubnetRoutes',
        type: 'string',
        description: 'Networks that it offers to the tailnet.',
        jsonPath: '.status.subnetRoutes',
      },
      {
        name: 'IsExitNode',
        type: 'string',
        description: 'Whether it is an exit node.',
        jsonPath: '.status.isExitNode',
      },
      {
        name: 'IsAppConnector',
        type: 'string',
        description: 'Whether it is an app connector.',
        jsonPath: '.status.isAppConnector',
      },
      {
        name: 'Status',
        type: 'string',
        description: 'How far it is deployed.',
        jsonPath: '.status.conditions[?(@.type == "ConnectorReady")].reason',
      },
    ],
    spec: specSchema(),
    status: statusSchema(),
  });
}

function specSchema(): Schema {
  return object(
    'The routers that are wanted.',
    {
      replicas: {
        description: 'How many nodes there are. Default: 1.',
        type: 'integer',
        format: 'int32',
        minimum: 0,
      },
      tags: list('Tags of the nodes. Default: what the operator is told, tag:k8s.', {
        type: 'string',
        pattern: '^tag:[a-zA-Z][a-zA-Z0-9-]*$',
      }),
      hostname: text('Name of the node. Default: the name of the Connector and -connector.', {
        pattern: '^[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$',
      }),
      hostnamePrefix: text('Beginning of the nodes’ names; a hyphen and their number follow.', {
        pattern: '^[a-z0-9][a-z0-9-]{0,61}$',
      }),
      proxyClass: text('Name of a ProxyClass, whose choices the pods follow.'),
      tailnet: text('Name of the Tailnet resource whose tailnet the nodes join. Default: the operator’s.', {
        'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: 'Connector tailnet is immutable' }],
      }),
      subnetRouter: object(
        'Networks that nodes of the tailnet reach through it.',
        { advertiseRoutes: list('The networks, e.g. 10.40.0.0/14.', CIDR, { minItems: 1 }) },
        { required: ['advertiseRoutes'] },
      ),
      exitNode: flag('Whether nodes of the tailnet may reach the internet through it.'),
      appConnector: object(
        'Applications that nodes of the tailnet reach through it, by name; the tailnet’s policy names them.',
        {
          routes: list('Networks that are known beforehand.', CIDR, { minItems: 1 }),
        },
      ),
    },
    {
      'x-kubernetes-validations': [
        {
          rule: 'has(self.subnetRouter) || (has(self.exitNode) && self.exitNode == true) || has(self.appConnector)',
          message:
            'A Connector needs to have at least one of exit node, subnet router or app connector configured.',
        },
        {
          rule: '!((has(self.subnetRouter) || (has(self.exitNode)  && self.exitNode == true)) && has(self.appConnector))',
          message: 'The appConnector field is mutually exclusive with exitNode and subnetRouter fields.',
        },
        {
          rule: '!(has(self.hostname) && has(self.replicas) && self.replicas > 1)',
          message: 'The hostname field cannot be specified when replicas is greater than 1.',
        },
        {
          rule: '!(has(self.hostname) && has(self.hostnamePrefix))',
          message: 'The hostname and hostnamePrefix fields are mutually exclusive.',
        },
      ],
    },
  );
}

function statusSchema(): Schema {
  return object('What the operator has done.', {
    conditions: conditionsSchema(
      'ConnectorReady: whether every node has joined and routes.',
      'ConnectorReady',
    ),
    subnetRoutes: text('The networks that it offers, with commas between them.'),
    isExitNode: flag('Whether it is an exit node.'),
    isAppConnector: flag('Whether it is an app connector.'),
    hostname: text('Name of the first node.'),
    tailnetIPs: list('Addresses of the first node.', { type: 'string' }),
    devices: plainDevicesSchema(),
  });
}

/** Schema of the `Connector` custom resource (`tailscale.com/v1alpha1`). CRD: `deploy/crds/connector.yaml`. */
import { z } from 'zod';
import type { KubeObject } from '../kube-object.ts';
import { networkOf } from '../networks.ts';
import { metadataSchema, statusSchema } from '../workload/schema.ts';

const connectorSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      replicas: z.number().int().min(0).default(1),
      tags: z.array(z.string()).default([]),
      hostname: z.string().default(''),
      hostnamePrefix: z.string().default(''),
      proxyClass: z.string().default(''),
      tailnet: z.string().default(''),
      subnetRouter: z.object({ advertiseRoutes: z.array(z.string()).default([]) }).optional(),
      exitNode: z.boolean().default(false),
      appConnector: z.object({ routes: z.array(z.string()).default([]) }).optional(),
    })
    .prefault({}),
  status: statusSchema,
});

export type Connector = z.infer<typeof connectorSchema>;

/**
 * Parses a Connector, with the defaults of the schema.
 *
 * @throws ZodError if the cluster has another version of the CRD; with tailcast's CRD, the API server rejects invalid
 *   objects
 */
export function parseConnector(object: unknown): Connector {
  return connectorSchema.parse(object);
}

/**
 * Returns the name of the ProxyClass in the spec of a Connector; empty for none. The operator's default class does not
 * apply to Connectors.
 */
export function connectorClassOf(object: KubeObject): string {
  const known = connectorSchema.safeParse(object);
  return known.success ? known.data.spec.proxyClass : '';
}

/** Routes of an exit node. */
const EXIT_ROUTES = ['0.0.0.0/0', '::/0'] as const;

/** Returns all routes that the nodes of a Connector advertise, sorted and without duplicates. */
export function routesOf({ spec }: Connector): readonly string[] {
  const routes = [
    ...(spec.subnetRouter?.advertiseRoutes ?? []),
    ...(spec.appConnector?.routes ?? []),
    ...(spec.exitNode ? EXIT_ROUTES : []),
  ];
  return [...new Set(routes)].toSorted();
}

/** Returns the reason why a Connector cannot be deployed; undefined if it can. */
export function problemOf(connector: Connector): string | undefined {
  const { subnetRouter, appConnector } = connector.spec;
  return (
    problemOfRoles(connector) ??
    problemOfNames(connector) ??
    routeProblem('spec.subnetRouter.advertiseRoutes', subnetRouter?.advertiseRoutes ?? []) ??
    routeProblem('spec.appConnector.routes', appConnector?.routes ?? [])
  );
}

function problemOfNames({ spec }: Connector): string | undefined {
  if (spec.hostname !== '' && spec.replicas > 1) {
    return 'spec.hostname cannot be set with more than one replica: use spec.hostnamePrefix';
  }
  if (spec.hostname !== '' && spec.hostnamePrefix !== '') {
    return 'spec.hostname and spec.hostnamePrefix cannot both be set';
  }
  return undefined;
}

function problemOfRoles({ spec }: Connector): string | undefined {
  if (spec.subnetRouter === undefined && !spec.exitNode && spec.appConnector === undefined) {
    return 'a Connector needs at least one of spec.subnetRouter, spec.exitNode and spec.appConnector';
  }
  if (spec.appConnector !== undefined && (spec.subnetRouter !== undefined || spec.exitNode)) {
    return 'spec.appConnector cannot be combined with spec.subnetRouter or spec.exitNode';
  }
  if (spec.subnetRouter?.advertiseRoutes.length === 0) {
    return 'spec.subnetRouter.advertiseRoutes: name at least one route';
  }
  return undefined;
}

function routeProblem(field: string, routes: readonly string[]): string | undefined {
  for (const route of routes) {
    const network = networkOf(route);
    if (network === undefined)
      return `${field}: ${JSON.stringify(route)} is not a network such as 10.0.0.0/8`;
    if (network !== undefined && !network.isAligned) {
      return `${field}: ${JSON.stringify(route)} has bits behind its prefix: write the address of the network`;
    }
  }
  return undefined;
}

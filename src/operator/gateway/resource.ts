/** Schemas of GatewayClasses, Gateways and HTTPRoutes of `gateway.networking.k8s.io/v1`. */
import { z } from 'zod';
import { FINALIZER, isDnsLabel, type KubeObject } from '../kube-object.ts';
import { conditionSchema, nullableList, metadataSchema, statusSchema } from '../workload/schema.ts';
import { dnsLabel } from '../workload/workload.ts';
import { ANNOTATIONS } from '../service/predicates.ts';

/** Value of `spec.controllerName` in GatewayClasses of the operator. */
export const GATEWAY_CONTROLLER = 'tailcast.dev/gateway';
/** API group of the Gateway API. */
export const GATEWAY_GROUP = 'gateway.networking.k8s.io';

const conditions = z.array(conditionSchema).default([]);

const classSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({ controllerName: z.string().default(''), parametersRef: z.unknown().optional() })
    .prefault({}),
  status: statusSchema,
});

// Unknown fields are kept, so that the operator can report unsupported fields.
const listenerSchema = z.looseObject({
  name: z.string(),
  hostname: z.string().default(''),
  port: z.number(),
  protocol: z.string(),
  tls: z
    .looseObject({
      mode: z.string().default('Terminate'),
      certificateRefs: nullableList(
        z.object({
          group: z.string().default(''),
          kind: z.string().default('Secret'),
          namespace: z.string().optional(),
          name: z.string(),
        }),
      ),
    })
    .optional(),
  allowedRoutes: z
    .object({
      namespaces: z.object({ from: z.string().default('Same') }).prefault({}),
      kinds: nullableList(z.object({ group: z.string().default(GATEWAY_GROUP), kind: z.string() })),
    })
    .prefault({}),
});

const addressSchema = z.object({ type: z.string().default('IPAddress'), value: z.string() });

const gatewaySchema = z.object({
  metadata: metadataSchema,
  spec: z.looseObject({
    gatewayClassName: z.string().default(''),
    listeners: nullableList(listenerSchema),
    addresses: nullableList(z.unknown()),
  }),
  status: z
    .object({
      conditions,
      addresses: z.array(addressSchema).default([]),
      listeners: z
        .array(
          z.object({
            name: z.string(),
            supportedKinds: z.array(z.unknown()).default([]),
            attachedRoutes: z.number().default(0),
            conditions,
          }),
        )
        .default([]),
    })
    .prefault({}),
});

const parentRefSchema = z.looseObject({
  group: z.string().default(GATEWAY_GROUP),
  kind: z.string().default('Gateway'),
  namespace: z.string().optional(),
  name: z.string(),
  sectionName: z.string().optional(),
  port: z.number().optional(),
});

const backendRefSchema = z.looseObject({
  group: z.string().default(''),
  kind: z.string().default('Service'),
  namespace: z.string().optional(),
  name: z.string(),
  port: z.number().optional(),
  weight: z.number().default(1),
});

const ruleSchema = z.looseObject({
  matches: nullableList(
    z.looseObject({
      path: z.object({ type: z.string().default('PathPrefix'), value: z.string().default('/') }).prefault({}),
    }),
  ),
  filters: nullableList(
    z.looseObject({ type: z.string(), requestRedirect: z.record(z.string(), z.unknown()).optional() }),
  ),
  backendRefs: nullableList(backendRefSchema),
});

const routeSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      parentRefs: nullableList(parentRefSchema),
      hostnames: nullableList(z.string()),
      rules: nullableList(ruleSchema),
    })
    .prefault({}),
  // Entries of other controllers are written back unchanged.
  status: z
    .object({
      parents: z
        .array(z.looseObject({ parentRef: z.looseObject({}), controllerName: z.string() }))
        .default([]),
    })
    .prefault({}),
});

export type GatewayClass = z.infer<typeof classSchema>;
export type Gateway = z.infer<typeof gatewaySchema>;
export type Listener = z.infer<typeof listenerSchema>;
export type HttpRoute = z.infer<typeof routeSchema>;
export type RouteRule = z.infer<typeof ruleSchema>;
export type ParentRef = z.infer<typeof parentRefSchema>;
export type BackendRef = z.infer<typeof backendRefSchema>;

/** @throws ZodError for an invalid GatewayClass */
export function parseGatewayClass(object: unknown): GatewayClass {
  return classSchema.parse(object);
}

/** @throws ZodError for an invalid Gateway */
export function parseGateway(object: unknown): Gateway {
  return gatewaySchema.parse(object);
}

/** @throws ZodError for an invalid HTTPRoute */
export function parseHttpRoute(object: unknown): HttpRoute {
  return routeSchema.parse(object);
}

/** True if the operator handles the Gateways of this GatewayClass. */
export function isOurClass(object: KubeObject | undefined): boolean {
  return object !== undefined && parseGatewayClass(object).spec.controllerName === GATEWAY_CONTROLLER;
}

/** True if the Gateway has a GatewayClass of the operator or the operator's finalizer. */
export function isGatewayOfInterest(object: KubeObject, classes: readonly KubeObject[]): boolean {
  const { metadata, spec } = parseGateway(object);
  const isOfClass = classes.some((one) => one.metadata.name === spec.gatewayClassName);
  return isOfClass || metadata.finalizers.includes(FINALIZER);
}

/** Returns the hostname of the Gateway's node. */
export function gatewayHostname({ metadata }: Gateway): string {
  const wanted = metadata.annotations[ANNOTATIONS.hostname] ?? '';
  if (isDnsLabel(wanted)) return wanted;
  return dnsLabel(`${metadata.namespace ?? ''}-${metadata.name}-gateway`);
}

/** Returns `<namespace>/<name>` of the Gateway in a route's parent reference; undefined for another kind of parent. */
export function gatewayOf(parent: unknown, routeNamespace: string | undefined): string | undefined {
  const { data } = parentRefSchema.safeParse(parent);
  if (data?.group !== GATEWAY_GROUP || data.kind !== 'Gateway') return undefined;
  return `${data.namespace ?? routeNamespace ?? ''}/${data.name}`;
}

/** Returns the Gateways in a route's parent references and in the operator's entries of its status. */
export function gatewaysOf({ metadata, spec, status }: HttpRoute): readonly string[] {
  const ownParents = status.parents
    .filter(({ controllerName }) => controllerName === GATEWAY_CONTROLLER)
    .map(({ parentRef }) => parentRef);
  return [
    ...new Set(
      [...spec.parentRefs, ...ownParents].flatMap((one) => gatewayOf(one, metadata.namespace) ?? []),
    ),
  ];
}

/** Returns the names of the Services in the route's own namespace that the route uses as backends. */
export function routeBackends({ spec }: HttpRoute): readonly string[] {
  return [...new Set(spec.rules.flatMap(({ backendRefs }) => backendRefs.map(({ name }) => name)))];
}

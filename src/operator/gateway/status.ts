/** Computes the status of GatewayClasses, Gateways and HTTPRoutes from plans and observations. Pure. */
import { z } from 'zod';
import { conditionSchema } from '../workload/schema.ts';
import {
  failed,
  sameJson,
  succeeded,
  withConditions,
  type Condition,
  type Verdict,
  type Verdicts,
} from '../workload/status.ts';
import { overlapsOf, type ListenerPlan } from './listeners.ts';
import type { AttachedParent, GatewayPlan, RoutePlan } from './plan.ts';
import {
  GATEWAY_CONTROLLER,
  GATEWAY_GROUP,
  gatewayOf,
  type Gateway,
  type GatewayClass,
  type HttpRoute,
} from './resource.ts';

/** Status of a Gateway, in the format that the operator writes. */
interface GatewayStatus {
  readonly conditions: readonly Condition[];
  /** If undefined, the status keeps the previous addresses. */
  readonly addresses: Gateway['status']['addresses'] | undefined;
  /** If undefined, the status keeps the previous listeners. */
  readonly listeners: readonly object[] | undefined;
}

/** Returns the condition `Accepted` of a GatewayClass. */
export function acceptedClass({ spec }: GatewayClass): Verdict {
  return spec.parametersRef === undefined
    ? succeeded('Accepted')
    : failed(
        'InvalidParameters',
        `spec.parametersRef: not supported: annotate Gateways with tailscale.com/proxy-class`,
      );
}

/** Returns the reason why this Gateway cannot be served at all, or undefined. */
export function problemOfGateway({ spec }: Gateway): Verdict | undefined {
  if (spec.addresses.length > 0) {
    const message =
      'spec.addresses: the control server assigns addresses: remove it, and set the name in tailscale.com/hostname';
    return failed('UnsupportedAddress', message);
  }
  const { infrastructure } = spec;
  if (typeof infrastructure === 'object' && infrastructure !== null && 'parametersRef' in infrastructure) {
    const message =
      'spec.infrastructure.parametersRef: not supported: annotate the Gateway with tailscale.com/proxy-class';
    return failed('InvalidParameters', message);
  }
  // An unknown field may restrict access, so a Gateway with such a field is refused.
  const unknown = Object.keys(spec).find((key) => !KNOWN.includes(key));
  return unknown === undefined
    ? undefined
    : failed('Invalid', `spec.${unknown}: not supported: leave it out`);
}

const KNOWN: readonly string[] = [
  'gatewayClassName',
  'listeners',
  'addresses',
  'infrastructure',
  // This field has no effect, because the operator serves no listeners from other resources (ListenerSets).
  'allowedListeners',
];

/** Findings for the status of a Gateway. */
export interface GatewayFindings {
  /** Reason why the Gateway is not accepted. Default: the problem in `plan`. */
  readonly problem?: Verdict | undefined;
  readonly plan?: GatewayPlan | undefined;
  readonly programmed: Verdict;
  /** Addresses of the node after it has joined the tailnet. If undefined, the status keeps the previous addresses. */
  readonly addresses?: GatewayStatus['addresses'] | undefined;
}

export function gatewayStatus(
  { metadata, status }: Gateway,
  { problem, plan, programmed, addresses }: GatewayFindings,
  nowIso: string,
): GatewayStatus {
  const merge = (before: readonly Condition[], verdicts: Verdicts): readonly Condition[] =>
    withConditions(before, verdicts, metadata.generation, nowIso);
  return {
    conditions: merge(status.conditions, {
      Accepted: problem ?? (plan && acceptedOf(plan.listeners)),
      Programmed: programmed,
    }),
    addresses,
    listeners: plan?.listeners.map((listener) => {
      const before = status.listeners.find(({ name }) => name === listener.name)?.conditions ?? [];
      const overlaps = overlapsOf(listener, plan.listeners);
      const message = `spec.listeners: this listener shares hostnames with ${overlaps.join(', ')}`;
      return {
        name: listener.name,
        supportedKinds: listener.allowsHttpRoutes ? [{ group: GATEWAY_GROUP, kind: 'HTTPRoute' }] : [],
        attachedRoutes: attachedTo(listener, plan.routes),
        conditions: merge(before, {
          Accepted: listener.accepted,
          ResolvedRefs: listener.refs,
          Programmed: programmedOf(listener, programmed),
          // The status contains this condition only while it is true.
          OverlappingTLSConfig: overlaps.length === 0 ? null : succeeded('OverlappingHostnames', message),
        }),
      };
    }),
  };
}

function acceptedOf(listeners: readonly ListenerPlan[]): Verdict {
  const bad = listeners.filter(({ unserved }) => unserved !== undefined);
  if (bad.length === 0) return succeeded('Accepted');
  const message = bad.map(({ unserved }) => unserved).join('; ');
  return { ready: bad.length < listeners.length, reason: 'ListenersNotValid', message };
}

function programmedOf({ unserved }: ListenerPlan, programmed: Verdict): Verdict {
  if (unserved !== undefined) return failed('Invalid', unserved);
  return programmed.ready ? programmed : failed('Pending', programmed.message);
}

function attachedTo({ name }: ListenerPlan, routes: readonly RoutePlan[]): number {
  return routes.filter(({ parents }) =>
    parents.some(({ at }) => at.some(({ listener }) => listener.name === name)),
  ).length;
}

/**
 * Returns the cleared status of a Gateway that the operator no longer handles. Returns undefined if the status does
 * not contain the node's name, for example because another controller has written to it.
 *
 * @param dnsName name of the Gateway's node in the tailnet
 */
export function releasedStatus(
  { metadata, status }: Gateway,
  dnsName: string | undefined,
  nowIso: string,
): GatewayStatus | undefined {
  if (dnsName === undefined || !status.addresses.some(({ value }) => value === dnsName)) return undefined;
  const pending = { ...failed('Pending', 'Waiting for controller'), unknown: true };
  const verdicts = { Accepted: pending, Programmed: pending };
  const conditions = withConditions(status.conditions, verdicts, metadata.generation, nowIso);
  return { conditions, addresses: [], listeners: [] };
}

const ownEntrySchema = z.looseObject({ conditions: z.array(conditionSchema).default([]) });

/**
 * Returns the status of a route with updated entries for one Gateway. Entries of other controllers keep their content
 * and position.
 *
 * @param parents empty if the operator no longer handles the Gateway
 * @returns undefined if nothing changes
 */
export function routeStatus(
  { metadata, status }: HttpRoute,
  gateway: string,
  parents: readonly AttachedParent[],
  nowIso: string,
): { readonly parents: readonly object[] } | undefined {
  const isOurs = (one: HttpRoute['status']['parents'][number]): boolean =>
    one.controllerName === GATEWAY_CONTROLLER && gatewayOf(one.parentRef, metadata.namespace) === gateway;
  const own = parents.map(({ parentRef, accepted, refs, partial }) => {
    const known = status.parents.find((one) => isOurs(one) && isSameParent(one.parentRef, parentRef));
    const before = ownEntrySchema.parse(known ?? {}).conditions;
    const verdicts = {
      Accepted: accepted,
      ResolvedRefs: refs,
      PartiallyInvalid: partial === undefined ? null : succeeded('UnsupportedValue', partial),
    };
    const conditions = withConditions(before, verdicts, metadata.generation, nowIso);
    return { parentRef, controllerName: GATEWAY_CONTROLLER, conditions };
  });
  const next = [...status.parents.filter((one) => !isOurs(one)), ...own];
  // A different order of the entries is not a change, because other controllers may have chosen the present order.
  const isSame =
    next.length === status.parents.length &&
    next.every((one) => status.parents.some((before) => sameJson(before, one)));
  return isSame ? undefined : { parents: next };
}

function isSameParent(left: object, right: object): boolean {
  return sameJson(
    { group: GATEWAY_GROUP, kind: 'Gateway', ...left },
    { group: GATEWAY_GROUP, kind: 'Gateway', ...right },
  );
}

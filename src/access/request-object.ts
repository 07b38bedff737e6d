/**
 * Creates AccessRequest objects for the API server. The readable fields of these objects are for people. A gateway
 * reads only the signed record.
 */
import type { ResourceKind } from '../operator/kube-object.ts';
import type { AccessRecord, AccessDecision, SealedRecord } from './record.ts';
import { accessOf, describeAsk } from './rules.ts';

export const ACCESS_REQUEST: ResourceKind = {
  apiVersion: 'access.tailcast.dev/v1alpha1',
  kind: 'AccessRequest',
  plural: 'accessrequests',
  namespaced: false,
};

const REFUSED = '-refused';

/** Returns the name of the object that stores a denied or revoked request. */
export function refusedName(id: string): string {
  return `${id}${REFUSED}`;
}

/** Returns the id of the request that an object with this name stores. */
export function idOf(name: string): string {
  return name.endsWith(REFUSED) ? name.slice(0, -REFUSED.length) : name;
}

/** Returns a new AccessRequest object without a status. */
export function newObject(record: AccessRecord, name = record.id): object {
  const { requester, reason, call, durationMs, namespaces, cluster } = record;
  return {
    apiVersion: ACCESS_REQUEST.apiVersion,
    kind: ACCESS_REQUEST.kind,
    metadata: { name },
    spec: {
      requester: requester.name,
      node: requester.node,
      access: describeAsk(accessOf(record)),
      reason,
      call,
      duration: `${Math.round(durationMs / 1000)}s`,
      ...(namespaces.length === 0 ? {} : { namespaces }),
      ...(cluster === '' ? {} : { cluster }),
    },
  };
}

/** Returns the status of an AccessRequest object with this record. */
export function statusWith(record: AccessRecord, sealed: SealedRecord): object {
  const { state, decisions, expiresMs, createdMs } = record;
  const last = decisions.at(-1);
  const time = new Date(last?.atMs ?? createdMs).toISOString();
  const condition = (type: string, isTrue: boolean): object => ({
    type,
    status: isTrue ? 'True' : 'False',
    reason: state.charAt(0).toUpperCase() + state.slice(1),
    message: last === undefined ? '' : describeDecision(last),
    lastTransitionTime: time,
  });
  return {
    state,
    decidedBy: decisions.map(({ by }) => by.name),
    expires: new Date(expiresMs).toISOString(),
    conditions: [
      condition('Granted', state === 'granted'),
      condition('Denied', state === 'denied'),
      condition('Revoked', state === 'revoked'),
      condition('Expired', state === 'expired'),
    ],
    ...sealed,
  };
}

/** Returns the text of a decision: `denied by bob@example.com: not during the freeze`. */
export function describeDecision({ verdict, by, reason }: AccessDecision): string {
  return `${verdict} by ${by.name}${reason === '' ? '' : `: ${reason}`}`;
}

/** Log fields of a session. */
import { callerName } from '../../tailnet/identity.ts';
import type { SessionFields } from '../../observe/events.ts';
import type { Admission } from '../gate/gate.ts';

/** Returns the fields that each event about a session contains. Pure. */
export function sessionFields(admission: Admission): SessionFields {
  const { info, identity } = admission;
  const { container } = admission.exec;
  return {
    sessionId: admission.id,
    user: callerName(admission.identity),
    node: identity.nodeName,
    kind: admission.requestClass,
    ...(info.namespace === '' ? {} : { namespace: info.namespace }),
    ...(info.name === '' ? {} : { pod: info.name }),
    ...(container === undefined ? {} : { container }),
  };
}

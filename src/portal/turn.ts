/** One request for the portal, from its arrival to the end of its answer. */
import type { FastifyReply } from 'fastify';
import type { TailcastError } from '../errors.ts';
import type { Account } from '../proxy/gate/account.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import type { PortalClient } from './client.ts';
import type { PortalRoute } from './routes.ts';

export interface Turn {
  readonly client: PortalClient;
  readonly account: Account;
  /** What its target means; `undefined`: nothing that is here. */
  readonly route: PortalRoute | undefined;
  /** Why it is refused before anybody asks who is calling. */
  readonly problem: TailcastError | undefined;
  /** Known once the gate has said so. */
  caller: Caller | undefined;
  /** A recorder is being asked, or its answer passed on: that closes the account, whenever the client leaves. */
  passing: boolean;
}

/**
 * Answers with a whole body.
 * @param fields flat list, without framing
 */
export function sendWhole(
  { client }: Pick<Turn, 'client'>,
  reply: FastifyReply,
  {
    status,
    fields,
    body,
  }: { readonly status: number; readonly fields: readonly string[]; readonly body?: Buffer },
): FastifyReply {
  reply.code(status);
  for (let index = 0; index < fields.length; index += 2) reply.header(fields[index] ?? '', fields[index + 1]);
  if (client.inbound.method !== 'HEAD' || body === undefined) return reply.send(body);
  return reply.header('content-length', String(body.length)).send();
}

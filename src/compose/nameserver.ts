/** Builds the nameserver role. */
import type { CommandContext } from '../config/command-context.ts';
import type { NameserverConfig } from '../config/nameserver.ts';
import { answerQuery } from '../nameserver/answer.ts';
import { createNameserverMetrics } from '../nameserver/metrics.ts';
import { openRecordsFile } from '../nameserver/records-file.ts';
import { openNameServer, type Transport } from '../nameserver/server.ts';
import { fileCheck } from './readiness.ts';
import { SmallRole } from './small-role.ts';
import { cannotListen } from '../errors.ts';

/**
 * `tailcast nameserver`: responds to DNS queries until `signal` aborts.
 *
 * @throws TailcastError `START_FAILED` if it cannot listen
 */
export async function runNameserver(config: NameserverConfig, context: CommandContext): Promise<void> {
  await using role = new SmallRole(config, context);
  const { log, registry, signal } = role;
  const answers = createNameserverMetrics(registry);
  const records = await openRecordsFile({ path: config.records, log });
  const answer = (message: Uint8Array, transport: Transport): ReturnType<typeof answerQuery> => {
    const answered = answerQuery(message, records.current, transport);
    answers.inc({ transport, code: answered?.code ?? 'NONE' });
    return answered;
  };
  const { host, port } = config.listen;
  const server = await openNameServer({ host, port, answer }).catch(cannotListen(`${host}:${port}`));
  role.defer(() => server.close());
  const ops = await role.openOps([fileCheck('records', config.records, records)]);
  log.info({ listen: server.address, ops }, 'nameserver is ready');
  await records.follow(signal);
}

/** Builds the nameserver role. */
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { CommandContext } from '../config/command-context.ts';
import type { NameserverConfig } from '../config/nameserver.ts';
import { errorText, TailcastError } from '../errors.ts';
import { answerQuery } from '../nameserver/answer.ts';
import { createNameserverMetrics } from '../nameserver/metrics.ts';
import { openRecordsFile } from '../nameserver/records-file.ts';
import { openNameServer, type Transport } from '../nameserver/server.ts';
import { openLastResort } from '../observe/last-resort.ts';
import { createLogger } from '../observe/logger.ts';
import { openOpsServer } from '../observe/ops-server.ts';
import { CleanUp } from './clean-up.ts';
import { fileCheck } from './readiness.ts';

/**
 * `tailcast nameserver`: answers until the signal.
 *
 * @throws TailcastError `CONFIG_INVALID` when it cannot listen
 */
export async function runNameserver(config: NameserverConfig, context: CommandContext): Promise<void> {
  const log = createLogger({ level: config.logLevel });
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const answers = createNameserverMetrics(registry);
  const resort = openLastResort({ log, stop: context.signal, registry });
  const { signal } = resort;
  await using cleanUp = new CleanUp();
  cleanUp.defer(() => resort.close());
  const records = await openRecordsFile({ path: config.records, log });
  const answer = (message: Uint8Array, transport: Transport): ReturnType<typeof answerQuery> => {
    const answered = answerQuery(message, records.current, transport);
    answers.inc({ transport, code: answered?.code ?? 'NONE' });
    return answered;
  };
  const server = await openNameServer({ ...config.listen, answer }).catch((error: unknown) => {
    const { host, port } = config.listen;
    const detail = `listen: cannot listen on ${host}:${port}: ${errorText(error)}`;
    throw new TailcastError('CONFIG_INVALID', detail, { cause: error });
  });
  cleanUp.defer(() => server.close());
  const ops =
    config.opsListen === undefined
      ? undefined
      : await openOpsServer({
          ...config.opsListen,
          metrics: registry,
          checks: [fileCheck('records', config.records, records)],
        });
  cleanUp.defer(() => ops?.close());
  log.info({ listen: server.address, ops: ops?.address }, 'nameserver is ready');
  await records.follow(signal);
}

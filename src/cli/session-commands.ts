/** The commands for running sessions: `sessions`, `watch`, `end`, `pause`, `resume`. */
import type { Command } from 'commander';
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { ORDER_ACTIONS, type OrderAction } from '../wire/recorder-api/session-order.ts';
import { addArchiveOptions, addContextOptions } from './archive-options.ts';
import { RECORDER_OPTION } from './index-commands.ts';
import { print } from './output.ts';

const DESCRIPTIONS: Readonly<Record<OrderAction, string>> = {
  end: 'end a running session; its user sees the reason',
  pause: 'pause output and input of a running session, for at most 5 minutes',
  resume: 'resume a paused session',
};
/** Time after the end of every session, in seconds: all recorded output then appears immediately. */
const NOW = '3600000';

/** Adds the commands. */
export function addSessions(
  command: (name: string, description: string) => Command,
  context: CommandContext,
): void {
  addArchiveOptions(command('sessions', 'list running sessions'))
    .option('--user <login>', 'only sessions of this user')
    .option('--namespace <name>', 'only sessions in this namespace')
    .option('--json', 'one JSON object per line')
    .action(async (options: Record<string, unknown>) =>
      (await import('./ls.ts')).printRecordings({ ...options, state: 'running' }, context),
    );
  addArchiveOptions(command('watch', 'watch a running session in this terminal'))
    .argument('<id>', 'id from `sessions` (or its beginning), or `latest`')
    .action(async (id: string, options: Record<string, unknown>) => {
      const { playRecording } = await import('./play.ts');
      await playRecording(id, { ...options, follow: true, from: NOW, speed: 1 }, context);
    });
  for (const action of ORDER_ACTIONS) {
    addContextOptions(command(action, DESCRIPTIONS[action]))
      .argument('<id>', 'id from `sessions` (or its beginning), or `latest`')
      .option(...RECORDER_OPTION)
      .option('--reason <text>', 'reason, which the recording contains')
      .action(async (id: string, options: Record<string, unknown>) => order(action, id, options, context));
  }
}

async function order(
  action: OrderAction,
  given: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { recorderOrContextAddress } = await import('./open-archive.ts');
  const { decodeDocument, openRecorderArchive, requestApi } = await import('./recorder-archive.ts');
  const base = await recorderOrContextAddress(options, context);
  const { id } = await openRecorderArchive(base, context.signal).find(given);
  const reason = typeof options['reason'] === 'string' ? { reason: options['reason'] } : {};
  const path = `recordings/${encodeURIComponent(id)}/orders/${action}`;
  const response = await requestApi(base, path, reason, context.signal, { method: 'POST' });
  decodeDocument(await response.json(), base, z.object({ confirmed: z.literal(true) }));
  await print(context.stdout, `${id}: the gateway confirmed: ${action}\n`);
}

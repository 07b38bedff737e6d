/** The commands of access on request: `request`, `requests`, `approve`, `deny`, `revoke`. */
import { Option, type Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import { addContextOptions } from './archive-options.ts';
import { RECORDER_OPTION } from './index-commands.ts';

const LIST = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

/** Adds the command `report`, which writes its exit code to `outcome`. */
export function addReport(
  command: (name: string, description: string) => Command,
  context: CommandContext,
  outcome: { code: number },
): void {
  addContextOptions(command('report', 'report access on request: who had it, who approved it, and its use'))
    .option(...RECORDER_OPTION)
    .option('--since <time>', 'date or age of the first event', '30d')
    .addOption(
      new Option('--format <format>', 'format of the report')
        .choices(['markdown', 'json', 'csv'])
        .default('markdown'),
    )
    .addHelpText(
      'after',
      '\nThe report contains the events that the recorder keeps. `tailcast verify` detects removed events.\n' +
        'Exit code: 0 complete, 1 the recorder could not read all events.',
    )
    .action(async (options: Record<string, unknown>) => {
      const { printReport } = await import('./report.ts');
      outcome.code = await printReport(options, context);
    });
}

/** Adds the commands. The commands write their exit codes to `outcome`. */
export function addAccess(
  command: (name: string, description: string) => Command,
  context: CommandContext,
  outcome: { code: number },
): void {
  addContextOptions(command('request', 'request more rights for a limited time'))
    .option('--group <name>', 'group to request; may be given several times', LIST)
    .option('--user <name>', 'Kubernetes user to request')
    .option('--writes', 'request write access, if your rule requires an approval of writes')
    .option('--reason <text>', 'reason, which the approvers see')
    .option('--for <duration>', 'duration such as 30m or 4h; default: 1h, or the maximum of the rule')
    .option('--cluster <name>', 'cluster, at a gateway with several clusters')
    .option('--wait', 'wait for the decision')
    .option('--json', 'one JSON object')
    .addHelpText('after', '\nExit code: 0 granted or pending, 1 refused, denied or expired.')
    .action(async (options: Record<string, unknown>) => {
      const { requestAccess } = await import('./access.ts');
      outcome.code = await requestAccess(options, context);
    });
  addContextOptions(command('requests', 'list access requests: yours, and those that you may decide about'))
    .option('--wait <id>', 'wait for the decision about one request')
    .option('--json', 'one JSON object per line')
    .action(async (options: Record<string, unknown>) => {
      const { listAccess } = await import('./access.ts');
      outcome.code = await listAccess(options, context);
    });
  for (const [verdict, description] of [
    ['approve', 'approve an access request'],
    ['deny', 'deny an access request'],
    ['revoke', 'end granted access at once, with its sessions'],
  ] as const) {
    addContextOptions(command(verdict, description))
      .argument('<id>', 'id from `requests`')
      .option('--reason <text>', 'reason, which the requester sees')
      .action(async (id: string, options: Record<string, unknown>) => {
        const { decideAccess } = await import('./access.ts');
        await decideAccess(verdict, id, options, context);
      });
  }
}

/** The commands of access on request: `request`, `requests`, `approve`, `deny`, `revoke`. */
import { Option } from 'commander';
import { several } from './arguments.ts';
import { addContextOptions } from './archive-options.ts';
import { RECORDER_OPTION } from './index-commands.ts';
import type { Options, Tool } from './tool.ts';

/** Adds the command `report`. */
export function addReport(program: Tool): void {
  addContextOptions(
    program.add('report', 'report access on request: who had it, who approved it, and its use'),
  )
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
    .loads(async () => (await import('./report.ts')).printReport);
}

/** Adds the commands. */
export function addAccess(program: Tool): void {
  addContextOptions(program.add('request', 'request more rights for a limited time'))
    .option('--group <name>', 'group to request; may be given several times', several)
    .option('--user <name>', 'Kubernetes user to request')
    .option('--writes', 'request write access, if your rule requires an approval of writes')
    .option('--reason <text>', 'reason, which the approvers see')
    .option('--for <duration>', 'duration such as 30m or 4h; default: 1h, or the maximum of the rule')
    .option('--cluster <name>', 'cluster, at a gateway with several clusters')
    .option('--wait', 'wait for the decision')
    .option('--json', 'one JSON object')
    .addHelpText('after', '\nExit code: 0 granted or pending, 1 refused, denied or expired.')
    .loads(async () => (await import('./access.ts')).requestAccess);
  addContextOptions(
    program.add('requests', 'list access requests: yours, and those that you may decide about'),
  )
    .option('--wait <id>', 'wait for the decision about one request')
    .option('--json', 'one JSON object per line')
    .loads(async () => (await import('./access.ts')).listAccess);
  for (const [verdict, description] of [
    ['approve', 'approve an access request'],
    ['deny', 'deny an access request'],
    ['revoke', 'end granted access at once, with its sessions'],
  ] as const) {
    addContextOptions(program.add(verdict, description))
      .argument('<id>', 'id from `requests`')
      .option('--reason <text>', 'reason, which the requester sees')
      .action(async (id: string, options: Options) =>
        (await import('./access.ts')).decideAccess(verdict, id, options, program.context),
      );
  }
}

/** The commands of `tailcast alerts`. */
import { RECORDER_OPTION } from './index-commands.ts';
import type { Tool } from './tool.ts';

/** Adds `alerts test`. */
export function addAlerts(program: Tool): void {
  const alerts = program.add('alerts', 'test alert rules and webhooks');
  alerts
    .add('test', 'print matches of the rules in existing recordings, and test their webhooks')
    .argument('<file>', 'YAML file, as in the setting alerts')
    .argument('[rule...]', 'names of rules; default: all')
    .option(...RECORDER_OPTION)
    .option('--no-search', 'do not search recordings')
    .option('--deliver', 'send a signed test message to each webhook of these rules')
    .option('--json', 'one JSON object per line')
    .addHelpText(
      'after',
      '\nExit code: 0 all checks passed, 1 a check failed. The command creates no alerts.\nIt prints matches ' +
        'that you may see at the recorder. A webhook with a viewer gets only alerts that this viewer may see.',
    )
    .loads(async () => (await import('./alerts.ts')).testAlerts);
}

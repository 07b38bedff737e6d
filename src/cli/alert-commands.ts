/** The commands of `tailcast alerts`. */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import { RECORDER_OPTION } from './index-commands.ts';

/** Adds `alerts test`. The command writes its exit code to `outcome`. */
export function addAlerts(program: Command, context: CommandContext, outcome: { code: number }): void {
  const alerts = program.command('alerts').description('test alert rules and webhooks');
  alerts
    .command('test')
    .description('print matches of the rules in existing recordings, and test their webhooks')
    .exitOverride()
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
    .action(async (file: string, rules: readonly string[], options: Record<string, unknown>) => {
      const { testAlerts } = await import('./alerts.ts');
      outcome.code = await testAlerts(file, rules, options, context);
    });
}

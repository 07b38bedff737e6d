/** The commands of `tailcast alerts`. */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';
import { RECORDER_OPTION } from './index-commands.ts';

/** Says by its exit code what it found. */
export function addAlerts(program: Command, context: CommandContext, outcome: { code: number }): void {
  const alerts = program
    .command('alerts')
    .description('rules about what comes in, and the webhooks that are told');
  alerts
    .command('test')
    .description('say what the rules of a file would have found, and whether their webhooks take a message')
    .exitOverride()
    .argument('<file>', 'file of alerts, as in the setting alerts')
    .argument('[rule...]', 'names of rules; default: all')
    .option(...RECORDER_OPTION)
    .option('--no-search', 'ask no recorder')
    .option('--deliver', 'send each webhook of these rules a signed test message')
    .option('--json', 'one JSON object per line')
    .addHelpText(
      'after',
      '\nExit code: 0 the file is right and what was tried worked, 1 something did not. No alert is made.\nWhat is found is what you may see at the recorder; a webhook is told what its viewer may.',
    )
    .action(async (file: string, rules: readonly string[], options: Record<string, unknown>) => {
      const { testAlerts } = await import('./alerts.ts');
      outcome.code = await testAlerts(file, rules, options, context);
    });
}

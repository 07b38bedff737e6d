/** The commands of `tailcast index`. */
import type { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';

export const RECORDER_OPTION = [
  '--recorder <url>',
  'URL of the recorder [TAILCAST_RECORDER]; default: the recorder of the demo',
] as const;

/** Adds the commands. The commands write their exit codes to `outcome`. */
export function addIndex(program: Command, context: CommandContext, outcome: { code: number }): void {
  const index = program.command('index').description('check or rebuild the search index of a recorder');
  index
    .command('rebuild')
    .description('build a new index; the old index serves searches until the new one is complete')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .option('--no-wait', 'return immediately')
    .addHelpText(
      'after',
      '\nExit code: 0 the index is complete, or started with --no-wait. A restarted recorder continues the build.',
    )
    .action(async (options: Record<string, unknown>) => {
      const { rebuildIndex } = await import('./search.ts');
      outcome.code = await rebuildIndex(options, context);
    });
  index
    .command('verify')
    .description('compare the index with the store')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .option('--json', 'one JSON object per line')
    .addHelpText(
      'after',
      '\nExit code: 0 the index is correct, 1 it differs, 2 wrong usage. The command changes nothing.',
    )
    .action(async (options: Record<string, unknown>) => {
      const { checkIndex } = await import('./search.ts');
      outcome.code = await checkIndex(options, context);
    });
  index
    .command('status')
    .description('print the progress of the index')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .option('--json', 'one JSON object')
    .addHelpText('after', '\nExit code: 0 the index is complete, 1 it is not, 2 wrong usage.')
    .action(async (options: Record<string, unknown>) => {
      const { showIndexStatus } = await import('./search.ts');
      outcome.code = await showIndexStatus(options, context);
    });
}

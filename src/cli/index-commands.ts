/** The commands of `tailcast index`. */
import { Option, type Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';

export const RECORDER_OPTION = [
  '--recorder <url>',
  'the recorder to ask [TAILCAST_RECORDER]; default: the demo’s',
] as const;

/** Each says by its exit code what it found. */
export function addIndex(program: Command, context: CommandContext, outcome: { code: number }): void {
  const index = program.command('index').description('the search index of a recorder');
  index
    .command('rebuild')
    .description('build the index anew beside the old one, which answers until the new one is whole')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .option('--no-wait', 'do not wait for it')
    .addHelpText(
      'after',
      '\nExit code: 0 it was built, or begun with --no-wait. A recorder that is restarted goes on with it.',
    )
    .action(async (options: Record<string, unknown>) => {
      const { rebuildIndex } = await import('./search.ts');
      outcome.code = await rebuildIndex(options, context);
    });
  index
    .command('verify')
    .description('hold the index against the store, and say what is wrong')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .addOption(
      new Option('--text <which>', 'of which recordings the text is read again')
        .choices(['none', 'sample', 'all'])
        .default('sample'),
    )
    .option('--json', 'one JSON object per line')
    .addHelpText(
      'after',
      '\nExit code: 0 the index is right, 1 it is not, 2 wrong usage. Nothing is changed.',
    )
    .action(async (options: Record<string, unknown>) => {
      const { checkIndex } = await import('./search.ts');
      outcome.code = await checkIndex(options, context);
    });
  index
    .command('status')
    .description('say how far the index is')
    .exitOverride()
    .option(...RECORDER_OPTION)
    .option('--json', 'one JSON object')
    .addHelpText('after', '\nExit code: 0 the index is complete, 1 it is not, 2 wrong usage.')
    .action(async (options: Record<string, unknown>) => {
      const { showIndexStatus } = await import('./search.ts');
      outcome.code = await showIndexStatus(options, context);
    });
}

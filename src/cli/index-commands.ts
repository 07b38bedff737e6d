/** The commands of `tailcast index`. */
import type { Tool } from './tool.ts';

export const RECORDER_OPTION = [
  '--recorder <url>',
  'URL of the recorder [TAILCAST_RECORDER]; default: the recorder of the demo',
] as const;

/** Adds the commands. */
export function addIndex(program: Tool): void {
  const index = program.add('index', 'check or rebuild the search index of a recorder');
  index
    .add('rebuild', 'build a new index; the old index serves searches until the new one is complete')
    .option(...RECORDER_OPTION)
    .option('--no-wait', 'return immediately')
    .addHelpText(
      'after',
      '\nExit code: 0 the index is complete, or started with --no-wait. A restarted recorder continues the build.',
    )
    .loads(async () => (await import('./search.ts')).rebuildIndex);
  index
    .add('verify', 'compare the index with the store')
    .option(...RECORDER_OPTION)
    .option('--json', 'one JSON object per line')
    .addHelpText(
      'after',
      '\nExit code: 0 the index is correct, 1 it differs, 2 wrong usage. The command changes nothing.',
    )
    .loads(async () => (await import('./search.ts')).checkIndex);
  index
    .add('status', 'print the progress of the index')
    .option(...RECORDER_OPTION)
    .option('--json', 'one JSON object')
    .addHelpText('after', '\nExit code: 0 the index is complete, 1 it is not, 2 wrong usage.')
    .loads(async () => (await import('./search.ts')).showIndexStatus);
}

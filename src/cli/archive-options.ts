/** Options that select the archive and the recordings of a command. */
import type { Command } from 'commander';

/** Adds the options that name a recorder, a store or a gateway. */
export function addArchiveOptions(command: Command): Command {
  return addContextOptions(command)
    .option(
      '--recorder <url>',
      'URL of a recorder [TAILCAST_RECORDER]; default: the recorder of the demo. With several recorders and ' +
        'stores, parts of a session are joined',
      oneMore,
    )
    .option(
      '--store <directory|s3://…>',
      'directory or bucket to read instead, with the variables TAILCAST_S3_… and TAILCAST_SEAL_KEYS [TAILCAST_STORE]',
      oneMore,
    )
    .option(
      '--recorder-keys <file>',
      'file with public evidence keys (PEM) of the store’s recorders; without it, recordings are unverified ' +
        '[TAILCAST_RECORDER_KEYS]',
    );
}

/** Adds the options that name a gateway instead of a recorder. */
export function addContextOptions(command: Command): Command {
  return command
    .option('--context <name>', 'use the gateway of this kubeconfig context')
    .option('--kubeconfig <file>', 'kubeconfig of that context; default: the file that kubectl uses');
}

/** Collects the values of an option that may be given several times. */
function oneMore(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

/** Options that select the archive and the recordings of a command. */
import { several } from './arguments.ts';
import type { Tool } from './tool.ts';

/** Adds the options that name a recorder, a store or a gateway. */
export function addArchiveOptions(command: Tool): Tool {
  return addContextOptions(command)
    .option(
      '--recorder <url>',
      'URL of a recorder [TAILCAST_RECORDER]; default: the recorder of the demo. With several recorders and ' +
        'stores, parts of a session are joined',
      several,
    )
    .option(
      '--store <directory|s3://…>',
      'directory or bucket to read instead, with the variables TAILCAST_S3_… and TAILCAST_SEAL_KEYS [TAILCAST_STORE]',
      several,
    )
    .option(
      '--recorder-keys <file>',
      'file with public evidence keys (PEM) of the store’s recorders; without it, recordings are unverified ' +
        '[TAILCAST_RECORDER_KEYS]',
    );
}

/** Adds the options that name a gateway instead of a recorder. */
export function addContextOptions(command: Tool): Tool {
  return command
    .option('--context <name>', 'use the gateway of this kubeconfig context')
    .option('--kubeconfig <file>', 'kubeconfig of that context; default: the file that kubectl uses');
}

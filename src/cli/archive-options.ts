/** The options that say which recordings a command reads. */
import type { Command } from 'commander';

export function addArchiveOptions(command: Command): Command {
  return addContextOptions(command)
    .option(
      '--recorder <url>',
      'the recorder to ask [TAILCAST_RECORDER]; default: the demo’s. Several of these, and of stores: parts of a session are put together',
      oneMore,
    )
    .option(
      '--store <directory|s3://…>',
      'read a recorder’s directory or bucket instead; S3 as TAILCAST_S3_… says, sealed recordings with TAILCAST_SEAL_KEYS [TAILCAST_STORE]',
      oneMore,
    )
    .option(
      '--recorder-keys <file>',
      'public evidence keys of the recorders of the store, PEM; without them its recordings are unverified [TAILCAST_RECORDER_KEYS]',
    );
}

/** The options that name a gateway instead of a recorder. */
export function addContextOptions(command: Command): Command {
  return command
    .option('--context <name>', 'ask the gateway that this context of the kubeconfig leads to')
    .option('--kubeconfig <file>', 'kubeconfig of that context; default: as kubectl finds it');
}

/** Of an option that may be given several times. */
function oneMore(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { DEMO_CHECKS, DEMO_SETTINGS, type DemoConfig } from '../config/demo.ts';
import { FORWARDER_CHECKS, FORWARDER_SETTINGS } from '../config/forwarder.ts';
import { GATEWAY_SETTINGS } from '../config/gateway.ts';
import { INGRESS_SETTINGS } from '../config/ingress.ts';
import { NAMESERVER_SETTINGS } from '../config/nameserver.ts';
import { OPERATOR_CHECKS, OPERATOR_SETTINGS } from '../config/operator.ts';
import { RECORDER_SETTINGS } from '../config/recorder.ts';
import { withReferenceNames } from '../config/reference-names.ts';
import { byteSize, positiveNumber, wholeNumber } from '../config/values.ts';
import { TailcastError, errorText, type ErrorCode } from '../errors.ts';
import type { CommandContext } from '../config/command-context.ts';
import { addArchiveOptions, addContextOptions } from './archive-options.ts';
import { formatFailure } from './failure-text.ts';
import { addSettingOptions, readRoleSettings } from './role-options.ts';
import { SHELLS, completionScript, completions } from './completion.ts';
import { RECORDING_STATES, RESULT_VALUES, TRUST_LEVELS } from '../wire/recorder-api/recording-status.ts';
import { addAlerts } from './alert-commands.ts';
import { addDoctor } from './doctor-commands.ts';
import { addIndex, RECORDER_OPTION } from './index-commands.ts';
import { addMigrate } from './migrate.ts';
import { print } from './output.ts';
import { EXPORT_FORMATS, EXPORT_HELP, LS_HELP, PLAY_HELP, SEARCH_HELP } from './help-texts.ts';
import { IMAGE, VERSION_TEXT } from '../version.ts';

/** Failures that are more than "it failed". */
const EXIT_CODES: ReadonlyMap<ErrorCode, number> = new Map([
  ['USAGE', 2],
  ['CONFIG_INVALID', 2],
  ['AUDIT_LOG_UNUSABLE', 3],
]);

/**
 * Runs one invocation of `tailcast`. Every failure that a person can do something about ends as one sentence on
 * standard error; only a defect shows a stack.
 *
 * @param args the arguments without `node` and the script.
 * @returns the exit code: 0 done, 1 failed, 2 wrong usage, 3 nothing could be judged, 130 stopped by Ctrl-C before it was done.
 */
export async function runProgram(args: readonly string[], context: CommandContext): Promise<number> {
  const outcome = { code: 0 };
  const program = createProgram(context, outcome);
  if (args[0] === '__complete') {
    await print(context.stdout, `${completions(program, args.slice(1)).join('\n')}\n`);
    return 0;
  }
  try {
    checkHelp(program, args);
    await program.parseAsync(args, { from: 'user' });
    return outcome.code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (!(error instanceof TailcastError) && context.signal.aborted) return 130;
    await print(context.stderr, formatFailure(error));
    return error instanceof TailcastError ? (EXIT_CODES.get(error.code) ?? 1) : 1;
  }
}

/** @throws TailcastError `USAGE` when help is wanted for a command that does not exist */
function checkHelp(program: Command, args: readonly string[]): void {
  let command = program;
  let isHelp = false;
  for (const word of args) {
    const isFirst = word === 'help' && !isHelp && command.commands.length > 0;
    const next = command.commands.find((each) => each.name() === word);
    if (isFirst) isHelp = true;
    else if (next !== undefined) command = next;
    else if (isHelp && !word.startsWith('-')) throw new TailcastError('USAGE', `there is no command ${word}`);
    else return;
  }
}

/** The whole command line; what a command says by its exit code goes into `outcome`. */
export function createProgram(context: CommandContext, outcome: { code: number }): Command {
  const program = new Command(context.programName ?? 'tailcast')
    .description('Kubernetes API-server proxy and session recorder for tailnets')
    .version(VERSION_TEXT, '-V, --version')
    .showHelpAfterError('  Run it with --help for all options. [USAGE]')
    .configureOutput({
      writeOut: (text) => void print(context.stdout, text),
      writeErr: (text) => void print(context.stderr, text),
      outputError: (text, write) => write(`tailcast: ${text.replace(/^error: /, '')}`),
    })
    .exitOverride();
  const command = (name: string, description: string): Command =>
    program.command(name).description(description).exitOverride();
  addRoles(command, context);
  addTools(command, context, outcome);
  addSearch(program, command, context, outcome);
  addAlerts(program, context, outcome);
  addVerify(command, context, outcome);
  addRetention(command, context);
  addPolicy(command, context);
  addCoverage(command, context, outcome);
  addDoctor(program, context, outcome);
  addMigrate(program, context, outcome);
  addCompletion(command, context);
  return program;
}

type AddCommand = (name: string, description: string) => Command;

/** The long-running roles. Each loads its own code only when it is run. */
function addRoles(command: AddCommand, context: CommandContext): void {
  const { environment } = context;
  addSettingOptions(
    command('gateway', 'put the Kubernetes API server on the tailnet and record exec and attach sessions'),
    GATEWAY_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const { GATEWAY_CHECKS } = await import('../compose/gateway-checks.ts');
    const config = readRoleSettings(GATEWAY_SETTINGS, options, environment, GATEWAY_CHECKS);
    const { runGateway } = await import('../compose/gateway.ts');
    await runGateway(config, context);
  });
  addSettingOptions(
    command('recorder', 'take session recordings, keep them and serve the player'),
    RECORDER_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const { RECORDER_CHECKS } = await import('../compose/recorder-checks.ts');
    const named = withReferenceNames(environment);
    const config = readRoleSettings(RECORDER_SETTINGS, options, named, RECORDER_CHECKS);
    const { runRecorder } = await import('../compose/recorder.ts');
    await runRecorder(config, context);
  });
  addSettingOptions(
    command(
      'operator',
      'deploy what Recorder, ProxyGroup, Connector, DNSConfig resources and Services ask for',
    ),
    OPERATOR_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const config = readRoleSettings(OPERATOR_SETTINGS, options, environment, OPERATOR_CHECKS);
    const { runOperator } = await import('../compose/operator.ts');
    await runOperator(config, context, IMAGE);
  });
  addSettingOptions(
    command('nameserver', 'answer in the cluster for names of the tailnet, as a DNSConfig resource asks for'),
    NAMESERVER_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const config = readRoleSettings(NAMESERVER_SETTINGS, options, environment);
    const { runNameserver } = await import('../compose/nameserver.ts');
    await runNameserver(config, context);
  });
  addSettingOptions(
    command(
      'forwarder',
      'carry connections to one node of the tailnet, as an unprivileged egress proxy does',
    ),
    FORWARDER_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const config = readRoleSettings(FORWARDER_SETTINGS, options, environment, FORWARDER_CHECKS);
    const { runForwarder } = await import('../compose/forwarder.ts');
    await runForwarder(config, context);
  });
  addSettingOptions(
    command('ingress', 'serve Ingresses with certificates of their own, beside a tailscaled'),
    INGRESS_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const config = readRoleSettings(INGRESS_SETTINGS, options, environment);
    const { runIngress } = await import('../compose/ingress.ts');
    await runIngress(config, context);
  });
  addSettingOptions(
    command(
      'demo',
      'run everything on this machine: a small cluster, the gateway, the recorder and the player',
    ),
    DEMO_SETTINGS,
  ).action(async (options: Record<string, unknown>) => {
    const config = readRoleSettings(DEMO_SETTINGS, options, environment, DEMO_CHECKS);
    await runDemo(config, context);
  });
}

/** Runs `demo/run.ts`, or what `scripts/build-demo.mjs` has made of it. No file of `src` imports `demo` by name. */
async function runDemo(config: DemoConfig, context: CommandContext): Promise<void> {
  const isSource = import.meta.url.endsWith('.ts');
  const path = isSource ? '../../demo/run.ts' : '../demo/run.js';
  // oxlint-disable-next-line typescript/no-unsafe-assignment -- the path is made here
  const loaded: { readonly runDemo: typeof runDemo } = await import(new URL(path, import.meta.url).href);
  await loaded.runDemo(config, context);
}

/** The tools of the people who use recordings and clusters. */
function addTools(command: AddCommand, context: CommandContext, outcome: { code: number }): void {
  addArchiveOptions(command('ls', 'list recordings, newest first'))
    .option('--limit <n>', 'how many at most', argument(wholeNumber(1, 100_000)), 50)
    .option('--user <login>', 'only sessions of this user')
    .option('--namespace <name>', 'only sessions in this namespace')
    .option('--pod <name>', 'only sessions in this pod')
    .addOption(new Option('--state <state>', 'only these').choices(RECORDING_STATES))
    .option('--result <result>', `only these: ${RESULT_VALUES}`)
    .addOption(new Option('--trust <level>', 'only these').choices(TRUST_LEVELS))
    .option('--text <text>', 'only those with this in a name or in the command')
    .option('--since <time>', 'begun at this date, time or age (7d) or later')
    .option('--until <time>', 'begun before this')
    .option(
      '--columns <names>',
      'what to print, with commas: id, started, who, from, where, container, kind, …',
    )
    .option('--sort <column>', 'by a column instead of the newest first; -size: the largest first')
    .option('--wide', 'all of each cell at a terminal, with full ids and times')
    .option('--json', 'one JSON object per line')
    .addHelpText('after', LS_HELP)
    .action(async (options: Record<string, unknown>) => {
      const { printRecordings } = await import('./ls.ts');
      await printRecordings(options, context);
    });
  addArchiveOptions(command('play', 'play a recording in this terminal'))
    .argument('<id>', 'an id from `tailcast ls` (short, or its beginning), `latest`, or a .cast file')
    .option('--speed <factor>', 'play this much faster', argument(positiveNumber(1000)), 1)
    .option('--from <time>', 'begin there: 90, 1:30 or 1h2m3s; what came before is shown at once')
    .option('--idle-limit <seconds>', 'cut pauses to this', argument(positiveNumber(1e6)))
    .option('--fit', 'ask the terminal for the size of the recording')
    .option('--follow', 'go on while the session is still running')
    .option(
      '--raw',
      'write recorded control sequences as they are: a hostile recording can then drive this terminal',
    )
    .addHelpText('after', PLAY_HELP)
    .action(async (id: string, options: Record<string, unknown>) => {
      const { playRecording } = await import('./play.ts');
      await playRecording(id, options, context);
    });
  addArchiveOptions(
    command('export', 'write a recording into a file that plays it anywhere, with its evidence'),
  )
    .argument('<id>', 'an id from `tailcast ls` (short, or its beginning), or `latest`')
    .addOption(new Option('--format <format>', EXPORT_HELP).choices(EXPORT_FORMATS).default('html'))
    .option('--output <file>', 'where to; `-` is standard output; default: the id, here')
    .action(async (id: string, options: Record<string, unknown>) => {
      const { writeExport } = await import('./export.ts');
      outcome.code = await writeExport(id, options, context);
    });
  command('kubeconfig', 'add gateways to the kubeconfig; the first becomes the current context')
    .argument('<host...>', 'names, addresses or URLs of gateways')
    .option('--certificate-authority <file>', 'CA of the gateway’s certificate, when it is not a public one')
    .option(
      '--name <name>',
      'name of the cluster and context, with one host; default: the host, with a port other than 443',
    )
    .option('--file <file>', 'kubeconfig to change; default: as kubectl finds it')
    .option('--kubeconfig <file>', 'the same as --file, by the name that kubectl has for it')
    .option('--force', 'replace entries of the same name that are not of a gateway')
    .option('--print', 'print the kubeconfig and change nothing')
    .option('--socket <path>', 'tailscaled’s LocalAPI socket, to look up short names')
    .action(async (hosts: readonly string[], options: Record<string, unknown>) => {
      const { writeGatewayKubeconfig } = await import('./kubeconfig.ts');
      await writeGatewayKubeconfig(hosts, options, context);
    });
}

/** `search` says by its exit code whether anything was found, as grep does. */
function addSearch(
  program: Command,
  command: AddCommand,
  context: CommandContext,
  outcome: { code: number },
): void {
  addContextOptions(command('search', 'find sessions by what they were, and by what was on their screens'))
    .argument('[query...]', 'words, "phrases", key:value; see below')
    .option(...RECORDER_OPTION)
    .option('--limit <n>', 'how many sessions at most', argument(wholeNumber(1, 10_000)), 20)
    .option('--json', 'one JSON object per line')
    .addHelpText('after', SEARCH_HELP)
    .action(async (words: readonly string[], options: Record<string, unknown>) => {
      const { searchRecordings } = await import('./search.ts');
      try {
        outcome.code = await searchRecordings(words, options, context);
      } catch (error) {
        if (!(error instanceof TailcastError)) throw error;
        // that nothing could be asked is not that nothing was found
        await print(context.stderr, formatFailure(error));
        outcome.code = 2;
      }
    });
  addIndex(program, context, outcome);
}

/** `verify` says by its exit code what it found. */
function addVerify(command: AddCommand, context: CommandContext, outcome: { code: number }): void {
  const { environment } = context;
  const { s3Endpoint, s3Region, s3PathStyle } = RECORDER_SETTINGS;
  addSettingOptions(
    command('verify', 'say whether recordings are what was recorded, and whether any is missing'),
    { s3Endpoint, s3Region, s3PathStyle },
  )
    .argument(
      '[store-or-id...]',
      'directories of recorders, or s3://bucket/prefix: name all recorders that take sessions over from each other. Ids of recordings, or latest: only these are reported. Default: the store of TAILCAST_STORE or of the demo. Nothing is changed',
    )
    .option(
      '--key <key...>',
      'public keys of the recorders: PEM files, or base64; without, nothing is vouched for',
    )
    .option('--checkpoint <file>', 'what an earlier run saved: nothing of that may have gone since')
    .option('--save-checkpoint <file>', 'save how far the logs are, if nothing is at fault')
    .option('--require-evidence', 'a recording without evidence is a fault')
    .option(
      '--unfinished-hours <n>',
      'a session that its recorder has not named for so long is a fault',
      argument(wholeNumber(1, 100_000)),
      24,
    )
    .option('--json', 'one JSON object instead of lines')
    .addHelpText(
      'after',
      '\nExit code: 0 nothing is at fault, 1 something is, 2 wrong usage, 3 not judged (no key was named, or none of them signed a log here), 4 acknowledged bytes are lost.',
    )
    .action(async (words: readonly string[], options: Record<string, unknown>) => {
      const { verifyArchive, splitWords } = await import('./verify.ts');
      const { key, checkpoint, saveCheckpoint, requireEvidence, unfinishedHours, json, ...settings } =
        options;
      const shared = readRoleSettings(RECORDER_SETTINGS, settings, environment);
      const { stores, ids } = await splitWords(words, environment);
      const configs = stores.map((store) => ({ ...shared, store }));
      const chosen = { ids, key, checkpoint, saveCheckpoint, requireEvidence, unfinishedHours, json };
      outcome.code = await verifyArchive(configs, chosen, context);
    });
}

/** `coverage` says by its exit code whether anything is missing. */
function addCoverage(command: AddCommand, context: CommandContext, outcome: { code: number }): void {
  addArchiveOptions(
    command('coverage', 'join the API server’s audit log with the recordings, and list what is missing'),
  )
    .argument('<audit-log...>', 'audit logs of the API server, one JSON object per line')
    .option('--json', 'every session as a JSON object, one per line')
    .addHelpText(
      'after',
      '\nExit code: 0 every session that can be recorded is, 1 something is missing or the command failed, 2 wrong usage, 3 a log is no audit log, is empty or was cut, so nothing is said.',
    )
    .action(async (auditLogs: string[], options: Record<string, unknown>) => {
      const { reportCoverage } = await import('./coverage.ts');
      outcome.code = await reportCoverage(auditLogs, options, context);
    });
}

function addRetention(command: AddCommand, context: CommandContext): void {
  const { s3Endpoint, s3Region, s3PathStyle, evidenceKey, recorderKeys } = RECORDER_SETTINGS;
  addSettingOptions(
    command('retention', 'show what a retention policy would remove, and hold recordings back from it'),
    { s3Endpoint, s3Region, s3PathStyle, evidenceKey, recorderKeys },
  )
    .argument('<store>', 'a recorder’s directory, or s3://bucket/prefix')
    .option('--max-age-days <n>', 'as the recorder’s --retention-days', argument(wholeNumber(1, 36_500)))
    .option('--max-bytes <size>', 'as the recorder’s --max-store-bytes', argument(byteSize(1, 1024 ** 5)))
    .option(
      '--min-age-days <n>',
      'as the recorder’s --min-retention-days',
      argument(wholeNumber(0, 36_500)),
      1,
    )
    .option('--hold <id...>', 'keep these recordings, or `latest`, whatever the policy says')
    .option('--release <id...>', 'end the hold of these')
    .option('--reason <text>', 'why they are held or released')
    .option('--json', 'one JSON object instead of lines')
    .addHelpText(
      'after',
      '\nNothing is removed here: recorders do that, and write it into their logs.\nHolds and releases are signed with --evidence-key. A hold that no named key signed is shown as unproven.',
    )
    .action(async (store: string, options: Record<string, unknown>) => {
      const { manageRetention } = await import('./retention.ts');
      const { maxAgeDays, maxBytes, minAgeDays, hold, release, reason, json, ...settings } = options;
      const config = { ...readRoleSettings(RECORDER_SETTINGS, settings, context.environment), store };
      await manageRetention(
        config,
        { maxAgeDays, maxBytes, minAgeDays, hold, release, reason, json },
        context,
      );
    });
}

/** Questions about what a gateway would do, and the rights it needs for it. */
function addPolicy(command: AddCommand, context: CommandContext): void {
  const policy = command('policy', 'ask what a gateway would do, and write down the rights it needs');
  policy
    .command('rbac')
    .description('print an account that can only impersonate, if wanted only these users and groups, as YAML')
    .exitOverride()
    .option('--user <name...>', 'a user it may be; none: anybody')
    .option('--group <name...>', 'a group it may give; none: any')
    .option('--constrained', 'for constrained impersonation: Kubernetes 1.36 and newer')
    .option('--audit-extras', 'for a gateway with auditExtras')
    .option('--namespace <name>', 'of the service account', 'tailcast')
    .option('--account <name>', 'name of the service account', 'tailcast-gateway')
    .action(async (options: Record<string, unknown>) => {
      const { printRbac } = await import('./rbac.ts');
      await printRbac(options, context);
    });
  policy
    .command('explain')
    .description('say how a request is read, what class it is of, and what becomes of it')
    .exitOverride()
    .argument('<method>', 'e.g. GET')
    .argument('<path>', 'e.g. /api/v1/namespaces/default/pods/web/exec?command=sh')
    .option('--file <file>', 'policy file; default: the policy of a gateway without one')
    .option('--upgrade', 'the request asks for SPDY or WebSocket')
    .action((method: string, target: string, options: Record<string, unknown>) =>
      explain(method, target, options, context),
    );
}

async function explain(
  method: string,
  target: string,
  { file, upgrade }: Record<string, unknown>,
  context: CommandContext,
): Promise<void> {
  const { explainRequest } = await import('../compose/gateway-policy.ts');
  const lines = explainRequest({
    method,
    target,
    upgrade: upgrade === true,
    file: typeof file === 'string' ? file : undefined,
  });
  await print(context.stdout, `${lines.join('\n')}\n`);
}

function addCompletion(command: AddCommand, { stdout }: CommandContext): void {
  command('completion', 'print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'the shell that is to load it').choices(SHELLS))
    .addHelpText(
      'after',
      '\nFor now: source <(tailcast completion bash). The script says where it can be kept.',
    )
    .action((shell: string) => print(stdout, completionScript(shell)));
}

function argument<T>(parse: (raw: unknown) => T): (raw: string) => T {
  return (raw) => {
    try {
      return parse(raw);
    } catch (error) {
      throw new InvalidArgumentError(errorText(error));
    }
  };
}

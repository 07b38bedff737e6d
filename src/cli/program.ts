import { Argument, CommanderError, Option, type Command } from 'commander';
import { DEMO_CHECKS, DEMO_SETTINGS } from '../config/demo.ts';
import { FORWARDER_CHECKS, FORWARDER_SETTINGS } from '../config/forwarder.ts';
import { GATEWAY_SETTINGS } from '../config/gateway.ts';
import { INGRESS_SETTINGS } from '../config/ingress.ts';
import { NAMESERVER_SETTINGS } from '../config/nameserver.ts';
import { OPERATOR_CHECKS, OPERATOR_SETTINGS } from '../config/operator.ts';
import { RECORDER_SETTINGS } from '../config/recorder.ts';
import { withReferenceNames } from '../config/reference-names.ts';
import type { SettingTable } from '../config/settings.ts';
import { byteSize, positiveNumber, wholeNumber } from '../config/values.ts';
import { TailcastError, type ErrorCode } from '../errors.ts';
import type { CommandContext } from '../config/command-context.ts';
import { argument, several } from './arguments.ts';
import { addArchiveOptions, addContextOptions } from './archive-options.ts';
import { formatFailure } from './failure-text.ts';
import { addSettingOptions, readRoleSettings } from './role-options.ts';
import { SHELLS, completionScript, completionText } from './completion.ts';
import { RECORDING_STATES, RESULT_VALUES, TRUST_LEVELS } from '../wire/recorder-api/recording-status.ts';
import { addAccess, addReport } from './access-commands.ts';
import { addAlerts } from './alert-commands.ts';
import { addDoctor } from './doctor-commands.ts';
import { addIndex, RECORDER_OPTION } from './index-commands.ts';
import { addMigrate } from './migrate.ts';
import { print } from './output.ts';
import { reportUsage } from './usage-text.ts';
import { addSessions } from './session-commands.ts';
import { Tool, type Options } from './tool.ts';
import { CLIP_FORMATS, EXPORT_FORMATS, EXPORT_HELP, LS_HELP, PLAY_HELP, SEARCH_HELP } from './help-texts.ts';
import { IMAGE, VERSION_TEXT } from '../version.ts';

/** Errors with an exit code other than 1. */
const EXIT_CODES: ReadonlyMap<ErrorCode, number> = new Map([
  ['USAGE', 2],
  ['CONFIG_INVALID', 2],
  ['AUDIT_LOG_UNUSABLE', 3],
]);

/**
 * Runs one invocation of `tailcast`. Prints a message for an expected failure to stderr. Only defects print a stack.
 *
 * @param args the arguments without `node` and the script
 * @returns the exit code: 0 done, 1 failed, 2 wrong usage, 3 unusable audit log or unverified recordings, 4 lost output
 *   (`verify`), 130 stopped by Ctrl-C
 */
export async function runProgram(args: readonly string[], context: CommandContext): Promise<number> {
  const program = createProgram(context);
  if (args[0] === '__complete') {
    await print(context.stdout, await completionText(program, args.slice(1), context.environment));
    return 0;
  }
  try {
    checkHelp(program, args);
    await program.parseAsync(args, { from: 'user' });
    return program.outcome.code;
  } catch (error) {
    if (error instanceof CommanderError) return reportUsage(error, context.stderr);
    if (!(error instanceof TailcastError) && context.signal.aborted) return 130;
    await print(context.stderr, formatFailure(error));
    if (!(error instanceof TailcastError)) return 1;
    return program.outcome.failureCode ?? EXIT_CODES.get(error.code) ?? 1;
  }
}

/** @throws TailcastError `USAGE` if the user requests help for an unknown command */
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

/** Returns the parser with all commands. */
export function createProgram(context: CommandContext): Tool {
  const program = new Tool(context.programName ?? 'tailcast', context)
    .description('Kubernetes API-server proxy and session recorder for tailnets')
    .version(VERSION_TEXT, '-V, --version')
    .configureOutput({
      writeOut: (text) => void print(context.stdout, text),
      writeErr: (text) => void print(context.stderr, text),
      outputError: () => undefined,
    })
    .exitOverride();
  addRoles(program);
  addTools(program);
  addSearch(program);
  addAlerts(program);
  addSessions(program);
  addAccess(program);
  addReport(program);
  addVerify(program);
  addRetention(program);
  addPolicy(program);
  addCoverage(program);
  addDoctor(program);
  addMigrate(program);
  addCompletion(program);
  return program;
}

/** Adds the long-running roles. The code of a role is loaded when the role runs. */
function addRoles(program: Tool): void {
  const { context } = program;
  const { environment } = context;
  const role = (name: string, table: SettingTable): Tool => addSettingOptions(program.command(name), table);
  role('gateway', GATEWAY_SETTINGS)
    .description('run the API-server proxy, which records exec and attach sessions')
    .action(async (options: Options) => {
      const { GATEWAY_CHECKS } = await import('../compose/gateway-checks.ts');
      const config = readRoleSettings(GATEWAY_SETTINGS, options, environment, GATEWAY_CHECKS);
      await (await import('../compose/gateway.ts')).runGateway(config, context);
    });
  role('recorder', RECORDER_SETTINGS)
    .description('store recordings and serve the player')
    .action(async (options: Options) => {
      const { RECORDER_CHECKS } = await import('../compose/recorder-checks.ts');
      const named = withReferenceNames(environment);
      const config = readRoleSettings(RECORDER_SETTINGS, options, named, RECORDER_CHECKS);
      await (await import('../compose/recorder.ts')).runRecorder(config, context);
    });
  role('operator', OPERATOR_SETTINGS)
    .description('run recorders, gateways and network proxies from Kubernetes resources')
    .action(async (options: Options) => {
      const config = readRoleSettings(OPERATOR_SETTINGS, options, environment, OPERATOR_CHECKS);
      await (await import('../compose/operator.ts')).runOperator(config, context, IMAGE);
    });
  role('nameserver', NAMESERVER_SETTINGS)
    .description('resolve tailnet names in the cluster, for a DNSConfig resource')
    .action(async (options: Options) => {
      const config = readRoleSettings(NAMESERVER_SETTINGS, options, environment);
      await (await import('../compose/nameserver.ts')).runNameserver(config, context);
    });
  role('forwarder', FORWARDER_SETTINGS)
    .description('forward connections to one tailnet node, for an unprivileged egress proxy')
    .action(async (options: Options) => {
      const config = readRoleSettings(FORWARDER_SETTINGS, options, environment, FORWARDER_CHECKS);
      await (await import('../compose/forwarder.ts')).runForwarder(config, context);
    });
  role('ingress', INGRESS_SETTINGS)
    .description('serve Ingresses with certificates from Secrets, next to tailscaled')
    .action(async (options: Options) => {
      const config = readRoleSettings(INGRESS_SETTINGS, options, environment);
      await (await import('../compose/ingress.ts')).runIngress(config, context);
    });
  role('demo', DEMO_SETTINGS)
    .description('run a small cluster, the gateway, the recorder and the player on this machine')
    .action(async (options: Options) => {
      const config = readRoleSettings(DEMO_SETTINGS, options, environment, DEMO_CHECKS);
      await (await import('./run-demo.ts')).loadDemo(config, context);
    });
}

/** Adds the tools for recordings and clusters. */
function addTools(program: Tool): void {
  addArchiveOptions(program.add('ls', 'list recordings, newest first'))
    .option('--limit <n>', 'maximum number of recordings', argument(wholeNumber(1, 100_000)), 50)
    .option('--user <login>', 'only sessions of this user')
    .option('--cluster <name>', 'only sessions in this cluster')
    .option('--namespace <name>', 'only sessions in this namespace')
    .option('--pod <name>', 'only sessions in this pod')
    .addOption(new Option('--state <state>', 'only recordings in this state').choices(RECORDING_STATES))
    .option('--result <result>', `only recordings with this result: ${RESULT_VALUES}`)
    .addOption(new Option('--trust <level>', 'only recordings with this trust').choices(TRUST_LEVELS))
    .option('--text <text>', 'only recordings with this text in a name or in the command')
    .option('--since <time>', 'started at this date, time or age (7d) or later')
    .option('--until <time>', 'started before this date, time or age')
    .option(
      '--columns <names>',
      'columns, separated by commas: id, started, who, from, where, container, kind, …',
    )
    .option('--sort <column>', 'sort by this column; -size: the largest first; default: the newest first')
    .option('--wide', 'print complete cells, ids and times at a terminal')
    .option('--json', 'one JSON object per line')
    .addHelpText('after', LS_HELP)
    .loads(async () => (await import('./ls.ts')).printRecordings);
  addArchiveOptions(program.add('play', 'play a recording in this terminal'))
    .argument('<id>', 'id from `tailcast ls` (or its beginning), `latest`, or a .cast file')
    .option('--speed <factor>', 'speed of playback', argument(positiveNumber(1000)), 1)
    .option('--from <time>', 'start time: 90, 1:30 or 1h2m3s; earlier output appears immediately')
    .option('--idle-limit <seconds>', 'maximum length of a pause', argument(positiveNumber(1e6)))
    .option('--fit', 'resize the terminal to the size of the recording')
    .option('--follow', 'continue while the session runs')
    .option(
      '--raw',
      'write recorded control sequences unchanged; a hostile recording can then control this terminal',
    )
    .addHelpText('after', PLAY_HELP)
    .loads(async () => (await import('./play.ts')).playRecording);
  addArchiveOptions(program.add('clip', 'write a range of a recording as an animation'))
    .argument('<id>', 'id from `tailcast ls` (or its beginning), `latest`, or a .cast file')
    .option('--from <time>', 'start time: 90, 1:30 or 1h2m3s; default: the start of the recording')
    .option('--to <time>', 'end time; default: 10 seconds after the start')
    .addOption(
      new Option('--format <format>', 'svg; gif needs the program agg or ffmpeg, mp4 needs ffmpeg')
        .choices(CLIP_FORMATS)
        .default('svg'),
    )
    .option('--output <file>', 'output file; `-` is standard output; default: the id in this directory')
    .loads(async () => (await import('./clip.ts')).writeClip);
  addArchiveOptions(program.add('export', 'write a recording with player and evidence into a file'))
    .argument('<id>', 'id from `tailcast ls` (or its beginning), or `latest`')
    .addOption(new Option('--format <format>', EXPORT_HELP).choices(EXPORT_FORMATS).default('html'))
    .option('--output <file>', 'output file; `-` is standard output; default: the id in this directory')
    .loads(async () => (await import('./export.ts')).writeExport);
  program
    .add('kubeconfig', 'add gateways to the kubeconfig; the first becomes the current context')
    .argument('<host...>', 'names, addresses or URLs of gateways')
    .option('--certificate-authority <file>', 'CA of the gateway’s certificate; default: public CAs')
    .option(
      '--name <name>',
      'name of cluster and context, for one host; default: the host; with --all a template, default {name}@{host}',
    )
    .option('--all', 'add every cluster of a gateway that you may use; keeps the current context')
    .option('--file <file>', 'kubeconfig to change; default: the file that kubectl uses')
    .option('--kubeconfig <file>', 'same as --file')
    .option('--force', 'replace entries with this name that another program created')
    .option('--print', 'print the kubeconfig and change nothing')
    .option('--socket <path>', 'LocalAPI socket of tailscaled, to resolve short names')
    .loads(async () => (await import('./kubeconfig.ts')).writeGatewayKubeconfig);
}

/** Adds `search`. The exit codes are the same as in grep: 0 for a match, 1 for no match. */
function addSearch(program: Tool): void {
  addContextOptions(program.add('search', 'find sessions by names, commands and screen text'))
    .argument('[query...]', 'words, "phrases" and key:value terms; see below')
    .option(...RECORDER_OPTION)
    .option('--limit <n>', 'maximum number of sessions', argument(wholeNumber(1, 10_000)), 20)
    .option('--json', 'one JSON object per line')
    .addHelpText('after', SEARCH_HELP)
    // exit code 2, because a failed search must not look like a search without matches
    .failsWith(2)
    .loads(async () => (await import('./search.ts')).searchRecordings);
  addIndex(program);
}

/** Adds `verify`. The exit code depends on the verdict. */
function addVerify(program: Tool): void {
  const { context } = program;
  const { environment } = context;
  const { s3Endpoint, s3Region } = RECORDER_SETTINGS;
  addSettingOptions(program.add('verify', 'check recordings for changes and missing files'), {
    s3Endpoint,
    s3Region,
  })
    .argument(
      '[store-or-id...]',
      'directories of recorders, or s3://bucket/prefix: name all recorders that take sessions over from each other. Ids of recordings, or latest: only these are reported. Default: the store of TAILCAST_STORE or of the demo. Nothing is changed',
    )
    .option(
      '--key <key>',
      'public key of a recorder, a PEM file or base64, repeatable; without keys, no recording is verified',
      several,
    )
    .option('--checkpoint <file>', 'state of an earlier run; everything in it must still exist')
    .option('--save-checkpoint <file>', 'save the state of the evidence logs, if there are no faults')
    .option('--require-evidence', 'report recordings without evidence as faults')
    .option(
      '--unfinished-hours <n>',
      'hours without a log entry after which an unfinished session is a fault',
      argument(wholeNumber(1, 100_000)),
      24,
    )
    .option('--json', 'one JSON object instead of lines')
    .addHelpText(
      'after',
      '\nExit code: 0 no faults, 1 faults, 2 wrong usage, 3 unverified (no --key, or no log of these keys), 4 acknowledged bytes are lost.',
    )
    .action(async (words: readonly string[], options: Options) => {
      const { verifyArchive, splitWords } = await import('./verify.ts');
      const { key, checkpoint, saveCheckpoint, requireEvidence, unfinishedHours, json, ...settings } =
        options;
      const shared = readRoleSettings(RECORDER_SETTINGS, settings, environment);
      const { stores, ids } = await splitWords(words, environment);
      const configs = stores.map((store) => ({ ...shared, store }));
      const chosen = { ids, key, checkpoint, saveCheckpoint, requireEvidence, unfinishedHours, json };
      return verifyArchive(configs, chosen, program.context);
    });
}

/** Adds `coverage`. The exit code is 1 if recordings are missing. */
function addCoverage(program: Tool): void {
  addArchiveOptions(program.add('coverage', 'compare the API server’s audit log with the recordings'))
    .argument('<audit-log...>', 'audit logs of the API server, one JSON object per line')
    .option('--json', 'one JSON object per session and line')
    .addHelpText(
      'after',
      '\nExit code: 0 every session is recorded, 1 recordings are missing or the command failed, 2 wrong usage, 3 an audit log is empty, cut off or invalid.',
    )
    .loads(async () => (await import('./coverage.ts')).reportCoverage);
}

function addRetention(program: Tool): void {
  const { s3Endpoint, s3Region, evidenceKey, recorderKeys } = RECORDER_SETTINGS;
  addSettingOptions(
    program.add('retention', 'show the removals of a retention policy, and set or release holds'),
    { s3Endpoint, s3Region, evidenceKey, recorderKeys },
  )
    .argument('<store>', 'directory of a recorder, or s3://bucket/prefix')
    .option('--max-age-days <n>', 'as the recorder’s --retention-days', argument(wholeNumber(1, 36_500)))
    .option('--max-bytes <size>', 'as the recorder’s --max-store-bytes', argument(byteSize(1, 1024 ** 5)))
    .option(
      '--min-age-days <n>',
      'as the recorder’s --min-retention-days',
      argument(wholeNumber(0, 36_500)),
      1,
    )
    .option('--hold <id>', 'protect this recording, or `latest`, from removal; repeatable', several)
    .option('--release <id>', 'end the hold of this recording; repeatable', several)
    .option('--reason <text>', 'reason of the hold or release')
    .option('--json', 'one JSON object instead of lines')
    .addHelpText(
      'after',
      '\nThis command removes nothing. Recorders remove recordings and log each removal.\nHolds and releases are signed with --evidence-key. A hold that no named key signed is shown as unproven.',
    )
    .action(async (store: string, options: Options) => {
      const { manageRetention } = await import('./retention.ts');
      const { maxAgeDays, maxBytes, minAgeDays, hold, release, reason, json, ...settings } = options;
      const { context } = program;
      const config = { ...readRoleSettings(RECORDER_SETTINGS, settings, context.environment), store };
      const chosen = { maxAgeDays, maxBytes, minAgeDays, hold, release, reason, json };
      await manageRetention(config, chosen, context);
    });
}

/** Adds `policy`, which explains the decisions of a gateway and prints its RBAC rules. */
function addPolicy(program: Tool): void {
  const policy = program.add('policy', 'explain decisions of a gateway, and print the rights of its account');
  policy
    .add('rbac', 'print an account that may only impersonate, all or some users and groups, as YAML')
    .option('--user <name>', 'allowed user; repeatable; default: all', several)
    .option('--group <name>', 'allowed group; repeatable; default: all', several)
    .option('--constrained', 'use constrained impersonation, in Kubernetes 1.36 and newer')
    .option('--audit-extras', 'for a gateway with auditExtras')
    .option('--namespace <name>', 'namespace of the service account', 'tailcast')
    .option('--account <name>', 'name of the service account', 'tailcast-gateway')
    .loads(async () => (await import('./rbac.ts')).printRbac);
  policy
    .add('explain', 'print the class of a request and the action of the policy')
    .argument('<method>', 'e.g. GET')
    .argument('<path>', 'e.g. /api/v1/namespaces/default/pods/web/exec?command=sh')
    .option('--file <file>', 'policy file; default: the default policy')
    .option('--upgrade', 'the request upgrades to SPDY or WebSocket')
    .action(async (method: string, target: string, { file, upgrade }: Options) => {
      const { explainRequest } = await import('../compose/gateway-policy.ts');
      const policy = typeof file === 'string' ? file : undefined;
      const lines = explainRequest({ method, target, upgrade: upgrade === true, file: policy });
      await print(program.context.stdout, `${lines.join('\n')}\n`);
    });
}

function addCompletion(program: Tool): void {
  program
    .add('completion', 'print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'shell that loads the script').choices(SHELLS))
    .addHelpText(
      'after',
      '\nFor now: source <(tailcast completion bash). A comment in the script names the file for permanent use.',
    )
    .action((shell: string) => print(program.context.stdout, completionScript(shell)));
}

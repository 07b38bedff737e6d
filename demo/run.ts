/**
 * `npm start`: runs a cluster, two gateways, a recorder and the player on this machine, and records a sample session.
 * With `--kubeconfig`, the demo uses a real cluster instead of the embedded one.
 */
import { randomBytes } from 'node:crypto';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { defaultStateDirectory } from '../src/config/environment.ts';
import type { CommandContext } from '../src/config/command-context.ts';
import type { DemoConfig } from '../src/config/demo.ts';
import { GATEWAY_SETTINGS } from '../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../src/config/recorder.ts';
import { readSettings } from '../src/config/settings.ts';
import { TailcastError, errorText } from '../src/errors.ts';
import { startDemoCluster } from './cluster.ts';
import { isOwnSocket } from './local-user.ts';
import { mergeKubeconfig, mergeKubeconfigs } from '../src/kube/kubeconfig-write.ts';
import { openFatalErrors } from '../src/observe/fatal-errors.ts';
import { createLogger, type Logger } from '../src/observe/logger.ts';
import { describeProcess } from '../src/process-identity.ts';
import { isLoopback } from '../src/tailnet/addresses.ts';
import type { Identity } from '../src/tailnet/identity.ts';
import { jsonOrUndefined } from '../src/wire/json-value.ts';
import type { RecorderOptions } from '../src/compose/recorder-options.ts';
import type { RunningRecorder } from '../src/compose/recorder-parts.ts';
import { CleanUp } from '../src/compose/clean-up.ts';
import { startGateway, type RunningGateway } from '../src/compose/gateway.ts';
import { startRecorder } from '../src/compose/recorder.ts';
import { recordSampleSession } from './sample-session.ts';
import { openSettingDirectory } from '../src/compose/setting-directory.ts';

const GATEWAY_NODE = { nodeId: 'nDEMOgateway', nodeName: 'gateway.demo.ts.net' };
/** A pod of the embedded cluster (`demo/seed.ts`) that runs a shell. */
const DEMO_POD = { namespace: 'default', pod: 'shell' };
/** Login name that all callers have. */
const LOGIN = 'demo@example.com';
/** A second user, who approves access requests. */
const APPROVER = 'approver@example.com';
const CLI = 'scripts/tailcast.mjs';
const DRAIN_MS = 1500;
const TOKEN_BYTES = 32;
/** Fields of `demo.json` that identify a running demo. */
const NOTE = z.object({ recorder: z.string(), process: z.string() });

/**
 * Runs until `signal` aborts. Prints one line for each step. Then prints the path of the kubeconfig, the address of the
 * player, and example commands.
 */
export async function runDemo(config: DemoConfig, context: CommandContext): Promise<void> {
  const stack = new CleanUp();
  try {
    await runParts(config, context, stack);
  } finally {
    await stack.disposeAsync();
  }
}

async function runParts(config: DemoConfig, context: CommandContext, stack: CleanUp): Promise<void> {
  const { stdout, stderr, environment } = context;
  const log = createLogger({ level: config.logLevel });
  const fatalErrors = openFatalErrors({ log, stop: context.signal });
  const { signal } = fatalErrors;
  const directory = config.directory ?? join(defaultStateDirectory(environment), 'demo');
  const step = (text: string): void => void stderr.write(`tailcast: ${text}\n`);
  await openSettingDirectory('directory', directory);
  await refuseForeignDirectory(directory);
  const note = join(directory, 'demo.json');
  await refuseSecond(note);
  stack.defer(() => fatalErrors.close());

  const upstream = await openCluster({ config, directory, log, step, stack });
  const recorder = await openRecorder(config, directory, log);
  stack.defer(() => recorder.close());
  step(`recorder on ${recorder.url}, recordings in ${join(directory, 'recordings')}`);
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const common = { config, context, directory, log, upstream, recorder, token, isApprover: false };
  const gateway = await openGateway(common);
  stack.defer(() => gateway.close(DRAIN_MS));
  step(`gateway on https://${gateway.host}:${gateway.port}, everyone is ${LOGIN}`);
  const names = upstream.clusters?.names ?? [];
  const kubeconfig = await writeClientKubeconfig(directory, 'kubeconfig', gateway, { token, names });
  const approver = randomBytes(TOKEN_BYTES).toString('base64url');
  const second = await openGateway({ ...common, token: approver, isApprover: true });
  stack.defer(() => second.close(DRAIN_MS));
  const approving = await writeClientKubeconfig(directory, 'approver.kubeconfig', second, {
    token: approver,
    names: [],
  });
  const running = {
    recorder: recorder.url,
    store: join(directory, 'recordings'),
    process: await describeProcess(process.pid),
  };
  await rm(note, { force: true });
  // With the flag `wx`, the write fails if another user has created a link at this path.
  await writeFile(note, JSON.stringify(running), { mode: 0o600, flag: 'wx' });
  if (upstream.pod !== undefined && !signal.aborted) {
    step('recording a sample session');
    const { host, port, caPem = '' } = gateway;
    for (const basePath of names.length === 0 ? [''] : names.map((name) => `/clusters/${name}`)) {
      const target = { host, port, caPem, token, basePath, ...upstream.pod };
      await recordSampleSession(target, signal).catch((error: unknown) => {
        if (!signal.aborted) step(`no sample recording: ${errorText(error)}`);
      });
    }
  }
  if (signal.aborted) return;
  const pod = upstream.pod === undefined ? '<pod>' : upstream.pod.pod;
  stdout.write(`kubeconfig: ${kubeconfig}\n`);
  stdout.write(`try: kubectl --kubeconfig ${kubeconfig} exec -it ${pod} -- sh\n`);
  stdout.write(`player: ${recorder.url}/\n`);
  const approve = `node ${CLI} approve --kubeconfig ${approving} <id>`;
  const call = `kubectl --kubeconfig ${kubeconfig} --as me --as-group sre get pods`;
  if (upstream.pod !== undefined) stdout.write(`access: ${call}; then: ${approve}; then the first again\n`);
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  step('stopping');
}

/**
 * @throws TailcastError `CONFIG_INVALID` if the directory belongs to another user, who could replace the kubeconfig in
 *   this directory
 */
async function refuseForeignDirectory(directory: string): Promise<void> {
  const { uid } = await stat(directory);
  if (process.getuid === undefined || uid === process.getuid()) return;
  throw new TailcastError(
    'CONFIG_INVALID',
    `directory: ${directory} belongs to user ${uid}, who could replace the kubeconfig in it. Set --directory to ` +
      'a directory of your own',
  );
}

/** @throws TailcastError `ALREADY_RUNNING` if the process that wrote `demo.json` still runs */
async function refuseSecond(note: string): Promise<void> {
  const text = await readFile(note, 'utf8').catch(() => '');
  const { data } = NOTE.safeParse(jsonOrUndefined(text));
  const [pid = ''] = data?.process.split(' ') ?? [];
  if (data === undefined || !/^\d+$/.test(pid) || data.process !== (await describeProcess(Number(pid))))
    return;
  throw new TailcastError('ALREADY_RUNNING', `the demo is process ${pid}, ${data.recorder}/`);
}

interface Upstream {
  readonly kubeconfig: string;
  /** File for the setting `clusters`, and the names of the clusters. Undefined if there is only one cluster. */
  readonly clusters: { readonly file: string; readonly names: readonly string[] } | undefined;
  readonly context: string | undefined;
  /** Pod of the sample session; undefined for a real cluster. */
  readonly pod: { readonly namespace: string; readonly pod: string } | undefined;
}

async function openCluster(parts: {
  readonly config: DemoConfig;
  readonly directory: string;
  readonly log: Logger;
  readonly step: (text: string) => void;
  readonly stack: CleanUp;
}): Promise<Upstream> {
  const { config, directory, log, step, stack } = parts;
  if (config.kubeconfig !== undefined) {
    step(`using the cluster of ${config.kubeconfig}`);
    return { kubeconfig: config.kubeconfig, clusters: undefined, context: config.context, pod: undefined };
  }
  const path = join(directory, 'upstream.kubeconfig');
  const names = Array.from({ length: config.clusters }, (_, index) => `cluster-${index + 1}`);
  let content: string | undefined;
  for (const name of names) {
    const cluster = await startDemoCluster({ log });
    stack.defer(() => cluster.close());
    step(`embedded cluster on ${cluster.url}; ${cluster.describeTerminal}`);
    const { url: server, caPem, adminToken: token } = cluster;
    content = mergeKubeconfig(content, { name, server, caPem, userName: `admin-of-${name}`, token }, path);
  }
  step('shells run on this machine, as you: keep the kubeconfig to yourself');
  await writePrivate(path, content ?? '');
  stack.defer(() => rm(path, { force: true }));
  if (names.length === 1) return { kubeconfig: path, clusters: undefined, context: undefined, pod: DEMO_POD };
  const file = join(directory, 'clusters.yaml');
  await writePrivate(file, JSON.stringify({ discover: [{ kubeconfig: path }] }));
  return { kubeconfig: path, clusters: { file, names }, context: undefined, pod: DEMO_POD };
}

/** Permits only the user who runs the demo to upload and to view recordings. */
const OWN_USER: Pick<RecorderOptions, 'identify' | 'identifyViewer'> = {
  identify: async ({ address, port }) =>
    isLoopback(address) && (await isOwnSocket(address, port))
      ? { kind: 'accepted', ...GATEWAY_NODE }
      : { kind: 'refused', reason: 'the recorder of the demo takes uploads of its own user only' },
  identifyViewer: async ({ address, port }) =>
    isLoopback(address) && (await isOwnSocket(address, port))
      ? { node: 'localhost', nodeId: 'local' }
      : undefined,
};

function openRecorder(config: DemoConfig, directory: string, log: Logger): Promise<RunningRecorder> {
  const settings = readSettings(RECORDER_SETTINGS, {
    flags: new Map<string, unknown>([['store', join(directory, 'recordings')]]),
    environment: new Map(),
    file: undefined,
  });
  return startRecorder(
    { ...settings, listen: config.recorderListen, drainSeconds: 1, search: true },
    { ...OWN_USER, log },
  );
}

function openGateway(parts: {
  readonly config: DemoConfig;
  readonly context: CommandContext;
  readonly directory: string;
  readonly log: Logger;
  readonly upstream: Upstream;
  readonly recorder: RunningRecorder;
  readonly token: string;
  /** True for the gateway of a second user, who approves access requests. */
  readonly isApprover: boolean;
}): Promise<RunningGateway> {
  const { config, context, directory, log, upstream, recorder, token, isApprover } = parts;
  const settings = readSettings(GATEWAY_SETTINGS, {
    flags: new Map<string, unknown>([
      ['kubeconfig', upstream.kubeconfig],
      ['context', upstream.context],
      ['clusters', upstream.clusters?.file],
      ['identity', 'static'],
      ['stateDirectory', join(directory, isApprover ? 'approver' : 'gateway')],
      // Both gateways use the same key to sign access requests.
      ['lateKeyFile', isApprover ? join(directory, 'gateway', 'late.key') : undefined],
      ['opsListen', 'off'],
      ['accessLog', false],
      // The gateways use the account of the demo's user, which usually has the rights of an administrator.
      // `system:masters` is the group of `demoIdentity`.
      ['claimableGroups', 'system:masters,sre'],
    ]),
    environment: new Map(),
    file: undefined,
  });
  return startGateway({
    config: { ...settings, listen: isApprover ? { ...config.listen, port: 0 } : config.listen },
    environment: context.environment,
    log,
    accessSink: context.stderr,
    callerToken: token,
    identity: demoIdentity(isApprover ? APPROVER : LOGIN, recorder.address),
  });
}

/** Identity of all callers of the demo. All callers have all rights, and their sessions are recorded. */
function demoIdentity(login: string, recorder: { readonly host: string; readonly port: number }): Identity {
  const rule = {
    clusters: ['*'],
    impersonate: { groups: ['system:masters'] },
    recorderAddrs: [`${recorder.host}:${recorder.port}`],
    enforceRecorder: true,
  };
  const access = { request: { groups: ['sre'] }, maxDuration: '15m', approvers: { users: [APPROVER] } };
  return {
    kind: 'user',
    nodeId: login === APPROVER ? 'nDEMOtablet' : 'nDEMOlaptop',
    nodeName: login === APPROVER ? 'tablet.demo.ts.net' : 'laptop.demo.ts.net',
    addresses: ['127.0.0.1'],
    userId: login === APPROVER ? 2n : 1n,
    login,
    displayName: 'Demo user',
    capabilities: new Map<string, readonly unknown[]>([
      ['tailscale.com/cap/kubernetes', [rule]],
      ['tailcast.dev/cap/kubernetes-access', [access]],
    ]),
  };
}

async function writeClientKubeconfig(
  directory: string,
  name: string,
  gateway: RunningGateway,
  { token, names }: { readonly token: string; readonly names: readonly string[] },
): Promise<string> {
  const path = join(directory, name);
  const url = `https://${gateway.host}:${gateway.port}`;
  const servers =
    names.length === 0
      ? [['tailcast-demo', url] as const]
      : names.map((one) => [one, `${url}/clusters/${one}`] as const);
  const { caPem } = gateway;
  const entries = servers.map(([entry, server]) => ({
    name: entry,
    server,
    caPem,
    userName: 'tailcast-demo',
    token,
  }));
  await writePrivate(path, mergeKubeconfigs(undefined, entries, path) ?? '');
  return path;
}

async function writePrivate(path: string, content: string): Promise<void> {
  await rm(path, { force: true });
  await writeFile(path, content, { mode: 0o600 });
}

/** The processes of a soak test, and the files that they need. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { issueAuthority, issueServer } from '../../src/tailnet/issue-certificate.ts';
import type { LoadPlan, LoadReport } from './load.ts';
import type { Sample } from './samples.ts';
import type { ShellSent, UpstreamMessage } from './upstream.ts';

export const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const DAY_MS = 86_400_000;
const MOST_RAMP_MS = 20_000;
/**
 * Preload script: the process collects garbage on a signal. Without this collection, the measured heap contains the
 * garbage of about a minute. Worker processes inherit the option.
 */
const COLLECTABLE = [
  '--expose-gc',
  '--import',
  'data:text/javascript,process.on("SIGUSR2",()=>globalThis.gc())',
];

/** A running role. */
export interface Role {
  readonly name: string;
  readonly child: ChildProcess;
  readonly ops: string;
  readonly samples: Sample[];
  /** Log lines with another level than `info`. Each of these lines is a fault of the test run. */
  readonly alarms: string[];
}

export interface Options {
  readonly minutes: number;
  readonly shells: number;
  readonly watches: number;
  readonly requests: number;
  readonly connections: number;
}

/** Maximum number of log lines that are kept and printed. */
const MAX_ALARMS = 20;

export async function startRole(
  name: string,
  args: readonly string[],
  stack: AsyncDisposableStack,
): Promise<Role> {
  const child = spawn(process.execPath, [...COLLECTABLE, MAIN, name, ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  stack.defer(() => end(child));
  const ready = Promise.withResolvers<string>();
  const alarms: string[] = [];
  createInterface({ input: child.stderr }).on('line', (text) => {
    const line = parseLine(text);
    const ops = line['ops'] as { readonly port: number } | undefined;
    if (ops !== undefined) ready.resolve(`http://127.0.0.1:${ops.port}`);
    if (line['level'] === 'info' || alarms.length >= MAX_ALARMS) return;
    alarms.push(text);
    console.log(`${name} said: ${text}`);
  });
  child.once('exit', () => ready.reject(new Error(`${name} did not start: ${alarms.join('\n')}`)));
  return { name, child, ops: await ready.promise, samples: [], alarms };
}

function parseLine(text: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { level: 'text' };
  }
}

export async function startUpstream(
  pki: Certificates,
  sent: Map<number, ShellSent>,
  stack: AsyncDisposableStack,
): Promise<number> {
  const plan = { certificate: pki.certificate, key: pki.key };
  const child = fork(here('upstream.ts'), [JSON.stringify(plan)]);
  stack.defer(() => end(child));
  const listening = Promise.withResolvers<number>();
  child.on('message', (message: UpstreamMessage) => {
    if (message.kind === 'listening') listening.resolve(message.port);
    else sent.set(message.shell, message);
  });
  return listening.promise;
}

export function startLoad(
  options: Options,
  target: { readonly url: string; readonly ca: string },
  stack: AsyncDisposableStack,
): { readonly child: ChildProcess; readonly latest: () => LoadReport | undefined } {
  const plan: LoadPlan = {
    ...target,
    shells: options.shells,
    watches: options.watches,
    requestsPerSecond: options.requests,
    connectionsPerSecond: options.connections,
    rampMs: Math.min(MOST_RAMP_MS, options.minutes * 30_000),
  };
  const child = fork(here('load.ts'), [JSON.stringify(plan)]);
  stack.defer(() => end(child));
  let latest: LoadReport | undefined;
  child.on('message', (message: LoadReport) => {
    for (const fault of message.faults.slice(latest?.faults.length ?? 0)) console.log(`client: ${fault}`);
    latest = message;
  });
  return { child, latest: () => latest };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

export interface Certificates {
  readonly ca: string;
  readonly caPem: string;
  readonly certificate: string;
  readonly key: string;
}

export async function writeCertificates(directory: string): Promise<Certificates> {
  const nowMs = Date.now();
  const authority = await issueAuthority({ nowMs, validMs: 30 * DAY_MS });
  const pair = await issueServer(authority, {
    names: ['localhost', '127.0.0.1'],
    nowMs,
    validMs: 30 * DAY_MS,
  });
  const file = (name: string): string => join(directory, name);
  const written = { ca: file('ca.crt'), certificate: file('tls.crt'), key: file('tls.key') };
  await writeFile(written.ca, authority.certificatePem);
  await writeFile(written.certificate, pair.certificatePem);
  await writeFile(written.key, pair.keyPem, { mode: 0o600 });
  return { ...written, caPem: authority.certificatePem };
}

export async function writeGatewayFiles(
  directory: string,
  { caPem }: Certificates,
  ports: { readonly upstreamPort: number; readonly recorderPort: number; readonly perUser: number },
): Promise<void> {
  const kubeconfig = join(directory, 'kubeconfig');
  const server = `https://127.0.0.1:${ports.upstreamPort}`;
  const entry = { name: 'soak', server, caPem, userName: 'soak', token: 'soak-token' };
  await writeFile(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig), { mode: 0o600 });
  const rule = {
    impersonate: { groups: ['soak'] },
    recorderAddrs: [`127.0.0.1:${ports.recorderPort}`],
    enforceRecorder: true,
  };
  const identity = {
    nodeId: 'nSOAK',
    nodeName: 'soak.test',
    login: 'soak@example.com',
    capabilities: { 'tailscale.com/cap/kubernetes': [rule] },
  };
  await writeFile(join(directory, 'identity.json'), JSON.stringify(identity));
  await writeFile(join(directory, 'policy.yaml'), `sessions:\n  perUser: ${ports.perUser}\n`);
}

export function gatewayArguments(directory: string, pki: Certificates, port: number): readonly string[] {
  const file = (name: string): string => join(directory, name);
  const flags = {
    kubeconfig: file('kubeconfig'),
    policy: file('policy.yaml'),
    identity: 'static',
    'static-identity': file('identity.json'),
    'state-directory': file('gateway-state'),
    tls: 'files',
    'tls-cert': pki.certificate,
    'tls-key': pki.key,
    listen: `127.0.0.1:${port}`,
    // all clients have the same identity here
    'requests-per-user': '20000',
  };
  return Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/**
 * The reference's API-server proxy (Tailscale's, from its Go module) as it runs behind `serve`: connections arrive at a
 * loopback port with a PROXY header that names a tailnet node. The reference's proxy runs without TLS and without a
 * tailnet, so it does less work than the other peers. The callers are two tailnet nodes; only the sessions of one of
 * them must be recorded.
 */
import { connect } from 'node:net';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePeer, GoMissingError } from '../../test/real/rig/build.ts';
import { freePort, type Program } from '../../test/real/rig/rig.ts';
import { nodeEnvironment, ping, startTailnet, type Tailnet } from '../../test/real/rig/tailnet.ts';
import type { Bench, RunningRecorder } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import type { Peer } from './peer.ts';

type ReferenceName = 'reference' | 'reference-recorded';

/** The only port on which the reference's module can listen. */
const PORT = 80;
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const CALLERS = { reference: 'alice', 'reference-recorded': 'bob' } as const;

interface RunningReference {
  readonly program: Program;
  readonly address: string;
  readonly callers: Readonly<Record<ReferenceName, string>>;
  readonly recorder: RunningRecorder;
}

interface Running {
  /** Kubeconfig of the API server behind the proxy. */
  readonly kubeconfig: string;
  readonly reference: Promise<RunningReference>;
}

const running = new WeakMap<Bench, Running>();
const tailnets = new WeakMap<Bench, Promise<Tailnet>>();

/**
 * Only one instance runs at a time, because each instance uses the same port. A peer for another API server stops the
 * previous instance.
 */
export async function startReference(
  name: ReferenceName,
  bench: Bench,
  kubeconfig: string = bench.kubeconfig,
): Promise<Peer> {
  const before = running.get(bench);
  const now =
    before?.kubeconfig === kubeconfig ? before : { kubeconfig, reference: start(bench, kubeconfig, before) };
  running.set(bench, now);
  const { program, address, callers, recorder } = await now.reference;
  return {
    name,
    target: { port: PORT, preamble: `PROXY TCP4 ${callers[name]} ${address} 40000 443\r\n` },
    pids: () => [program.pid],
    ...(name === 'reference-recorded' ? { recorder } : {}),
  };
}

async function start(
  bench: Bench,
  kubeconfig: string,
  before: Running | undefined,
): Promise<RunningReference> {
  await (await before?.reference)?.program.stop();
  if (await answers(PORT).catch(() => false))
    throw new PeerMissingError(`something else listens on port ${PORT}`);
  const path = await programPath(bench);
  const { rig } = bench;
  const recorder = await bench.recorder();
  const tailnet = await tailnetOf(bench, recorder);
  const hostname = before === undefined ? 'reference' : 'reference-real';
  const folder = join(rig.folder, hostname);
  mkdirSync(folder, { mode: 0o700 });
  const authKeyFile = join(folder, 'key');
  writeFileSync(authKeyFile, await tailnet.authKey({ tags: ['tag:k8s'] }), { mode: 0o600 });
  const program = rig.launch({
    name: hostname,
    path,
    env: nodeEnvironment(await freePort()),
    args: [
      `--kubeconfig=${kubeconfig}`,
      '--mode=auth',
      '--https=false',
      `--login-server=${tailnet.controlUrl}`,
      `--auth-key-file=${authKeyFile}`,
      `--hostname=${hostname}`,
      `--state=${join(folder, 'state')}`,
    ],
  });
  const ready = await rig.until('reference', () => program.firstLine, { watch: [program] });
  const [address = ''] = ready['addresses'] as readonly string[];
  for (const caller of Object.values(CALLERS))
    await rig.until(`${caller} reaches the reference`, () => ping(tailnet.node(caller), address), {
      watch: [program],
    });
  await rig.until('reference listens', () => answers(PORT), { watch: [program] });
  const addressOf = (name: ReferenceName): string => tailnet.node(CALLERS[name]).addresses[0];
  return {
    program,
    address,
    recorder,
    callers: { reference: addressOf('reference'), 'reference-recorded': addressOf('reference-recorded') },
  };
}

function tailnetOf(bench: Bench, recorder: RunningRecorder): Promise<Tailnet> {
  const known = tailnets.get(bench);
  if (known !== undefined) return known;
  const started = startTailnet(bench.rig, {
    nodes: Object.values(CALLERS).map((name) => ({ name, user: `${name}@example.com` })),
    policy: policyFor(recorder.address),
  });
  tailnets.set(bench, started);
  return started;
}

async function programPath(bench: Bench): Promise<string> {
  try {
    const { 'api-proxy': path = '' } = await ensurePeer('reference', (line) => bench.say(line));
    return path;
  } catch (error) {
    if (error instanceof GoMissingError) throw new PeerMissingError(error.message);
    throw error;
  }
}

function policyFor(recorder: string): object {
  const grant = (user: string, rule: object): object => ({
    src: [`${user}@example.com`],
    dst: ['tag:k8s'],
    app: { [CAPABILITY]: [{ impersonate: { groups: ['system:masters'] }, ...rule }] },
  });
  return {
    groups: {},
    tagOwners: { 'tag:k8s': ['alice@example.com'] },
    acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
    grants: [
      grant(CALLERS.reference, {}),
      grant(CALLERS['reference-recorded'], { recorderAddrs: [recorder], enforceRecorder: true }),
    ],
  };
}

/** Resolves when the port accepts connections. */
function answers(port: number): Promise<true> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

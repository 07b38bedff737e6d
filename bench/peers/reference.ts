/**
 * The reference's own API server proxy, from its module, the way it runs behind `serve`: connections come to a loopback
 * port with a PROXY header that names a node of the tailnet. There is neither TLS nor a tailnet in the way, so it has less
 * to do than the others. Two nodes call: the sessions of one must be recorded.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePeer, GoMissingError } from '../../test/real/rig/build.ts';
import { freePort } from '../../test/real/rig/rig.ts';
import { nodeEnvironment, ping, startTailnet } from '../../test/real/rig/tailnet.ts';
import type { Bench, RunningRecorder } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import { answers } from './nginx.ts';
import type { Peer } from './peer.ts';

type ReferenceName = 'reference' | 'reference-recorded';

/** Where its module lets it listen. */
const PORT = 80;
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const CALLERS = { reference: 'alice', 'reference-recorded': 'bob' } as const;

interface RunningReference {
  readonly pid: number;
  readonly address: string;
  readonly callers: Readonly<Record<ReferenceName, string>>;
  readonly recorder: RunningRecorder;
}

const running = new WeakMap<Bench, Promise<RunningReference>>();

export async function startReference(name: ReferenceName, bench: Bench): Promise<Peer> {
  let reference = running.get(bench);
  if (reference === undefined) {
    reference = start(bench);
    running.set(bench, reference);
  }
  const { pid, address, callers, recorder } = await reference;
  return {
    name,
    target: { port: PORT, preamble: `PROXY TCP4 ${callers[name]} ${address} 40000 443\r\n` },
    pids: () => [pid],
    ...(name === 'reference-recorded' ? { recorder } : {}),
  };
}

async function start(bench: Bench): Promise<RunningReference> {
  if (await answers(PORT).catch(() => false))
    throw new PeerMissingError(`something else listens on port ${PORT}`);
  const path = await programPath(bench);
  const { rig } = bench;
  const recorder = await bench.recorder();
  const tailnet = await startTailnet(rig, {
    nodes: Object.values(CALLERS).map((name) => ({ name, user: `${name}@example.com` })),
    policy: policyFor(recorder.address),
  });
  const folder = join(rig.folder, 'reference');
  mkdirSync(folder, { mode: 0o700 });
  const authKeyFile = join(folder, 'key');
  writeFileSync(authKeyFile, await tailnet.authKey({ tags: ['tag:k8s'] }), { mode: 0o600 });
  const program = rig.launch({
    name: 'reference',
    path,
    env: nodeEnvironment(await freePort()),
    args: [
      `--kubeconfig=${bench.kubeconfig}`,
      '--mode=auth',
      '--https=false',
      `--login-server=${tailnet.controlUrl}`,
      `--auth-key-file=${authKeyFile}`,
      '--hostname=reference',
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
    pid: program.pid,
    address,
    recorder,
    callers: { reference: addressOf('reference'), 'reference-recorded': addressOf('reference-recorded') },
  };
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

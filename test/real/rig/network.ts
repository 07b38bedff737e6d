/**
 * A network namespace for a suite. Processes in the namespace see no interface of the machine. The kernel removes the
 * namespace after its last process exits. Needs root, a tun device, iproute2 and nftables.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureDebianProgram } from './debian.ts';
import type { Rig } from './rig.ts';

/** Address of the Kubernetes node in the namespace; all pods use it. */
export const NODE_ADDRESS = '10.77.0.1';
export const BRIDGE = 'br0';

/**
 * Environment variable of a suite's process. The value is `own` in a namespace of the suite, or the reason why this
 * machine cannot create a namespace.
 */
const VARIABLE = 'TAILCAST_REAL_NETWORK';
const OWN = 'own';

/** Command and environment that start a process in its own network namespace. */
export interface Entry {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Returns how a process enters a new namespace. Without support for namespaces, the process starts normally, and its
 * suite prints why it is skipped.
 */
export function enterNetwork(): Entry {
  const problem = problemOfMachine();
  if (problem !== undefined) return { command: [], env: { [VARIABLE]: problem } };
  return {
    command: ['unshare', '--net', '--mount', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'],
    env: { [VARIABLE]: OWN },
  };
}

/** Returns the reason why a suite with its own network cannot run, or undefined inside the namespace. */
export function networkProblem(): string | undefined {
  const said = process.env[VARIABLE];
  return said === OWN ? undefined : (said ?? 'run it with npm run test:real -- <suite>');
}

function problemOfMachine(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces need Linux';
  if (process.getuid?.() !== 0) return 'network namespaces with tun devices need root';
  try {
    accessSync('/dev/net/tun', constants.R_OK | constants.W_OK);
    for (const program of ['ip', 'nft', 'iptables'] as const) ensureDebianProgram(program);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  const tried = spawnSync('unshare', ['--net', '--mount', 'ip', 'link', 'add', BRIDGE, 'type', 'bridge'], {
    encoding: 'utf8',
  });
  return tried.status === 0 ? undefined : `no network namespace: ${tried.stderr.trim()}`;
}

/** Creates the bridge and enables forwarding. `hosts`: names that pods can resolve. */
export function layNetwork(
  rig: Rig,
  hosts: Readonly<Record<string, readonly string[]>>,
): { readonly hostsPath: string } {
  for (const command of [
    `ip link add ${BRIDGE} type bridge`,
    `ip addr add ${NODE_ADDRESS}/16 dev ${BRIDGE}`,
    `ip -6 addr add fd77::1/64 dev ${BRIDGE} nodad`,
    `ip link set ${BRIDGE} up`,
  ]) {
    const [program = '', ...args] = command.split(' ');
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${command}: ${stderr}`);
  }
  for (const [setting, value] of [
    ['ipv4/ip_forward', '1'],
    ['ipv6/conf/all/forwarding', '1'],
    // The Kubernetes node must not send ICMP redirects to pods.
    ['ipv4/conf/all/send_redirects', '0'],
    [`ipv4/conf/${BRIDGE}/send_redirects`, '0'],
  ] as const) {
    writeFileSync(`/proc/sys/net/${setting}`, value);
  }
  const hostsPath = join(rig.folder, 'hosts');
  const lines = Object.entries({ localhost: ['127.0.0.1'], ...hosts }).flatMap(([name, addresses]) =>
    addresses.map((address) => `${address} ${name}\n`),
  );
  writeFileSync(hostsPath, lines.join(''));
  return { hostsPath };
}

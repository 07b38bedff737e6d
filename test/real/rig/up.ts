/**
 * The rig for the shell.
 *
 *   node test/real/rig/up.ts [part…]     starts parts (default: all but kubernetes-1.34) and prints how to use them
 *   node test/real/rig/up.ts --down      ends them
 *
 * A background process keeps the rig running; the rig stops with this process.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { cacheFolder, ensurePeer } from './build.ts';
import { findKubectls } from './kubectl.ts';
import { startTimeOf } from './lock-file.ts';
import { PART_NAMES, type PartName, type Parts, isPartName, startParts } from './parts.ts';
import type { PeerName } from './peers.ts';
import { type Rig, createRig } from './rig.ts';

const DEFAULT_PARTS: readonly PartName[] = ['kubernetes', 'tailnet', 's3'];
const PEERS_OF: Readonly<Record<PartName, readonly PeerName[]>> = {
  kubernetes: ['kubernetes-1.36', 'kubelet-double'],
  'kubernetes-1.34': ['kubernetes-1.36', 'kubernetes-1.34', 'kubelet-double'],
  tailnet: ['tailnet'],
  s3: ['versitygw'],
};
const statePath = join(cacheFolder(), 'up.json');
const self = fileURLToPath(import.meta.url);

interface State {
  readonly pid: number;
  readonly startTime: number;
}

/** Starts the holder process in the background, waits until it is ready and prints its output. */
async function up(parts: readonly PartName[]): Promise<number> {
  const running = readState();
  if (running !== undefined) {
    process.stderr.write(`rig: it is up already (process ${running.pid}); npm run real:down ends it\n`);
    return 1;
  }
  // Builds in this process, so that the user sees the progress of a first build.
  for (const peer of new Set(parts.flatMap((part) => PEERS_OF[part]))) await ensurePeer(peer);
  const holder = spawn(process.execPath, [self, '--hold', ...parts], {
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return new Promise((done) => {
    let text = '';
    holder.stdout.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (!text.endsWith('\0')) return;
      process.stdout.write(text.slice(0, -1));
      holder.stdout.destroy();
      holder.stderr.destroy();
      holder.unref();
      done(0);
    });
    holder.stderr.pipe(process.stderr);
    holder.once('exit', (code) => done(code ?? 1));
  });
}

/** Keeps the rig until SIGTERM. */
async function hold(parts: readonly PartName[]): Promise<void> {
  mkdirSync(dirname(statePath), { recursive: true });
  writeFileSync(statePath, JSON.stringify({ pid: process.pid, startTime: startTimeOf(process.pid) }));
  const rig = createRig();
  const ended = new Promise<void>((done) => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => done());
  });
  // A closed pipe of the parent must not stop the rig.
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  const alive = setInterval(() => undefined, 1 << 30);
  try {
    const started = await Promise.race([startParts(rig, parts), ended]);
    if (started === undefined) return;
    process.stdout.write(`${await describe(rig, started)}\0`);
    await ended;
  } finally {
    clearInterval(alive);
    await rig.stop();
    rmSync(statePath, { force: true });
  }
}

async function down(): Promise<number> {
  const running = readState();
  if (running === undefined) {
    process.stderr.write('rig: nothing is up\n');
    return 0;
  }
  process.kill(running.pid, 'SIGTERM');
  while (readState() !== undefined) await delay(50);
  process.stderr.write('rig: everything has ended\n');
  return 0;
}

function readState(): State | undefined {
  try {
    const state = JSON.parse(readFileSync(statePath, 'utf8')) as State;
    return startTimeOf(state.pid) === state.startTime ? state : undefined;
  } catch {
    return undefined;
  }
}

async function describe(rig: Rig, parts: Parts): Promise<string> {
  const lines = [`scratch folder, logs   ${rig.folder}, ${join(rig.folder, 'log')}`];
  for (const cluster of [parts.kubernetes, parts['kubernetes-1.34']]) {
    if (cluster === undefined) continue;
    lines.push('', `Kubernetes ${cluster.version}        ${cluster.url}`);
    for (const [user, token] of Object.entries(cluster.tokens)) {
      lines.push(`  as ${user.padEnd(12)} export KUBECONFIG=${cluster.kubeconfig(user, { token })}`);
    }
  }
  if (parts.kubernetes !== undefined || parts['kubernetes-1.34'] !== undefined) {
    for (const kubectl of await findKubectls()) lines.push(`  ${kubectl.version.padEnd(20)} ${kubectl.path}`);
  }
  if (parts.tailnet !== undefined) {
    lines.push('', `tailnet                ${parts.tailnet.controlUrl}`);
    for (const node of Object.values(parts.tailnet.nodes)) {
      lines.push(
        `  ${node.name.padEnd(9)} ${node.addresses[0].padEnd(11)} ` +
          `HTTPS_PROXY=http://127.0.0.1:${node.httpProxyPort}  socket ${node.socketPath}`,
      );
    }
  }
  if (parts.s3 !== undefined) {
    const { endpoint, accessKeyId, secretAccessKey } = parts.s3;
    lines.push(
      '',
      `S3                     ${endpoint}`,
      `  AWS_ACCESS_KEY_ID=${accessKeyId} AWS_SECRET_ACCESS_KEY=${secretAccessKey}`,
    );
  }
  return `${lines.join('\n')}\n\nnpm run real:down ends everything.\n`;
}

if (import.meta.main) {
  const [first, ...rest] = process.argv.slice(2);
  const names = first === '--hold' ? rest : process.argv.slice(2);
  if (first === '--down') {
    process.exitCode = await down();
  } else if (names.every(isPartName)) {
    const parts = names.length > 0 ? names.filter(isPartName) : DEFAULT_PARTS;
    if (first === '--hold') await hold(parts);
    else process.exitCode = await up(parts);
  } else {
    process.stderr.write(`usage: up.ts [${PART_NAMES.join('|')}]… | --down\n`);
    process.exitCode = 2;
  }
}

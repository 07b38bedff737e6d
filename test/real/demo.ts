/**
 * `npm run demo:real`: tailcast with real peers on this machine; it prints the commands to try. Alice is an
 * administrator whose shells are recorded; bob has read-only access. Ctrl-C ends everything.
 *
 * It starts a Kubernetes API server with a node, a tailnet of five nodes, and an S3 server. A gateway runs next to
 * the tailscaled of node `proxy`, behind `tailscale serve` with PROXY protocol. A recorder with a bucket runs next to
 * the tailscaled of node `recorder`.
 *
 * `npm run demo:real -- operator` starts the operator instead, in its own network.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createPod } from './cases/case.ts';
import { ensurePeer, GoMissingError } from './rig/build.ts';
import { runKubectl } from './rig/kubectl.ts';
import { enterNetwork } from './rig/network.ts';
import { type Rig, createRig } from './rig/rig.ts';
import type { NodeOptions } from './rig/tailnet.ts';
import { KERNEL_PODS } from './suites.ts';
import { kubeconfigAt, sitePolicy } from './support/site.ts';
import { BUCKET, type TailnetSite, ensureTailnetSite, startTailnetSite } from './support/tailnet-site.ts';

const GATEWAY_HOST = '127.0.0.77';
const POD = 'shell';
const OPERATOR_DEMO = fileURLToPath(new URL('operator/demo.ts', import.meta.url));
const PEOPLE: readonly NodeOptions[] = [
  { name: 'alice', user: 'alice@example.com' },
  { name: 'bob', user: 'bob@example.com' },
  { name: 'ci', tags: ['tag:ci'] },
];

const step = (text: string): void => void process.stderr.write(`demo:real: ${text}\n`);

async function start(rig: Rig): Promise<TailnetSite> {
  step('starting a cluster, a tailnet and an S3 server, a recorder and a gateway');
  const site = await startTailnetSite(rig, PEOPLE, { gatewayHost: GATEWAY_HOST });
  const { cluster, tailnet, proxy, recorder, gateway } = site;
  await proxy.cli(
    'serve',
    '--bg',
    '--tcp=443',
    '--proxy-protocol=2',
    `tcp://${GATEWAY_HOST}:${gateway.port}`,
  );
  tailnet.setPolicy(
    sitePolicy([
      { src: 'alice@example.com', groups: ['system:masters'], recorder: [recorder.address], enforce: true },
      { src: 'bob@example.com', groups: ['rig:viewers'] },
      { src: 'tag:ci', groups: ['rig:deployers'] },
    ]),
  );
  await createPod(cluster, POD, { command: ['sleep', 'infinity'] });
  return site;
}

/** Through `tailscale serve`. */
function kubeconfigOf({ cluster, tailnet, proxy, gateway }: TailnetSite, who: string): string {
  return kubeconfigAt(tailnet.node(who), { node: proxy, port: 443, ca: gateway.ca, cluster });
}

/** The demo records a session, which the player can show, and which proves that all parts work together. */
async function recordSample(rig: Rig, demo: TailnetSite): Promise<void> {
  step('recording a first session of alice');
  const args = ['exec', POD, '--', 'sh', '-c', 'echo recorded in a real bucket; uname -sr'];
  await rig.until('the first session', async () => {
    const run = await runKubectl(demo.kubectl, args, { kubeconfig: kubeconfigOf(demo, 'alice') });
    if (run.code !== 0) throw new Error(run.stderr.toString());
    return true;
  });
  await demo.archive.whole([POD], 1);
}

function instructions(demo: TailnetSite): string {
  const { tailnet, recorder, kubectl, s3 } = demo;
  const alice = tailnet.node('alice');
  return `
Alice, an administrator whose sessions are recorded:
  export KUBECONFIG=${kubeconfigOf(demo, 'alice')}
  ${kubectl.path} auth whoami
  ${kubectl.path} exec -it ${POD} -- bash

Bob, who may look and not touch:
  export KUBECONFIG=${kubeconfigOf(demo, 'bob')}
  ${kubectl.path} get pods
  ${kubectl.path} exec -it ${POD} -- bash

What was recorded:
  player: ${recorder.url}/
  through the tailnet: http://${recorder.address}/ (proxy http://127.0.0.1:${alice.httpProxyPort})
  bucket: s3://${BUCKET} at ${s3.endpoint}, AWS_ACCESS_KEY_ID=${s3.accessKeyId} AWS_SECRET_ACCESS_KEY=${s3.secretAccessKey}

The tailnet:
${Object.values(tailnet.nodes)
  .map((node) => `  ${node.name.padEnd(9)} ${node.addresses[0].padEnd(11)} socket ${node.socketPath}`)
  .join('\n')}

Ctrl-C ends everything.
`;
}

/** The operator demo needs its own process, because it has its own network. */
async function runOperatorDemo(): Promise<number> {
  const { command, env } = enterNetwork();
  const [program, ...args] = [...command, process.execPath, OPERATOR_DEMO];
  const child = spawn(program, args, { stdio: 'inherit', env: { ...process.env, ...env } });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
  return new Promise((done, fail) => {
    child.once('error', fail);
    child.once('exit', (code) => done(code ?? 1));
  });
}

async function main(what: string | undefined): Promise<number> {
  try {
    if (what === 'operator') {
      for (const peer of KERNEL_PODS.peers) await ensurePeer(peer);
      return await runOperatorDemo();
    }
    await ensureTailnetSite();
  } catch (error) {
    if (!(error instanceof GoMissingError)) throw error;
    step(error.message);
    return 1;
  }
  const ended = Promise.withResolvers<void>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ended.resolve());
  // Keeps the process alive.
  const alive = setInterval(() => undefined, 1 << 30);
  const rig = createRig();
  try {
    const demo = await Promise.race([start(rig), ended.promise]);
    if (demo === undefined) return 0;
    await recordSample(rig, demo);
    process.stdout.write(instructions(demo));
    await ended.promise;
    step('ending everything');
    return 0;
  } finally {
    clearInterval(alive);
    await rig.stop();
  }
}

process.exitCode = await main(process.argv[2]);

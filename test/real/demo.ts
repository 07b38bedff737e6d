/**
 * `npm run demo:real`: the whole product on real parts on this machine, and what to paste to use it. Alice is an
 * administrator whose shells are recorded, bob may look. Ctrl-C ends everything.
 *
 * A Kubernetes API server with a node, a tailnet of five nodes, an S3 server; a gateway beside the tailscaled of node
 * `proxy`, behind `tailscale serve` with PROXY protocol; a recorder beside that of node `recorder`, over a bucket.
 */
import { createPod } from './cases/case.ts';
import { GoMissingError, ensurePeer } from './rig/build.ts';
import { type Kubectl, findKubectls, runKubectl } from './rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from './rig/kubernetes.ts';
import type { PeerName } from './rig/peers.ts';
import { type Rig, createRig } from './rig/rig.ts';
import { startS3 } from './rig/s3.ts';
import { type Tailnet, startTailnet } from './rig/tailnet.ts';
import { openArchive } from './support/archive.ts';
import {
  type SiteGateway,
  type SiteRecorder,
  createBucket,
  kubeconfigAt,
  sitePolicy,
  startSiteGateway,
  startSiteRecorder,
} from './support/site.ts';

const PEERS: readonly PeerName[] = ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw'];
const GATEWAY_HOST = '127.0.0.77';
const BUCKET = 'recordings';
const POD = 'shell';

interface Demo {
  readonly cluster: Kubernetes;
  readonly tailnet: Tailnet;
  readonly recorder: SiteRecorder;
  readonly gateway: SiteGateway;
  readonly kubectl: Kubectl;
  readonly s3: { readonly endpoint: string; readonly accessKeyId: string; readonly secretAccessKey: string };
}

const step = (text: string): void => void process.stderr.write(`demo:real: ${text}\n`);

async function start(rig: Rig): Promise<Demo> {
  step('starting a cluster, a tailnet and an S3 server');
  const [cluster, tailnet, s3] = await Promise.all([
    startKubernetes(rig, { node: { webSockets: true } }),
    startTailnet(rig, { policy: sitePolicy([]) }),
    startS3(rig),
  ]);
  await createBucket(s3, BUCKET);
  step('starting the recorder and the gateway');
  const proxy = tailnet.node('proxy');
  const [recorder, gateway] = await Promise.all([
    startSiteRecorder(rig, { name: 'recorder-role', node: tailnet.node('recorder'), s3, bucket: BUCKET }),
    startSiteGateway(rig, { name: 'gateway-role', node: proxy, cluster, host: GATEWAY_HOST }),
  ]);
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
  const kubectl = (await findKubectls()).at(-1)!;
  return { cluster, tailnet, recorder, gateway, kubectl, s3 };
}

function kubeconfigOf({ cluster, tailnet, gateway }: Demo, who: string): string {
  return kubeconfigAt(tailnet.node(who), { node: tailnet.node('proxy'), port: 443, ca: gateway.ca, cluster });
}

/** Something for the player to show, and the proof that everything works together. */
async function recordSample(rig: Rig, demo: Demo): Promise<void> {
  step('recording a first session of alice');
  const archive = openArchive(demo.recorder.url);
  const args = ['exec', POD, '--', 'sh', '-c', 'echo recorded in a real bucket; uname -sr'];
  await rig.until('the first session', async () => {
    const run = await runKubectl(demo.kubectl, args, { kubeconfig: kubeconfigOf(demo, 'alice') });
    if (run.code !== 0) throw new Error(run.stderr.toString());
    return true;
  });
  await archive.whole([POD], 1);
}

function instructions(demo: Demo): string {
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

async function main(): Promise<number> {
  try {
    for (const peer of PEERS) await ensurePeer(peer);
  } catch (error) {
    if (!(error instanceof GoMissingError)) throw error;
    step(error.message);
    return 1;
  }
  const ended = Promise.withResolvers<void>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => ended.resolve());
  // Nothing else keeps this process alive while it waits.
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

process.exitCode = await main();

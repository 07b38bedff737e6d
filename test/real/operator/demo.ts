/**
 * `npm run demo:real -- operator`: an operator with real peers in its own network namespace. It applies the sample
 * manifests, runs each command once and prints its output. Then the commands can be pasted until Ctrl-C. Started by
 * `demo.ts`.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { findKubectls } from '../rig/kubectl.ts';
import { networkProblem } from '../rig/network.ts';
import {
  clientPod,
  DOMAIN,
  NAMESPACE,
  PORT,
  startWorkloadSite,
  tailnetWebPod,
  webPod,
  type WorkloadSite,
} from './workload-site.ts';

const run = promisify(execFile);
const SAMPLES = fileURLToPath(new URL('samples.yaml', import.meta.url));
const ASK = fileURLToPath(new URL('ask.ts', import.meta.url));
const DEFAULT = '/api/v1/namespaces/default';
const PATIENT = { timeoutMs: 180_000 } as const;

const step = (text: string): void => void process.stderr.write(`demo:real: ${text}\n`);
const say = (text: string): void => void process.stdout.write(text);

/** A shell command and its expected output. */
interface Shown {
  readonly about: string;
  readonly command: string;
  readonly expected: RegExp;
}

async function prepare(site: WorkloadSite): Promise<void> {
  const { controlUrl } = site.tailnet;
  const key = (): Promise<string> => site.tailnet.authKey({ tags: ['tag:client'] });
  const pods = [
    webPod('web', { app: 'web' }),
    clientPod('client', await key(), controlUrl),
    tailnetWebPod('outside', await key(), controlUrl),
  ];
  for (const pod of pods) await site.cluster.api('POST', `${DEFAULT}/pods`, pod);
  for (const name of ['client', 'outside'])
    await site.rig.until(`node ${name}`, () => site.node(name), PATIENT);
}

async function commandsOf(site: WorkloadSite, kubectl: string): Promise<readonly Shown[]> {
  const { rig, cluster } = site;
  const kubeconfig = cluster.kubeconfig('demo', { token: cluster.tokens.admin });
  // Commands must enter the network namespace of this process.
  const k = `nsenter --target ${process.pid} --net ${kubectl} --kubeconfig ${kubeconfig}`;
  const inPod = (pod: string): string => {
    const holder = readFileSync(join(rig.folder, 'k1.36', 'node', 'networks', `default_${pod}`), 'utf8');
    return `nsenter --target ${holder} --net ${process.execPath} ${ASK} http`;
  };
  await run('sh', ['-c', `${k} apply -f ${SAMPLES}`]);
  step('waiting for the proxies');
  const addressOf = async (name: string): Promise<string> => {
    const node = await rig.until(`node ${name}`, () => site.node(name), PATIENT);
    return node.ip_addresses[0] ?? '';
  };
  const [web, shop] = [await addressOf('default-web'), await addressOf('default-shop-ingress')];
  const proxy = `${objectNameOf({ type: 'svc', namespace: 'default', name: 'outside' })}-0`;
  const egress = await rig.until(
    'the pod that leads out',
    async () => (await site.pod(NAMESPACE, proxy)).status.podIP,
    PATIENT,
  );
  return [
    {
      about: 'What was applied',
      command: `${k} get -f ${SAMPLES}`,
      expected: /service\/web[\s\S]*connector/,
    },
    {
      about: 'A Service says when it is reached from the tailnet',
      command: `${k} get service web -o jsonpath='{.status.conditions[0].reason}{"\\n"}'`,
      expected: /ProxyCreated/,
    },
    {
      about: 'From a machine of the tailnet to the Service',
      command: `${inPod('client')} http://${web}/`,
      expected: /"name":"web"/,
    },
    {
      about: 'The same through the Ingress: the server knows the path, and the host that was asked for',
      command: `${inPod('client')} http://${shop}/basket`,
      expected: /"path":"\/basket"/,
    },
    {
      about: `From a pod to outside.${DOMAIN}, which is a machine of the tailnet`,
      command: `${inPod('web')} http://${egress}:${PORT}/`,
      expected: /"name":"outside"/,
    },
    {
      about: 'A Connector routes a network for the tailnet',
      command: `${k} get connector lab`,
      expected: /192\.0\.2\.0\/24/,
    },
    {
      about: 'What the operator made of it',
      command:
        `${k} -n ${NAMESPACE} get statefulset -L tailscale.com/parent-resource-type -L ` +
        'tailscale.com/parent-resource',
      expected: /connector[\s\S]*ingress[\s\S]*svc|svc[\s\S]*/,
    },
  ];
}

async function show(site: WorkloadSite, { about, command, expected }: Shown): Promise<void> {
  const output = await site.rig.until(
    about,
    async () => {
      const { stdout } = await run('sh', ['-c', command], { timeout: 30_000 });
      if (!expected.test(stdout)) throw new Error(stdout);
      return stdout;
    },
    PATIENT,
  );
  say(`\n# ${about}\n${command}\n${output.trimEnd().replaceAll(/^/gm, '    ')}\n`);
}

async function main(): Promise<number> {
  const problem = networkProblem();
  if (problem !== undefined) {
    step(problem);
    return 1;
  }
  const ended = Promise.withResolvers<undefined>();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.once(signal, () => ended.resolve(undefined));
  const alive = setInterval(() => undefined, 1 << 30);
  step('starting a cluster, a tailnet and an operator');
  const site = await Promise.race([startWorkloadSite(), ended.promise]);
  try {
    if (site === undefined) return 0;
    const [newest] = (await findKubectls()).toReversed();
    const tour = async (): Promise<void> => {
      await prepare(site);
      for (const shown of await commandsOf(site, newest?.path ?? 'kubectl')) await show(site, shown);
      const { text } = await site.examine();
      const { counts } = JSON.parse(text) as { counts: Readonly<Record<string, number>> };
      say(
        `\n# tailcast doctor operator: ${counts['ok']} ok, ${counts['warning']} warnings, ${counts['failed']} failed\n`,
      );
      say(`\nThe log of the operator: ${join(site.rig.folder, 'operator.log')}\nCtrl-C ends everything.\n`);
    };
    await Promise.race([tour(), ended.promise]);
    await ended.promise;
    step('ending everything');
    return 0;
  } finally {
    await site?.rig.stop();
    clearInterval(alive);
  }
}

process.exitCode = await main();

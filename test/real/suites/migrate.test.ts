/**
 * Rehearses a migration from the reference (Tailscale's operator and tsrecorder) step by step, with a rollback at each
 * step. The API server proxy of the reference is built from its module. There are recordings in a bucket, a running
 * shell and a running watch. Two parts of the reference are simulated, because they are closed or need Tailscale's
 * control server. These are a recorder with tsrecorder's upload protocol and object layout, and the objects that the
 * operator creates.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { referenceObjects, referenceState } from '../../operator/recorder/reference-objects.ts';
import { runCommand } from '../../support/run-command.ts';
import { createPod } from '../cases/case.ts';
import { NAMESPACE, create, imageCommands, install, launchOperator } from '../operator/installation.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubectl, environmentFor, findKubectls, runKubectl, startKubectl } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type ReferenceProxy, startReferenceProxy } from '../rig/reference-proxy.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { type S3Server, startS3 } from '../rig/s3.ts';
import { type Tailnet, startTailnet } from '../rig/tailnet.ts';
import { type Terminal, openTerminal } from '../rig/terminal.ts';
import { type Archive, openArchive } from '../support/archive.ts';
import {
  type SiteGateway,
  type SiteRecorder,
  createBucket,
  kubeconfigAt,
  sitePolicy,
  startSiteGateway,
  startSiteRecorder,
} from '../support/site.ts';

const BUCKET = 'recordings';
const TAILSCALE = '/apis/tailscale.com/v1alpha1';
const SHELL = ['exec', '-it', 'shell', '--', 'env', 'PS1=rig> ', 'bash', '--norc', '--noprofile', '-i'];
const PATIENT = { timeoutMs: 120_000 } as const;

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let s3: S3Server;
let kubectl: Kubectl;
let reference: ReferenceProxy;
let oldRecorder: { readonly address: string; readonly uploads: number; close(): void };
let recorder: SiteRecorder;
let archive: Archive;
let gateway: SiteGateway;
let operator: Program;
/** A port that is free on this machine, because pods of the kubelet double share the host network. */
let opsPort = 0;
/**
 * A shell that was opened through the reference before the installation. Every step uses this shell until the reference
 * is removed.
 */
let shell: Terminal;
let watched = '';
let lines = 0;
/** Name and duration of each step, which the test prints for README.md. */
const times: string[] = [];

beforeAll(async () => {
  const { tailscaled = '' } = await ensurePeer('tailnet');
  for (const peer of ['kubernetes-1.36', 'kubelet-double', 'versitygw', 'reference'] as const)
    await ensurePeer(peer);
  // The pods mount a volume at /tmp, and the kubelet double replaces this path everywhere, so the rig's folder must not
  // be below /tmp.
  process.env['TMPDIR'] = '/var/tmp';
  opsPort = await freePort();
  rig = createRig();
  [cluster, tailnet, s3] = await Promise.all([
    startKubernetes(rig, { node: { webSockets: true, images: imageCommands(rig, tailscaled) } }),
    startTailnet(rig, {
      nodes: [
        { name: 'proxy', tags: ['tag:k8s'] },
        { name: 'old-recorder', tags: ['tag:recorder'] },
        { name: 'new-recorder', tags: ['tag:recorder'] },
        { name: 'alice', user: 'alice@example.com' },
      ],
      policy: sitePolicy([]),
    }),
    startS3(rig),
  ]);
  // `tailcast verify` runs in this process and reads these variables.
  process.env['AWS_ACCESS_KEY_ID'] = s3.accessKeyId;
  process.env['AWS_SECRET_ACCESS_KEY'] = s3.secretAccessKey;
  await createBucket(s3, BUCKET);
  kubectl = (await findKubectls()).at(-1)!;
  oldRecorder = await startOldRecorder();
  reference = await startReferenceProxy(rig, { mode: 'auth', kubernetes: cluster, tailnet });
  setRecorders([oldRecorder.address]);
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
}, 300_000);

afterAll(async () => {
  process.stderr.write(`migrate: duration of each step\n${times.join('\n')}\n`);
  oldRecorder?.close();
  await rig?.stop();
}, 60_000);

/** Options of a step of the rehearsal. */
const STEP = { timeout: 300_000 } as const;
let began = 0;

beforeEach(() => {
  began = performance.now();
});

afterEach(({ task }) => {
  times.push(`  ${((performance.now() - began) / 1000).toFixed(1).padStart(6)} s  ${task.name}`);
});

/** The upload protocol v1 and the object layout of tsrecorder: one object per session, written when the upload ends. */
async function startOldRecorder(): Promise<typeof oldRecorder> {
  const client = s3Client();
  let uploads = 0;
  const server: Server = createServer((request, response) => {
    void (async () => {
      if (request.method !== 'POST' || request.url !== '/record') return void response.writeHead(404).end();
      const name = `${new Date().toISOString().replace('Z', '000000Z')}.cast`;
      const body = await buffer(request);
      const [header = '', ...events] = body.toString().split('\n');
      const mark = { dstNode: reference.name, dstNodeID: 'nREFERENCE1CNTRL' };
      const text = [JSON.stringify({ ...(JSON.parse(header) as object), ...mark }), ...events].join('\n');
      await client.send(
        new PutObjectCommand({ Bucket: BUCKET, Key: `nREFERENCE1CNTRL/${name}`, Body: text }),
      );
      uploads += 1;
      response.end();
    })().catch(() => response.destroy());
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  return {
    address: `${tailnet.node('old-recorder').addresses[0]}:${port}`,
    get uploads() {
      return uploads;
    },
    close: () => {
      server.closeAllConnections();
      server.close();
      client.destroy();
    },
  };
}

function s3Client(): S3Client {
  const { endpoint, region } = s3;
  return new S3Client({ endpoint, region, forcePathStyle: true, credentials: s3 });
}

function setRecorders(addresses: readonly string[]): void {
  const grant = { src: 'alice@example.com', groups: ['system:masters'], recorder: addresses, enforce: true };
  tailnet.setPolicy(sitePolicy([grant]));
}

const throughReference = (): string => reference.kubeconfig('alice');
const throughOurs = (): string =>
  kubeconfigAt(tailnet.node('alice'), {
    node: tailnet.node('proxy'),
    port: gateway.port,
    ca: gateway.ca,
    cluster,
  });

async function run(kubeconfig: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runKubectl(kubectl, args, { kubeconfig });
  if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${code} ${stderr.toString()}`);
  return stdout.toString();
}

function open(kubeconfig: string): Terminal {
  return openTerminal(kubectl.path, SHELL, { env: environmentFor({ kubeconfig }) });
}

/** Types a command whose output differs from its text, and waits for the output and the next prompt. */
async function type(terminal: Terminal): Promise<void> {
  lines += 1;
  terminal.type(`echo line-""${lines}\r`);
  await terminal.expect(`line-${lines}`);
  await terminal.expect('rig> ');
}

/** Changes a ConfigMap and waits until the watch that runs since the first step reports it. */
async function changeWatched(value: string): Promise<void> {
  await cluster.api('PATCH', '/api/v1/namespaces/default/configmaps/watched', { data: { value } });
  await rig.until(`the watch reports ${value}`, async () => (watched.includes(value) ? true : undefined));
}

/** Checks that shell and watch through the reference continue, and that the reference accepts new sessions. */
async function expectReferenceWorks(): Promise<void> {
  await type(shell);
  await changeWatched(`step-${times.length}`);
  expect(await run(throughReference(), 'exec', 'shell', '--', 'echo', 'way-back')).toBe('way-back\n');
}

describe('the rehearsal of a migration', () => {
  it('before: the reference serves, records, and has a shell and a watch open', STEP, async () => {
    await rig.until('the grants are in force', async () =>
      (await run(throughReference(), 'auth', 'whoami')).includes('system:masters') ? true : undefined,
    );
    expect(await run(throughReference(), 'exec', 'shell', '--', 'echo', 'before')).toBe('before\n');
    await rig.until('the recording', async () => (oldRecorder.uploads > 0 ? true : undefined));
    shell = open(throughReference());
    await shell.expect('rig> ');
    await cluster.api('POST', '/api/v1/namespaces/default/configmaps', {
      metadata: { name: 'watched' },
      data: { value: 'first' },
    });
    const watch = startKubectl(
      kubectl,
      ['get', 'configmap', 'watched', '--watch', '--output=jsonpath={.data.value}{"\\n"}'],
      { kubeconfig: throughReference() },
    );
    watch.stdout?.on('data', (chunk: Buffer) => (watched += chunk.toString()));
    await changeWatched('second');
  });

  it('migrate check: reports every object and grant, and changes nothing', STEP, async () => {
    operatorInstallation = await install(rig, cluster);
    for (const [plural, namespace, name, spec] of OBJECTS)
      await cluster.api('POST', `${TAILSCALE}${namespace}/${plural}`, {
        apiVersion: 'tailscale.com/v1alpha1',
        kind: KINDS[plural],
        metadata: { name },
        spec,
      });
    await cluster.api('POST', '/api/v1/namespaces/default/services', {
      metadata: { name: 'shown', annotations: { 'tailscale.com/expose': 'true' } },
      spec: { ports: [{ port: 80 }] },
    });
    const before = await everything();
    const policy = join(rig.folder, 'policy.json');
    writeFileSync(policy, JSON.stringify(sitePolicy([{ src: 'alice@example.com', groups: ['ops'] }])));
    const kubeconfig = cluster.kubeconfig('migrate', { token: cluster.tokens.admin });
    const { code, out, err } = await runCommand(
      'migrate',
      'check',
      '--kubeconfig',
      kubeconfig,
      '--policy',
      policy,
    );
    expect({ code, err }).toEqual({ code: 0, err: '' });
    for (const [plural, , name] of OBJECTS) expect(out).toMatch(new RegExp(`${KINDS[plural]} .*${name}`));
    expect(out).toMatch(/Service default\/shown/);
    expect(await everything()).toEqual(before);
  });

  it('install a recorder next to the old one, over the same bucket', STEP, async () => {
    recorder = await startSiteRecorder(rig, {
      name: 'new-recorder',
      node: tailnet.node('new-recorder'),
      s3,
      bucket: BUCKET,
    });
    archive = openArchive(recorder.url);
    const [old] = await rig.until('the old recordings', async () => {
      const found = await archive.of('shell');
      return found.length > 0 ? found : undefined;
    });
    expect(old).toMatchObject({ trust: 'unverified', source: { user: 'alice@example.com' } });
    expect((await archive.read(old!.id)).text).toBe('before\n');
    const bucket = [`s3://${BUCKET}/`, '--s3-endpoint', s3.endpoint, '--s3-region', s3.region];
    const verified = await runCommand('verify', ...bucket, old!.id);
    expect(verified).toMatchObject({ code: 3, out: expect.stringContaining('no-evidence') });
    expect(verified.out).toContain(`${old!.id}: unverified`);
    const listed = await runCommand('ls', '--recorder', recorder.url, '--json');
    expect(listed.out).toContain(old!.id);
    await expectReferenceWorks();
  });

  it('install a gateway next to the proxy, with its own node', STEP, async () => {
    setRecorders([oldRecorder.address, recorder.address]);
    gateway = await startSiteGateway(rig, { name: 'gateway', node: tailnet.node('proxy'), cluster });
    await rig.until('the grants at the gateway', async () =>
      (await run(throughOurs(), 'auth', 'whoami')).includes('system:masters') ? true : undefined,
    );
    const user = '--output=jsonpath={.status.userInfo.username} {.status.userInfo.groups}';
    expect(await run(throughOurs(), 'auth', 'whoami', user)).toBe(
      await run(throughReference(), 'auth', 'whoami', user),
    );
    await expectReferenceWorks();
  });

  it('switch users to the gateway: both old and new recorders record', STEP, async () => {
    expect(await run(throughOurs(), 'exec', 'shell', '--', 'echo', 'switched')).toBe('switched\n');
    await expectReferenceWorks();
  });

  let ours: Terminal;
  it('switch the recorder: new sessions, and a shell that is open, go to the new one', STEP, async () => {
    setRecorders([recorder.address]);
    await rig.until('new sessions are in the new recorder', async () => {
      const before = (await archive.of('shell')).filter(({ trust }) => trust === 'verified').length;
      await run(throughOurs(), 'exec', 'shell', '--', 'true');
      const after = (await archive.of('shell')).filter(({ trust }) => trust === 'verified').length;
      return after > before ? true : undefined;
    });
    ours = open(throughOurs());
    await ours.expect('rig> ');
    await type(ours);
    await expectReferenceWorks();
  });

  it('the way back: the old recorder again, for a moment', STEP, async () => {
    setRecorders([oldRecorder.address]);
    const uploads = oldRecorder.uploads;
    await rig.until('new sessions are in the old recorder', async () => {
      await run(throughReference(), 'exec', 'shell', '--', 'true');
      return oldRecorder.uploads > uploads ? true : undefined;
    });
    setRecorders([recorder.address]);
    await type(ours);
    await expectReferenceWorks();
  });

  it('switch the operator: a Recorder keeps its node, its key and its StatefulSet', STEP, async () => {
    const node = await tailnet.join({ name: 'adopted-0', tags: ['tag:k8s'] });
    const known = (await nodes()).find(({ given_name }) => given_name === 'adopted-0');
    const container = {
      image: 'tailcast/stand-in:v1',
      env: [{ name: 'TAILCAST_OPS_LISTEN', value: `127.0.0.1:${opsPort}` }],
    };
    await cluster.api('POST', `${TAILSCALE}/recorders`, {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'Recorder',
      metadata: { name: 'adopted' },
      spec: {
        storage: { s3: { endpoint: 's3.example.com', bucket: 'recordings' } },
        statefulSet: { pod: { container } },
      },
    });
    const { metadata } = (await cluster.api('GET', `${TAILSCALE}/recorders/adopted`)) as {
      metadata: { name: string; uid: string };
    };
    const state = referenceState(String(known?.id), node.dnsName, node.machineKey());
    for (const object of referenceObjects(metadata, { command: ['sleep', 'infinity'], state }))
      await create(cluster, object, '?fieldManager=operator');
    const before = await statefulSet();
    operator = launchOperator(rig, {
      ...operatorInstallation,
      controlUrl: tailnet.controlUrl,
      apiKey: (await tailnet.admin('apikeys', 'create')) as string,
    });
    await rig.until(
      'the StatefulSet of the operator',
      async () => {
        const set = await statefulSet();
        if (set.spec.template.spec.initContainers !== undefined) return true;
        const { status } = (await cluster.api('GET', `${TAILSCALE}/recorders/adopted`)) as {
          status?: object;
        };
        throw new Error(JSON.stringify(status));
      },
      { ...PATIENT, watch: [operator] },
    );
    expect((await statefulSet()).metadata.uid).toBe(before.metadata.uid);
    const after = (await nodes()).find(({ given_name }) => given_name === 'adopted-0');
    expect([after?.id, after?.ip_addresses]).toEqual([known?.id, known?.ip_addresses]);
    // The Secret still contains the state that the reference reads, so a rollback is possible.
    await operator.stop();
    const secret = (await cluster.api('GET', `/api/v1/namespaces/${NAMESPACE}/secrets/adopted-0`)) as {
      data: Record<string, string>;
    };
    expect(secret.data).toMatchObject(state);
    operator.start();
    await expectReferenceWorks();
  });

  it('remove the reference: nothing recorded is lost', STEP, async () => {
    shell.type('exit\r');
    expect(await shell.ended).toBe(0);
    await rig.until('the recording of the shell', async () =>
      (await recordedTexts()).some((text) => text.includes('line-1')) ? true : undefined,
    );
    await reference.program.stop();
    oldRecorder.close();
    await type(ours);
    ours.type('exit\r');
    expect(await ours.ended).toBe(0);
    await rig.until('both shells are stored', async () => {
      const texts = await recordedTexts();
      const missing = Array.from({ length: lines }, (_, index) => `line-${index + 1}`).filter(
        (line) => !texts.some((text) => text.includes(line)),
      );
      if (missing.length > 0) throw new Error(`not recorded: ${missing.join(', ')}`);
      return true;
    });
    const signed = (await archive.of('shell')).filter(({ trust }) => trust === 'verified');
    expect(signed.length).toBeGreaterThan(1);
    expect(await run(throughOurs(), 'exec', 'shell', '--', 'echo', 'after')).toBe('after\n');
  });
});

let operatorInstallation: { readonly kubeconfig: string };

const KINDS: Readonly<Record<string, string>> = {
  connectors: 'Connector',
  proxyclasses: 'ProxyClass',
  proxygroups: 'ProxyGroup',
  proxygrouppolicies: 'ProxyGroupPolicy',
  dnsconfigs: 'DNSConfig',
  tailnets: 'Tailnet',
};

/** Example objects from the reference's documentation: plural, path of the namespace, name, spec. */
const OBJECTS: readonly (readonly [string, string, string, object])[] = [
  ['connectors', '', 'exit', { exitNode: true }],
  ['proxyclasses', '', 'prod', { metrics: { enable: true } }],
  ['proxygroups', '', 'api', { type: 'kube-apiserver', replicas: 2, kubeAPIServer: { mode: 'auth' } }],
  ['proxygrouppolicies', '/namespaces/default', 'web', { ingress: [], egress: ['out'] }],
  ['dnsconfigs', '', 'names', { nameserver: {} }],
  ['tailnets', '', 'other', { credentials: { secretName: 'oauth' } }],
];

/** Returns the versions of all objects that the report reads. */
async function everything(): Promise<readonly string[]> {
  const paths = [...OBJECTS.map(([plural]) => `${TAILSCALE}/${plural}`), '/api/v1/services'];
  const lists = await Promise.all(paths.map((path) => cluster.api('GET', path)));
  return lists.flatMap((list) =>
    (list as { items: { metadata: { uid: string; resourceVersion: string } }[] }).items.map(
      ({ metadata }) => `${metadata.uid} ${metadata.resourceVersion}`,
    ),
  );
}

interface StatefulSet {
  readonly metadata: { readonly uid: string };
  readonly spec: { readonly template: { readonly spec: { readonly initContainers?: readonly object[] } } };
}

async function statefulSet(): Promise<StatefulSet> {
  const path = `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets/adopted`;
  return (await cluster.api('GET', path)) as StatefulSet;
}

interface HeadscaleNode {
  readonly id: number | string;
  readonly given_name: string;
  readonly ip_addresses: readonly string[];
}

async function nodes(): Promise<readonly HeadscaleNode[]> {
  return ((await tailnet.admin('nodes', 'list')) as readonly HeadscaleNode[] | null) ?? [];
}

async function recordedTexts(): Promise<readonly string[]> {
  const found = await archive.of('shell');
  return Promise.all(found.map(async ({ id }) => (await archive.read(id)).text));
}

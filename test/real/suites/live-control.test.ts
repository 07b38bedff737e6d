/**
 * Control of running sessions with a real API server, the oldest and the newest kubectl on a terminal, and Chromium:
 * the notice, watching, pause, end, and a rule that ends a session.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPod, deletePod } from '../cases/case.ts';
import { environmentFor, findKubectls, runKubectl, speaks, type Transport } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { openTerminal, type Terminal } from '../rig/terminal.ts';
import { accessibilityFaults } from '../support/axe.ts';
import { type Archive, openArchive } from '../support/archive.ts';
import { openBrowser } from '../support/browser.ts';
import { LAPTOP, shot } from '../support/player-page.ts';
import { identityOf, startTestGateway, startTestRecorder } from '../support/product.ts';

const NOTICE = 'This session is recorded and may be watched.';
const RULES = `rules:
  forbidden-word:
    output: 'forbidden-[0-9]+-word'
    action: end
`;
const found = await findKubectls();
const clients = [found[0]!, found.at(-1)!].flatMap((kubectl) =>
  (['spdy', 'websocket'] as const satisfies readonly Transport[])
    .filter((transport) => speaks(kubectl, transport))
    .map((transport) => ({ name: `kubectl ${kubectl.minor} over ${transport}`, kubectl, transport })),
);

let rig: Rig;
let cluster: Kubernetes;
let archive: Archive;
let kubeconfig: string;
let pod: string;
let counter = 0;
let terminal: Terminal | undefined;

beforeAll(async () => {
  rig = createRig();
  cluster = await startKubernetes(rig, { version: '1.36', node: { webSockets: true } });
  const folder = join(rig.folder, 'control');
  mkdirSync(folder);
  const alerts = join(folder, 'alerts.yaml');
  writeFileSync(alerts, RULES);
  const policy = join(folder, 'policy.yaml');
  writeFileSync(policy, `sessions:\n  notice: ${NOTICE}\n`);
  const more = { viewers: '*,*=end', alerts };
  const recorder = await startTestRecorder(folder, 'gateway.example.ts.net', undefined, true, more);
  rig.onStop(() => recorder.close());
  archive = openArchive(recorder.url);
  const gateway = await startTestGateway({
    mode: 'auth',
    upstream: cluster.kubeconfig('gateway-control', { token: cluster.tokens.impersonator }),
    stateDirectory: join(folder, 'state'),
    identity: identityOf({ login: 'alice@example.com' }, recorder.address),
    policy,
  });
  rig.onStop(() => gateway.close(500));
  kubeconfig = cluster.kubeconfig('through-control', {
    server: `https://127.0.0.1:${gateway.port}`,
    ca: gateway.caPem ?? '',
    token: 'unused',
  });
});

afterAll(() => rig.stop());

beforeEach(async () => {
  counter += 1;
  pod = `control-${counter}`;
  await createPod(cluster, pod, { command: ['sleep', 'infinity'] });
});

afterEach(async () => {
  terminal?.kill();
  terminal = undefined;
  await deletePod(cluster, pod);
});

/** Opens a shell on a terminal, and waits for its prompt. */
async function openShell({ kubectl, transport }: (typeof clients)[number]): Promise<Terminal> {
  const env = environmentFor({ kubeconfig, transport });
  terminal = openTerminal(kubectl.path, ['exec', '-it', pod, '--', 'env', 'PS1=ready> ', 'sh'], { env });
  await terminal.expect('ready> ');
  return terminal;
}

/** Waits until the recorder lists the session. */
async function recordingId(): Promise<string> {
  await expect.poll(async () => archive.of(pod), { timeout: 10_000 }).toHaveLength(1);
  return (await archive.of(pod))[0]!.id;
}

async function order(action: string, reason = ''): Promise<{ status: number; text: string }> {
  const path = `api/v1/recordings/${encodeURIComponent(await recordingId())}/orders/${action}`;
  const url = new URL(`${path}?reason=${encodeURIComponent(reason)}`, archive.url);
  const response = await fetch(url, { method: 'POST' });
  return { status: response.status, text: await response.text() };
}

describe.each(clients)('$name', (client) => {
  it('starts with the notice, keeps size and exit code, and records the notice', async () => {
    const shell = await openShell(client);
    expect(shell.output().split('\r\n')[0]).toBe(NOTICE);
    shell.type('stty size\r');
    await shell.expect('24 80');
    shell.resize(100, 30);
    shell.type('until [ "$(stty size)" = "30 100" ]; do sleep 0.1; done; echo resized-$((40 + 2))\r');
    await shell.expect('resized-42');
    shell.type('exit 7\r');
    expect(await shell.ended).toBe(7);
    const [recording] = await archive.whole([pod], 1);
    const { text } = await archive.read(recording!.id);
    expect(text.startsWith(`${NOTICE}\r\n`)).toBe(true);
  });

  it('has no notice in output that a program reads', async () => {
    const run = { kubeconfig, transport: client.transport };
    const plain = await runKubectl(client.kubectl, ['exec', pod, '--', 'echo', 'data'], run);
    expect(plain).toMatchObject({ code: 0, stdout: Buffer.from('data\n'), stderr: Buffer.alloc(0) });
  });

  it('ends on request, with the reason for the user', async () => {
    const shell = await openShell(client);
    expect(await order('end', 'wrong cluster')).toMatchObject({ status: 200 });
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('wrong cluster');
    const [recording] = await archive.whole([pod], 1);
    expect(recording).toMatchObject({ state: 'interrupted' });
  });

  it('pauses and resumes: nothing is lost, and nothing is shown meanwhile', async () => {
    const shell = await openShell(client);
    shell.type('i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line-$i-end; sleep 0.1; done\r');
    await shell.expect('line-3-end');
    expect(await order('pause')).toMatchObject({ status: 200 });
    const id = await recordingId();
    // the recording continues
    await expect
      .poll(async () => (await archive.read(id)).text, { timeout: 10_000 })
      .toContain('line-30-end');
    expect(shell.output()).not.toContain('line-20-end');
    expect(await order('resume')).toMatchObject({ status: 200 });
    await shell.expect('line-40-end');
    for (let line = 1; line <= 40; line += 1) expect(shell.output()).toContain(`line-${line}-end`);
    shell.type('exit\r');
    expect(await shell.ended).toBe(0);
  });

  it('ends when its output matches a rule', async () => {
    const shell = await openShell(client);
    shell.type('echo forbidden-$((40 + 2))-word; sleep 60\r');
    await shell.expect('forbidden-42-word');
    const started = performance.now();
    expect(await shell.ended).not.toBe(0);
    const took = Math.round(performance.now() - started);
    rule.push(took);
    expect(took).toBeLessThan(1000);
    expect(shell.output()).toContain('forbidden-word');
  });
});

/** For each session that a rule ended: milliseconds between the output and the end of the session. */
const rule: number[] = [];
afterAll(() => console.log(`a rule ended sessions after ${rule.join(', ')} ms`));

describe('the page', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser?.close());

  it('shows the running session, and ends it with a reason', async () => {
    const shell = await openShell(clients.at(-1)!);
    const page = await browser.newPage({ ...LAPTOP, reducedMotion: 'reduce' });
    await page.goto(`${archive.url}/#/r/${encodeURIComponent(await recordingId())}`);
    shell.type('echo shown-$((40 + 2))\r');
    await page.locator('.terminal').getByText('shown-42').waitFor();
    await page.getByLabel('Reason').fill('seen by carol');
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('live-control') });
    await page.getByRole('button', { name: 'End session' }).click();
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('seen by carol');
    await page.close();
  });
});

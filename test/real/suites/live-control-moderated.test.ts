/**
 * Moderated sessions with a real API server, the oldest and newest kubectl, and Chromium: a shell waits until a
 * moderator watches, and ends when no moderator watches any more.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACCESS_CAPABILITY } from '../../../src/tailnet/access-rules.ts';
import { encodeNamedViewer } from '../../../src/wire/recorder-api/named-viewer.ts';
import { createPod, deletePod } from '../cases/case.ts';
import { environmentFor, findKubectls, runKubectl, speaks, type Transport } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { openTerminal, type Terminal } from '../rig/terminal.ts';
import { type Archive, openArchive } from '../support/archive.ts';
import { accessibilityFaults } from '../support/axe.ts';
import { openBrowser } from '../support/browser.ts';
import { LAPTOP, PHONE, shot } from '../support/player-page.ts';
import { identityOf, startTestGateway, startTestRecorder } from '../support/product.ts';

const RULE = {
  moderate: ['exec', 'attach', 'portForward'],
  moderators: { users: ['bob@example.com', 'alice@example.com'] },
};
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
/**
 * Kubeconfigs of two gateways that ask for a reason: `asking` has no moderation rule, and `both` also has a moderation
 * rule.
 */
let asking: string;
let both: string;
let pod: string;
let counter = 0;
let terminal: Terminal | undefined;
/** Timers with which simulated viewers repeat their watch requests. */
const repeating = new Set<NodeJS.Timeout>();

beforeAll(async () => {
  rig = createRig();
  cluster = await startKubernetes(rig, { version: '1.36', node: { webSockets: true } });
  const folder = join(rig.folder, 'moderated');
  mkdirSync(folder);
  const recorder = await startTestRecorder(folder, 'gateway.example.ts.net');
  rig.onStop(() => recorder.close());
  archive = openArchive(recorder.url);
  const alice = identityOf({ login: 'alice@example.com' }, recorder.address);
  const policy = join(folder, 'policy.yaml');
  writeFileSync(policy, 'sessions:\n  askReason: true\n');
  const start = async (name: string, rules: readonly object[], policyFile?: string): Promise<string> => {
    const gateway = await startTestGateway({
      mode: 'auth',
      upstream: cluster.kubeconfig(`gateway-${name}`, { token: cluster.tokens.impersonator }),
      stateDirectory: join(folder, name),
      identity: { ...alice, capabilities: new Map([...alice.capabilities, [ACCESS_CAPABILITY, rules]]) },
      ...(policyFile === undefined ? {} : { policy: policyFile }),
    });
    rig.onStop(() => gateway.close(500));
    return cluster.kubeconfig(`through-${name}`, {
      server: `https://127.0.0.1:${gateway.port}`,
      ca: gateway.caPem ?? '',
      token: 'unused',
    });
  };
  kubeconfig = await start('moderated', [RULE]);
  asking = await start('asking', [], policy);
  both = await start('both', [RULE], policy);
});

afterAll(() => rig.stop());

beforeEach(async () => {
  counter += 1;
  pod = `moderated-${counter}`;
  await createPod(cluster, pod, { command: ['sleep', 'infinity'] });
});

afterEach(async () => {
  for (const timer of repeating) clearInterval(timer);
  terminal?.kill();
  terminal = undefined;
  await deletePod(cluster, pod);
});

/** Opens a shell on a terminal, and waits for the line of the gateway. */
async function openShell({ kubectl, transport }: (typeof clients)[number]): Promise<Terminal> {
  const env = environmentFor({ kubeconfig, transport });
  terminal = openTerminal(kubectl.path, ['exec', '-it', pod, '--', 'env', 'PS1=ready> ', 'sh'], { env });
  await terminal.expect('this session starts when bob@example.com watches it');
  return terminal;
}

async function recordingId(): Promise<string> {
  await expect.poll(async () => archive.of(pod), { timeout: 10_000 }).toHaveLength(1);
  return (await archive.of(pod))[0]!.id;
}

/** Returns the headers with which the portal names a viewer. */
function headersOf(user: string, nodeId = `n-${user}`): Record<string, string> {
  const named = {
    nodeId,
    node: `${user}-laptop`,
    address: '100.64.0.9',
    user: `${user}@example.com`,
    tags: [],
  };
  const fields = encodeNamedViewer(named) ?? [];
  const headers: Record<string, string> = {};
  for (let index = 0; index < fields.length; index += 2) headers[fields[index]!] = fields[index + 1]!;
  return headers;
}

/** Sends one watch request of a viewer. */
async function watchOnce(user: string, nodeId?: string): Promise<{ status: number; text: string }> {
  const url = new URL(
    `api/v1/recordings/${encodeURIComponent(await recordingId())}/orders/watch`,
    archive.url,
  );
  const response = await fetch(url, { method: 'POST', headers: headersOf(user, nodeId) });
  return { status: response.status, text: await response.text() };
}

/** Watches until the returned function is called. */
async function watch(user: string): Promise<() => void> {
  expect(await watchOnce(user)).toMatchObject({ status: 200 });
  const timer = setInterval(() => void watchOnce(user), 3000);
  repeating.add(timer);
  return () => clearInterval(timer);
}

describe.each(clients)('$name', (client) => {
  it('starts a shell when a moderator watches, and keeps size, input and exit code', async () => {
    const shell = await openShell(client);
    shell.type('echo typed-$((40 + 2))\r');
    const leave = await watch('bob');
    await shell.expect('typed-42');
    shell.type('stty size\r');
    await shell.expect('24 80');
    shell.resize(100, 30);
    shell.type('until [ "$(stty size)" = "30 100" ]; do sleep 0.1; done; echo resized-$((40 + 2))\r');
    await shell.expect('resized-42');
    shell.type('exit 7\r');
    expect(await shell.ended).toBe(7);
    leave();
    const [recording] = await archive.whole([pod], 1);
    const { text } = await archive.read(recording!.id);
    expect(text).toMatch(/^tailcast: this session starts when/);
    expect(text).toContain('typed-42');
  });

  it('ends the shell when no moderator watches any more', async () => {
    const shell = await openShell(client);
    const leave = await watch('bob');
    await shell.expect('ready> ');
    leave();
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('no moderator watches it any more');
  });

  it('is not started by its own user, by a stranger, or after Ctrl-C', async () => {
    const shell = await openShell(client);
    expect(await watchOnce('alice', 'n-other-laptop')).toMatchObject({ status: 403 });
    expect(await watchOnce('mallory')).toMatchObject({ status: 403 });
    expect(shell.output()).not.toContain('ready> ');
    shell.type('\u0003');
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('you cancelled it');
    const [recording] = await archive.whole([pod], 1);
    expect(recording).toMatchObject({ state: 'interrupted' });
  });

  it('tells a program about the wait on stderr only', async () => {
    const run = { kubeconfig, transport: client.transport, stdin: Buffer.from('piped data') };
    const running = runKubectl(client.kubectl, ['exec', '-i', pod, '--', 'cat'], run);
    const leave = await watch('bob');
    const { code, stdout, stderr } = await running;
    leave();
    expect({ code, stdout: stdout.toString() }).toEqual({ code: 0, stdout: 'piped data' });
    expect(stderr.toString()).toContain('this session starts when');
  });

  it('says why the API server refused the command', async () => {
    const env = environmentFor({ kubeconfig, transport: client.transport });
    terminal = openTerminal(client.kubectl.path, ['exec', '-it', pod, '-c', 'missing', '--', 'sh'], { env });
    const shell = terminal;
    await shell.expect(/watches it|missing/);
    if (!shell.output().includes('watches it')) return;
    await watch('bob');
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('missing');
  });

  it('refuses a port-forward', async () => {
    const run = { kubeconfig, transport: client.transport };
    const refused = await runKubectl(client.kubectl, ['port-forward', `pod/${pod}`, ':80'], run);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr.toString()).toContain('a moderator must watch your port-forwards');
  });

  it('asks for a reason, which the recording contains', async () => {
    const env = environmentFor({ kubeconfig: asking, transport: client.transport });
    terminal = openTerminal(client.kubectl.path, ['exec', '-it', pod, '--', 'env', 'PS1=ready> ', 'sh'], {
      env,
    });
    const shell = terminal;
    await shell.expect('Reason for this session: ');
    shell.type('\rdiks\u007f\u007fsk is full\r');
    await shell.expect('ready> ');
    shell.type('stty size; exit 7\r');
    await shell.expect('24 80');
    expect(await shell.ended).toBe(7);
    const [recording] = await archive.whole([pod], 1);
    const { text } = await archive.read(recording!.id);
    expect(text).toContain('Reason for this session: ');
    const notes = await (await fetch(`${archive.url}/api/v1/recordings/${recording!.id}/notes`)).text();
    expect(notes).toContain('"action":"reason","by":"alice@example.com","reason":"disk is full"');
    expect(
      await runKubectl(client.kubectl, ['exec', pod, '--', 'echo', 'data'], { kubeconfig: asking }),
    ).toMatchObject({
      code: 0,
      stdout: Buffer.from('data\n'),
      stderr: Buffer.alloc(0),
    });
  });

  it('asks for a reason before it waits for a moderator', async () => {
    const env = environmentFor({ kubeconfig: both, transport: client.transport });
    terminal = openTerminal(client.kubectl.path, ['exec', '-it', pod, '--', 'env', 'PS1=ready> ', 'sh'], {
      env,
    });
    const shell = terminal;
    await shell.expect('Reason for this session: ');
    await watch('bob');
    shell.type('ticket 4711\recho early-$((40 + 2))\r');
    await shell.expect('watches it');
    await shell.expect('early-42');
    // the gateway removes the reason from the input, so the program does not receive it
    expect(shell.output().split('ready> ').slice(1).join('')).not.toContain('ticket');
  });
});

describe('the page', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser?.close());

  it.each([
    ['laptop', LAPTOP],
    ['phone', PHONE],
  ])('lets a session run while it is open on a %s', async (device, options) => {
    const shell = await openShell(clients.at(-1)!);
    const extraHTTPHeaders = headersOf('bob');
    const page = await browser.newPage({ ...options, reducedMotion: 'reduce', extraHTTPHeaders });
    await page.goto(`${archive.url}/#/r/${encodeURIComponent(await recordingId())}`);
    await page.locator('.terminal').getByText('this session starts when').first().waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot(`moderated-wait-${device}`), fullPage: true });
    await page.getByRole('button', { name: 'Watch, and let it run' }).click();
    await shell.expect('ready> ');
    await page.getByText('The session runs while you watch it.').waitFor();
    await page.getByRole('button', { name: 'Stop watching' }).waitFor();
    shell.type('echo shown-$((40 + 2))\r');
    await page.locator('.terminal').getByText('shown-42').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot(`moderated-${device}`), fullPage: true });
    const width = await page.evaluate<number>('document.documentElement.scrollWidth');
    expect(width).toBeLessThanOrEqual(options.viewport!.width);
    await page.close();
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain('no moderator watches it any more');
  });

  it('says why a viewer may not let a session run', async () => {
    const shell = await openShell(clients.at(-1)!);
    const page = await browser.newPage({ ...LAPTOP, extraHTTPHeaders: headersOf('mallory') });
    await page.goto(`${archive.url}/#/r/${encodeURIComponent(await recordingId())}`);
    await page.getByRole('button', { name: 'Watch, and let it run' }).click();
    await page.getByText('you are no moderator of this session').waitFor();
    await page.getByRole('button', { name: 'Watch, and let it run' }).waitFor();
    expect(shell.output()).not.toContain('ready> ');
    await page.close();
  });
});

/**
 * The pages of the portal in Chromium for three tailnet identities at once, in front of a real API server. Covers an
 * access request of plain kubectl, its decision and its revocation, and the control of a running session. Each browser
 * context reaches the gateway through the tailscaled of its user.
 */
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import { environmentFor, runKubectl } from '../rig/kubectl.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { openTerminal, type Terminal } from '../rig/terminal.ts';
import { prepareAccess } from '../support/access-cluster.ts';
import { accessibilityFaults } from '../support/axe.ts';
import { collectComplaints, openBrowser, type Complaints } from '../support/browser.ts';
import { LAPTOP, shot } from '../support/player-page.ts';
import { kubeconfigAt, type SiteGateway, sitePolicy, startSiteGateway } from '../support/site.ts';
import { ensureTailnetSite, startTailnetSite, type TailnetSite } from '../support/tailnet-site.ts';

/** Bob decides about alice, and carol about bob. */
const APPROVERS = { alice: 'bob', bob: 'carol' } as const;
const PEOPLE = ['alice', 'bob', 'carol'] as const;
type Name = (typeof PEOPLE)[number];
const login = (name: Name): string => `${name}@example.com`;

/** Alice and bob may see the sessions of the namespace, and carol may see her own. Only bob may end sessions. */
const VIEWERS = [
  `${login('alice')}=namespace:default`,
  login('bob'),
  `${login('bob')}=end`,
  `${login('carol')}=user:${login('carol')}`,
];
const SRE = ['--as=me', '--as-group=sre'] as const;
const LIST = ['get', 'configmaps', ...SRE] as const;
const SHELL = ['exec', '-it', 'shell', '--', 'env', 'PS1=ready> ', 'sh'] as const;
const LIMIT = { timeout: 15_000 };

let rig: Rig;
let site: TailnetSite;
let gateway: SiteGateway;
let browser: Browser;
let terminal: Terminal | undefined;
const opened = new Map<Page, Complaints>();

beforeAll(async () => {
  await ensureTailnetSite();
  rig = createRig();
  const people = PEOPLE.map((name) => ({ name, user: login(name) }));
  const recorder = { viewers: VIEWERS.join(','), 'trusted-gateways': 'tag:k8s' };
  site = await startTailnetSite(rig, people, { recorder });
  const { cluster } = site;
  const token = await prepareAccess(cluster);
  gateway = await startSiteGateway(rig, {
    name: 'gateway-pages',
    node: site.proxy,
    cluster,
    settings: { kubeconfig: cluster.kubeconfig('gateway-pages', { token }) },
  });
  const policy = sitePolicy(
    PEOPLE.map((name) => ({
      src: login(name),
      groups: [name === 'carol' ? 'sre' : 'readers'],
      recorder: [site.recorder.address],
      enforce: true,
    })),
  ) as { grants: object[] };
  for (const [name, approver] of Object.entries(APPROVERS))
    policy.grants.push({
      src: [login(name as Name)],
      dst: ['tag:k8s'],
      app: {
        'tailcast.dev/cap/kubernetes-access': [
          {
            request: { groups: ['sre'] },
            maxDuration: '1h',
            approvers: { users: [login(approver)] },
            enforceRecorder: true,
          },
        ],
      },
    });
  site.tailnet.setPolicy(policy);
  await rig.until('the policy', async () => (await kubectl('alice', 'get', 'pods')).code === 0 || undefined);
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
  browser = await openBrowser();
});

afterAll(async () => {
  await browser?.close();
  await rig?.stop();
});

afterEach(async () => {
  terminal?.kill();
  terminal = undefined;
  for (const page of opened.keys()) await page.context().close();
  opened.clear();
});

function kubeconfig(from: Name): string {
  const { cluster, proxy, tailnet } = site;
  return kubeconfigAt(tailnet.node(from), { node: proxy, port: gateway.port, ca: gateway.ca, cluster });
}

async function kubectl(from: Name, ...args: readonly string[]): Promise<{ code: number; err: string }> {
  const { code, stderr } = await runKubectl(site.kubectl, args, { kubeconfig: kubeconfig(from) });
  return { code, err: stderr.toString() };
}

/** Runs a kubectl command that needs an approval. @returns the id of the access request */
async function pending(from: Name): Promise<string> {
  const { code, err } = await kubectl(from, ...LIST);
  const [, id = ''] = /request ([a-z0-9]{10}) needs 1 more approval/.exec(err) ?? [];
  expect([code, id === '' ? err : '']).toEqual([1, '']);
  return id;
}

/** Opens a shell on a terminal, and waits for its prompt. */
async function openShell(from: Name, args: readonly string[] = SHELL): Promise<Terminal> {
  const env = environmentFor({ kubeconfig: kubeconfig(from) });
  terminal = openTerminal(site.kubectl.path, args, { env });
  await terminal.expect('ready> ');
  return terminal;
}

/** Opens a page of the portal for a user, in a browser context of its own. */
async function open(name: Name, path: string): Promise<Page> {
  const context = await browser.newContext({
    ...LAPTOP,
    reducedMotion: 'reduce',
    ignoreHTTPSErrors: true,
    proxy: { server: `http://127.0.0.1:${site.tailnet.node(name).httpProxyPort}` },
  });
  const page = await context.newPage();
  opened.set(page, await collectComplaints(page));
  await page.goto(`https://${site.proxy.addresses[0]}:${gateway.port}/-/recordings/${path}`);
  // a reload would remove this variable, so the test can detect a reload
  await page.evaluate('window.isFirst = true');
  return page;
}

/** Sends a request from the page. @returns status and body */
function ask(page: Page, path: string, method: 'GET' | 'POST' = 'GET'): Promise<[number, string]> {
  const asked = `fetch(${JSON.stringify(path)}, { method: '${method}' })`;
  return page.evaluate(`${asked}.then(async (response) => [response.status, await response.text()])`);
}

/** Checks that no page was reloaded, and that the browser reported no problems. */
async function checkPages(pages: readonly Page[]): Promise<void> {
  for (const page of pages) {
    expect(await page.evaluate('window.isFirst')).toBe(true);
    expect(opened.get(page)?.all).toEqual([]);
  }
}

const REQUESTS = 'api/v1/access/requests';
const rowOf = (page: Page, section: string, id: string) =>
  page.getByRole('region', { name: section }).locator(`[data-id="${id}"]`);
const buttonsOf = (page: Page, section: string, id: string): Promise<string[]> =>
  rowOf(page, section, id).getByRole('button').allTextContents();

describe('the page of access requests', () => {
  it('shows a request to its approver, and decision and revocation to its requester, without a reload', async () => {
    const pages = await Promise.all(PEOPLE.map((name) => open(name, 'access.html')));
    const [alice, bob, carol] = pages as [Page, Page, Page];
    const id = await pending('alice');
    const other = await pending('bob');
    await rowOf(alice, 'My requests', id).getByText('pending').waitFor();
    await rowOf(bob, 'To decide', id).getByText(login('alice')).waitFor();
    await rowOf(bob, 'My requests', other).waitFor();
    await rowOf(carol, 'To decide', other).getByText(login('bob')).waitFor();
    // each user sees only buttons for permitted actions
    expect(await buttonsOf(alice, 'My requests', id)).toEqual(['revoke (r)']);
    expect(await buttonsOf(bob, 'To decide', id)).toEqual(['approve (a)', 'deny (d)']);
    expect(await buttonsOf(bob, 'My requests', other)).toEqual(['revoke (r)']);
    // each user sees only their own requests, and requests that they may decide
    for (const [page, hidden] of [
      [alice, other],
      [carol, id],
    ] as const) {
      expect(await page.locator(`[data-id="${hidden}"]`).count()).toBe(0);
      expect((await ask(page, REQUESTS))[1]).not.toContain(hidden);
      expect((await ask(page, `${REQUESTS}/${hidden}`))[0]).toBe(404);
      expect((await ask(page, `${REQUESTS}/${hidden}/approve`, 'POST'))[0]).toBe(403);
      opened.get(page)?.forget();
    }
    expect(await ask(alice, `${REQUESTS}/${id}/approve`, 'POST')).toEqual([
      403,
      expect.stringContaining('cannot decide about the own request'),
    ]);
    opened.get(alice)?.forget();
    expect(await accessibilityFaults(bob)).toEqual([]);
    await bob.screenshot({ path: shot('people-decide') });
    await alice.screenshot({ path: shot('people-pending') });

    // bob approves with two clicks, because the second click confirms the first
    const row = rowOf(bob, 'To decide', id);
    await row.getByRole('button', { name: 'approve (a)' }).click();
    await row.getByRole('button', { name: 'Confirm: approve' }).click();
    await rowOf(alice, 'Granted now', id)
      .getByText(`approved by ${login('bob')}`)
      .waitFor();
    await alice.screenshot({ path: shot('people-granted') });
    expect((await kubectl('alice', ...LIST)).err).toContain(`request ${id}`);
    const shell = await openShell('alice', [...SRE, ...SHELL]);

    // the first press of `r` asks for confirmation, so bob presses `r` twice
    await rowOf(bob, 'Granted now', id).focus();
    await bob.keyboard.press('r');
    await rowOf(bob, 'Granted now', id).getByText('Confirm: revoke').waitFor();
    await bob.keyboard.press('r');
    await rowOf(alice, 'My requests', id)
      .getByText(`revoked by ${login('bob')}`)
      .waitFor();
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain(`access request ${id} was revoked by ${login('bob')}`);
    expect((await kubectl('alice', ...LIST)).code).toBe(1);
    await alice.screenshot({ path: shot('people-revoked') });

    // carol denies bob's request with the keyboard, and has never seen alice's request
    await rowOf(carol, 'To decide', other).focus();
    await carol.keyboard.press('d');
    await carol.keyboard.press('d');
    await rowOf(bob, 'My requests', other)
      .getByText(`denied by ${login('carol')}`)
      .waitFor();
    expect(await carol.locator('main').textContent()).not.toContain(login('alice'));
    await checkPages(pages);
  });
});

describe('the page of a running session', () => {
  it('lets only the viewer with the right pause, resume and end it', async () => {
    const shell = await openShell('carol');
    const list = await open('carol', '');
    const running = async (): Promise<string | undefined> => {
      const [, body] = await ask(list, 'api/v1/recordings?state=running');
      return (JSON.parse(body) as { recordings: { id: string }[] }).recordings[0]?.id;
    };
    const id = await rig.until('the running session', running);
    const path = `#/r/${encodeURIComponent(id)}`;
    const pages = await Promise.all(PEOPLE.map((name) => open(name, path)));
    const [alice, bob, carol] = pages as [Page, Page, Page];
    shell.type('echo shown-$((40 + 2))\r');
    for (const page of pages) await page.locator('.terminal').getByText('shown-42').waitFor();

    await bob.getByRole('button', { name: 'End session' }).waitFor();
    const orders = `api/v1/recordings/${encodeURIComponent(id)}/orders`;
    for (const page of [alice, carol]) {
      expect((await ask(page, orders))[1]).toContain('"isPossible":true,"mayGive":false');
      expect(await page.getByRole('button', { name: /session$/ }).count()).toBe(0);
      expect(await page.getByLabel('Reason').count()).toBe(0);
      for (const action of ['pause', 'resume', 'end'])
        expect(await ask(page, `${orders}/${action}`, 'POST')).toEqual([
          403,
          expect.stringContaining('ORDER_REFUSED'),
        ]);
      opened.get(page)?.forget();
    }

    shell.type('i=0; while [ $i -lt 900 ]; do i=$((i+1)); echo line-$i-end; sleep 0.1; done\r');
    await shell.expect('line-3-end');
    await bob.getByRole('button', { name: 'Pause session' }).click();
    await bob.getByText('The gateway confirmed: pause.').waitFor();
    const line = Number([...shell.output().matchAll(/line-(\d+)-end/g)].at(-1)?.[1]) + 20;
    // recorder and viewers get the output during the pause, but the terminal of the user does not
    for (const page of pages) await page.locator('.terminal').getByText(`line-${line}-end`).waitFor(LIMIT);
    expect(shell.output()).not.toContain(`line-${line}-end`);
    expect(await accessibilityFaults(bob)).toEqual([]);
    await bob.screenshot({ path: shot('people-paused') });
    await alice.screenshot({ path: shot('people-watching') });
    await bob.getByRole('button', { name: 'Resume session' }).click();
    await shell.expect(`line-${line}-end`);

    await bob.getByLabel('Reason').fill('wrong cluster');
    await bob.getByRole('button', { name: 'End session' }).click();
    expect(await shell.ended).not.toBe(0);
    expect(shell.output()).toContain(`${login('bob')}: wrong cluster`);
    for (const page of pages) await page.getByText('interrupted').first().waitFor(LIMIT);
    expect(await bob.getByRole('button', { name: 'End session' }).count()).toBe(0);
    await bob.screenshot({ path: shot('people-ended') });
    // the access events contain bob's three control actions, and no control action of another viewer
    const [, events] = await ask(bob, 'api/v1/events?type=tailcast-recording-access&limit=100');
    for (const action of ['pause', 'resume', 'end']) expect(events).toContain(`order-${action}`);
    expect(events).not.toMatch(/order-[a-z]+[^}]*(?:alice|carol)@example/);
    // carol may see only her own sessions, so her list does not contain alice's session
    const [, own] = await ask(list, 'api/v1/recordings');
    expect(own).not.toContain(login('alice'));
    await checkPages(pages);
  });
});

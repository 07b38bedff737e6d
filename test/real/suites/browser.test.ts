/** The player in a real browser: pages of the recorder, with recordings of real sessions in a real S3 server. */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Download, Locator, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Rig, createRig } from '../rig/rig.ts';
import { type S3Server, startS3 } from '../rig/s3.ts';
import { type Complaints, collectComplaints, openBrowser } from '../support/browser.ts';
import { type DemoArchive, startDemoArchive } from '../support/demo-archive.ts';
import { createBucket } from '../support/site.ts';

const BUCKET = 'recordings';
const ALICE = { login: 'alice@example.com' };
const BOB = { login: 'bob@example.com' };
const CI = { tags: ['tag:ci'], nodeName: 'runner.example.ts.net' };
/** Pause before the last output of a shell; longer than the idle limit. */
const PAUSE_SECONDS = 4;
const SHELL = { namespace: 'default', pod: 'shell', columns: 80, rows: 24 };

let rig: Rig;
let s3: S3Server;
let demo: DemoArchive;
let browser: Browser;
let page: Page;
let complaints: Complaints;

beforeAll(async () => {
  rig = createRig();
  s3 = await startS3(rig);
  process.env['AWS_ACCESS_KEY_ID'] = s3.accessKeyId;
  process.env['AWS_SECRET_ACCESS_KEY'] = s3.secretAccessKey;
  await createBucket(s3, BUCKET);
  demo = await startDemoArchive({ endpoint: s3.endpoint, region: s3.region, bucket: BUCKET });
  await talk(ALICE, `echo first; sleep ${PAUSE_SECONDS}; echo last; exit 7`);
  await talk(BOB, 'printf "größe \\342\\202\\254 \\033[31mred\\033[0m\\n"; exit 0');
  await talk(CI, 'echo from a machine');
  await demo.archive.whole([SHELL.pod], 3);
  browser = await openBrowser();
});

afterAll(async () => {
  await browser?.close();
  await demo?.close();
  await rig?.stop();
});

beforeEach(async () => {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, locale: 'en-GB' });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: demo.url });
  page = await context.newPage();
  complaints = await collectComplaints(page);
});

afterEach(async () => {
  await page.context().close();
  if (complaints.all.length > 0) throw new Error(`the browser complains: ${complaints.all.join('\n')}`);
});

describe('the list', () => {
  it('shows every recording, newest first', async () => {
    await page.goto(demo.url);
    await rows().nth(2).waitFor();
    const who = await rows().locator('td.who .line:first-child').allTextContents();
    expect(who).toEqual(['tag:ci', 'bob@example.com', 'alice@example.com']);
    expect(await rows().last().textContent()).toContain('exit 7');
  });

  it.each([
    ['user', 'bob@example.com', ['bob@example.com']],
    ['pod', 'shell', ['tag:ci', 'bob@example.com', 'alice@example.com']],
    ['namespace', 'kube-system', []],
    ['text', 'from a machine', ['tag:ci']],
  ])('narrows by %s', async (field, value, expected) => {
    await page.goto(demo.url);
    await rows().nth(2).waitFor();
    await page.locator(`input[name=${field}]`).fill(value);
    await page.keyboard.press('Enter');
    await expect.poll(async () => page.url(), { timeout: 5000 }).toContain(`${field}=`);
    await expect
      .poll(async () => rows().locator('td.who .line:first-child').allTextContents(), { timeout: 5000 })
      .toEqual(expected);
    // After a reload, the URL restores the filters of the list.
    await page.reload();
    await expect
      .poll(async () => rows().locator('td.who .line:first-child').allTextContents(), { timeout: 5000 })
      .toEqual(expected);
    await page.getByText('Clear').click();
    await rows().nth(2).waitFor();
  });
});

describe('the archive', () => {
  it('is in the bucket', async () => {
    const folder = join(s3.folder, BUCKET);
    const casts = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.cast'),
    );
    expect(casts).toHaveLength(3);
  });
});

describe('the player', () => {
  it('plays a session to its end and skips what was idle', async () => {
    await open('alice@example.com');
    const started = performance.now();
    await shows('first');
    await shows('last');
    expect(performance.now() - started).toBeLessThan(PAUSE_SECONDS * 1000);
  });

  it('shows colours and letters of any script as they were', async () => {
    await open('bob@example.com');
    await shows('größe € red');
    const colour = await page.evaluate<string>(
      `getComputedStyle([...document.querySelectorAll('.terminal span')].find((span) => ` +
        '/^red\\s*$/.test(span.textContent))).color',
    );
    const [red = 0, green = 0] = (colour.match(/\d+/g) ?? []).map(Number);
    expect(red).toBeGreaterThan(2 * green);
  });

  it('gives the file away as it is stored', async () => {
    await open('alice@example.com');
    const download = await downloadCast();
    const text = readFileSync(await download.path(), 'utf8');
    const stored = (await demo.archive.of(SHELL.pod)).find(({ source }) => source.user === ALICE.login)!;
    const response = await fetch(`${demo.url}/api/v1/recordings/${stored.id}/cast`);
    expect(text).toBe(await response.text());
    expect(download.suggestedFilename()).toMatch(/\.cast$/);
  });
});

describe('a running session', () => {
  it('appears in the list by itself, is followed as it goes, and can be replayed when it has ended', async () => {
    await page.goto(demo.url);
    await rows().nth(2).waitFor();
    const shell = await demo.shell(ALICE, {
      ...SHELL,
      pod: await demo.podNamed('web', 'nginx'),
      namespace: 'web',
      command: ['sh'],
    });
    await shell.expect('$ ');
    await shell.type('echo before-watching\r');
    await shell.expect('\r\nbefore-watching');
    const row = rows().filter({ hasText: 'running' });
    await row.waitFor({ timeout: 10_000 });
    const connected = page.waitForEvent('websocket');
    await row.locator('a').click();
    expect((await connected).url()).toMatch(/^ws:.*\/live$/);
    await shows('before-watching');
    await shell.type('echo while-watching\r');
    await shows('while-watching');
    shell.resize(100, 30);
    await shell.type('stty size\r');
    await shows('30 100');
    await shell.type('exit 3\r');
    await shell.ended;
    await page.locator('.headline').getByText('exit 3').waitFor({ timeout: 10_000 });
    // A viewer who watched to the end sees the end and can seek back.
    await shows('30 100');
    await page.keyboard.press('Home');
    await page.getByLabel('Speed').selectOption('4');
    await page.getByRole('button', { name: 'Play' }).click();
    await shows('while-watching');
  });
});

describe('the portal of a gateway', () => {
  beforeEach(async () => {
    await page.context().close();
    const context = await browser.newContext({
      viewport: { width: 1200, height: 900 },
      ignoreHTTPSErrors: true,
    });
    page = await context.newPage();
    complaints = await collectComplaints(page);
  });

  it('shows the same page under its own path, also to who comes by a link', async () => {
    const portal = await demo.portal(ALICE);
    // for the browser, the recorder's page and the portal belong to different sites
    await page.goto(demo.url);
    await page.evaluate(`location.href = ${JSON.stringify(portal.slice(0, -1))}`);
    await page.waitForURL((url) => url.href.startsWith(portal));
    await rows().filter({ hasText: BOB.login }).locator('a').click();
    await player().waitFor();
    await shows('größe € red');
    const download = await downloadCast();
    const stored = (await demo.archive.of(SHELL.pod)).find(({ source }) => source.user === BOB.login)!;
    const response = await fetch(`${demo.url}/api/v1/recordings/${stored.id}/cast`);
    expect(readFileSync(await download.path(), 'utf8')).toBe(await response.text());
  });

  it('follows a running session', async () => {
    const shell = await demo.shell(ALICE, { ...SHELL, command: ['sh'] });
    await shell.expect('$ ');
    await page.goto(await demo.portal(ALICE));
    const row = rows().filter({ hasText: 'running' });
    await row.waitFor({ timeout: 10_000 });
    const connected = page.waitForEvent('websocket');
    await row.locator('a').click();
    expect((await connected).url()).toMatch(/^wss:.*\/-\/recordings\/.*\/live$/);
    await shell.type('echo through-the-portal\r');
    await shows('through-the-portal');
    await shell.type('exit 0\r');
    await shell.ended;
  });

  it('answers no other page, and lets its own call nothing beside it', async () => {
    const portal = await demo.portal(ALICE);
    const list = `${portal}api/v1/recordings`;
    // Bob's gateway has another port on the same machine, so for the browser it is the same site but another origin.
    // The page `/version` of Bob's gateway lacks a CSP.
    await page.goto(new URL('/version', await demo.portal(BOB)).href);
    const call = (path: string): Promise<string> =>
      page.evaluate(`fetch(${JSON.stringify(path)}, { mode: 'no-cors' }).then(() => '', String)`);
    expect(await call(list)).toContain('TypeError');
    await page.goto(portal);
    await rows().first().waitFor();
    expect(await call('/api/v1/namespaces')).toContain('TypeError');
    await expect
      .poll(() => complaints.all.some((text) => text.startsWith('CSP: connect-src')), { timeout: 5000 })
      .toBe(true);
    await page.goto('about:blank');
    complaints.forget();
  });
});

async function talk(caller: Parameters<DemoArchive['shell']>[0], script: string): Promise<void> {
  const shell = await demo.shell(caller, { ...SHELL, command: ['sh', '-c', script] });
  await shell.ended;
}

function rows(): Locator {
  return page.locator('tr[data-id]');
}

/** Opens the share menu and downloads the asciicast. */
async function downloadCast(): Promise<Download> {
  await page.locator('.share summary').click();
  const link = page.locator('.share a[download]');
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  return download;
}

function player(): Locator {
  return page.locator('.player');
}

function screen(): Locator {
  return page.locator('.terminal');
}

async function open(who: string): Promise<void> {
  await page.goto(demo.url);
  await rows().filter({ hasText: who }).locator('a').click();
  await player().waitFor();
}

function screenText(): Promise<string> {
  return screen()
    .locator('.row')
    .allTextContents()
    .then((lines) => lines.map((line) => line.trimEnd()).join('\n'));
}

/** Waits for a line with exactly this text. */
async function shows(text: string): Promise<void> {
  await expect.poll(async () => (await screenText()).split('\n'), { timeout: 10_000 }).toContain(text);
}

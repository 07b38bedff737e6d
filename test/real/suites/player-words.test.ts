/** Labels and messages of the page for results, filters, times and errors, in a real browser. */
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import type { CastSpec } from '../support/casts.ts';
import { DESKTOP, LAPTOP, PHONE, ready, setUpPlayer, shot } from '../support/player-page.ts';

const { archive, open, close } = setUpPlayer();
const WIDE = { viewport: { width: 1440, height: 900 }, locale: 'en-GB', isMobile: false };

const MESSAGE = 'exec: "nosuchprogram": executable file not found in $PATH';
const shell = (command: string): CastSpec => ({
  command,
  columns: 80,
  rows: 24,
  events: [[1, 'o', 'x']],
});

/** Stores a sidecar, as a recorder writes it, next to an existing recording. */
function describeStored(id: string, more: object): void {
  const [node = '', time = ''] = id.split('_');
  const path = join(archive().folder, node, time);
  const { size } = statSync(`${path}.cast`);
  const recording = {
    id,
    key: `${node}/${time}`,
    state: 'completed',
    startedAt: time,
    durationSeconds: 1,
    bytes: size,
    width: 80,
    height: 24,
    kind: 'exec',
    command: 'nosuchprogram',
    source: { node: 'laptop.example.ts.net', nodeId: 'nLAP', user: 'alice@example.com' },
    destination: { node: 'gateway.example.ts.net', nodeId: node },
    kubernetes: { namespace: 'prod', pod: 'web-0', container: 'app' },
    ...more,
  };
  const upload = { protocol: 'v2', address: '127.0.0.1', bodyBytes: size, endedAt: time };
  const rest = { gaps: [], gapCount: 0, noteCount: 0 };
  const cast = { bytes: size, resizeOrder: 'columnsFirst' };
  writeFileSync(`${path}.json`, JSON.stringify({ tailcast: 1, recording, cast, upload, ...rest }));
}

/** Returns a function that returns all texts which the status line and the notice of an empty list have shown. */
async function watchStatus(page: Page): Promise<() => Promise<readonly string[]>> {
  await page.addInitScript(`{
    const said = (window.said = []);
    new MutationObserver(() => {
      const text = document.querySelector('p.empty, .list-bar [role=status]')?.textContent ?? '';
      if (text !== said.at(-1)) said.push(text);
    }).observe(document, { subtree: true, childList: true, characterData: true });
  }`);
  return () => page.evaluate<readonly string[]>('window.said');
}

describe('a command that could not be started', () => {
  it('has the result "failed to start", with the reason in its row and above its screen', async () => {
    const id = archive().add(shell('nosuchprogram'));
    describeStored(id, { result: 'failed to start', resultMessage: MESSAGE });
    const page = await open('', LAPTOP);
    const row = page.locator(`tr[data-id="${id}"]`);
    const badge = row.getByText('failed to start', { exact: true });
    await badge.waitFor();
    expect(await badge.getAttribute('title')).toBe(MESSAGE);
    await row.locator('a').click();
    await ready(page);
    await page.locator('.notice.warning').getByText(MESSAGE).waitFor();
    expect(await page.locator('.headline').textContent()).toContain('failed to start');
  });
});

describe('a filter', () => {
  it('finds what lies behind thousands of others, and says that nothing matches only then', async () => {
    archive().add({ ...shell('the needle'), user: 'needle@example.com' });
    for (let count = 0; count < 5200; count += 1) archive().add(shell(`straw ${count}`));
    const page = await open('about:blank', LAPTOP);
    const said = await watchStatus(page);
    await page.goto(`${archive().url}/#/?user=needle%40example.com`);
    await page.getByText('the needle', { exact: true }).waitFor({ timeout: 60_000 });
    await page.getByText('1 recording', { exact: true }).waitFor({ timeout: 60_000 });
    expect(await said()).toContain('1 recording');
    expect(await said()).not.toContain('No recording matches.');
    await page.goto(`${archive().url}/#/?user=nobody%40example.com`);
    await page.reload();
    await page.getByText('No recording matches').waitFor({ timeout: 60_000 });
  });

  it('is what there is without an index, also for a link with a query', async () => {
    const id = archive().add(shell('grep capybara'));
    const page = await open('', LAPTOP);
    await page.locator('[data-notice=no-search]').getByText('--search true').waitFor();
    expect(await page.locator('input[name=q]').count()).toBe(0);
    expect(await close(page)).toEqual([]);
    const linked = await open('#/?q=capybara', LAPTOP);
    await linked.locator(`tr[data-id="${id}"]`).waitFor();
    expect(await linked.locator('input[name=text]').inputValue()).toBe('capybara');
    expect(linked.url()).toContain('text=capybara');
    expect(await linked.locator('tbody tr[data-id]').count()).toBe(1);
    // ignores the message with which the browser itself reports the rejected request
    expect((await close(linked)).filter((text) => !text.includes('503'))).toEqual([]);
  });

  it('can be for what is damaged', async () => {
    const id = archive().add({ ...shell('x'), raw: '' });
    const [node = '', time = ''] = id.split('_');
    writeFileSync(join(archive().folder, node, `${time}.cast`), 'this is no header\n');
    const page = await open('', LAPTOP);
    await page.locator('select[name=state]').selectOption({ label: 'damaged' });
    // `so far` appears while the page has not read all recordings
    await page.getByText(/^1 recording( so far)?$/).waitFor({ timeout: 60_000 });
    expect(await page.locator('tbody tr[data-id]').getAttribute('data-id')).toBe(id);
    expect(page.url()).toContain('state=damaged');
  });
});

describe('times', () => {
  it('have their zone, in the list and over a recording', async () => {
    const id = archive().add(shell('when'));
    const page = await open('', { ...DESKTOP, timezoneId: 'America/New_York' });
    const listed = page.locator(`tr[data-id="${id}"] time`);
    expect(await listed.getAttribute('title')).toMatch(/UTC-5/);
    expect(await page.title()).toBe('Recordings — tailcast');
    await page.locator(`tr[data-id="${id}"] a`).click();
    await ready(page);
    await page.getByText(/UTC-5/).first().waitFor();
    await page.getByRole('slider').waitFor();
    expect(await page.title()).toContain('prod/web-0');
  });
});

describe('a viewer without an identity', () => {
  const { open: openDenied, close: closeDenied } = setUpPlayer({ identifyViewer: async () => undefined });

  it('reads which address was denied, and who can help', async () => {
    const page = await openDenied('', LAPTOP);
    const alert = page.getByRole('alert');
    await alert.getByText('who you are (address 127.0.0.1)').waitFor();
    expect(await alert.innerText()).toContain('Ask the administrator of the recorder');
    expect(await alert.innerText()).toContain(
      'The response does not contain your name. You requested: list of recordings.',
    );
    await page.screenshot({ path: shot('denied') });
    await closeDenied(page);
  });
});

describe('a refused viewer', () => {
  it.each([
    ['light', WIDE],
    ['dark', WIDE],
    ['light', PHONE],
    ['dark', PHONE],
  ] as const)('reads the own name, the request, and who can help: %s, %#', async (colorScheme, size) => {
    const page = await open('about:blank', { ...size, colorScheme });
    const viewer = '<img src=x onerror=alert(1)>@example.com';
    const message = 'you may not see recordings of this recorder';
    await page.route('**/api/v1/recordings/n1*', (route) =>
      route.fulfill({ status: 403, json: { code: 'VIEW_REFUSED', message, viewer } }),
    );
    await page.goto(`${archive().url}/#/r/n1_%3Cb%3E`);
    const alert = page.getByRole('alert');
    await alert.getByText(`You are ${viewer}. You requested: recording n1_<b>.`).waitFor();
    expect(await alert.innerText()).toContain('Ask the administrator of the recorder');
    expect(await alert.locator('img').count()).toBe(0);
    await page.screenshot({
      path: shot(`refused-${size.isMobile === true ? 'phone' : 'wide'}-${colorScheme}`),
    });
    await close(page);
  });
});

describe('a viewer without a rule', () => {
  const { archive: ruled, open: openRuled } = setUpPlayer({ viewers: [parseViewRule('root@example.com')] });

  it.each([
    ['light', WIDE],
    ['dark', WIDE],
    ['light', PHONE],
    ['dark', PHONE],
  ] as const)('reads that no rule matches, and who can help: %s, %#', async (colorScheme, size) => {
    ruled().add(shell('hidden'));
    const page = await openRuled('', { ...size, colorScheme });
    for (const path of ['#/', '#/?text=hidden', '#/live']) {
      await page.goto(`${ruled().url}/${path}`);
      await page.getByRole('heading', { name: 'No rule lets you see recordings' }).waitFor();
      await page.getByText('You are carol@example.com.').waitFor();
      await page.getByText('Ask the administrator of the recorder').waitFor();
      expect(
        await page.getByText(/No recordings yet|No recording matches|No session is running/).count(),
      ).toBe(0);
    }
    await page.goto(`${ruled().url}/#/`);
    await page.getByRole('heading', { name: 'No rule lets you see recordings' }).waitFor();
    await page.screenshot({
      path: shot(`no-rule-${size.isMobile === true ? 'phone' : 'wide'}-${colorScheme}`),
    });
  });
});

describe('a recording that is gone', () => {
  it('is named so, with a way to the others', async () => {
    archive().add(shell('present'));
    const page = await open('#/r/nGONE', LAPTOP);
    await page.getByRole('alert').getByText('Recording not found').waitFor();
    await page.getByRole('link', { name: 'Show all recordings' }).click();
    await page.locator('tr[data-id]').first().waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
    await close(page);
  });
});

describe('a recorder that is gone', () => {
  it('is said to be, in a sentence', async () => {
    const page = await open('about:blank', LAPTOP);
    await page.route('**/api/v1/recordings?*', (route) => route.abort());
    await page.goto(archive().url);
    await page.getByRole('alert').getByText('The recorder cannot be reached.').waitFor();
    expect(await page.getByText('Failed to fetch').count()).toBe(0);
    await close(page);
  });
});

describe('colours', () => {
  it.each(['light', 'dark'] as const)('are told apart: %s', async (colorScheme) => {
    const page = await open('', { ...LAPTOP, colorScheme });
    const colour = async (name: string): Promise<string> =>
      page.evaluate<string>(
        `getComputedStyle(document.documentElement).getPropertyValue('--${name}').trim()`,
      );
    for (const paper of ['background', 'surface']) {
      for (const ink of ['ink', 'soft', 'accent', 'danger', 'running', 'warn'])
        expect(contrast(await colour(ink), await colour(paper)), `${ink} on ${paper}`).toBeGreaterThanOrEqual(
          4.5,
        );
      expect(contrast(await colour('edge'), await colour(paper)), `edge on ${paper}`).toBeGreaterThanOrEqual(
        3,
      );
    }
    // the colours that the browser paints match the design tokens
    const border = await page.evaluate<string>(
      `getComputedStyle(document.querySelector('input[name=text]')).borderTopColor`,
    );
    expect(rgb(border)).toEqual(rgb(await colour('edge')));
  });
});

/** Returns the contrast of two colours (WCAG 2.2). */
function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].toSorted((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = rgb(colour).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function rgb(colour: string): readonly number[] {
  const [, short] = /^#([0-9a-f]{3})$/i.exec(colour) ?? [];
  const [, long] = /^#([0-9a-f]{6})$/i.exec(colour) ?? [];
  if (short !== undefined) return Array.from(short, (digit) => Number.parseInt(digit + digit, 16));
  if (long !== undefined) return [0, 2, 4].map((at) => Number.parseInt(long.slice(at, at + 2), 16));
  return (colour.match(/\d+/g) ?? []).slice(0, 3).map(Number);
}

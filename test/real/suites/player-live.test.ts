/** Running sessions in a real browser: several side by side, one with its history, and the ends of sessions. */
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { UPLOADER, type Upload } from '../../tsrecorder/recorder-rig.ts';
import { accessibilityFaults } from '../support/axe.ts';
import { beginSession, endSession, LAPTOP, PHONE, ready, setUpPlayer, shot } from '../support/player-page.ts';

const { archive, open, close } = setUpPlayer({ identify: async () => UPLOADER });

/** Starts a session in the pod with this name. */
async function begin(pod: string): Promise<Upload> {
  const upload = beginSession(archive().url, pod);
  await expect
    .poll(
      async () => {
        const response = await fetch(`${archive().url}/api/v1/recordings?state=running&pod=${pod}`);
        return ((await response.json()) as { recordings: unknown[] }).recordings.length;
      },
      { timeout: 10_000 },
    )
    .toBe(1);
  return upload;
}

/** Waits until `bytes` of the running session in a pod are durable. @returns the id of the session */
async function idOf(pod: string, bytes: number): Promise<string> {
  let found: { readonly id: string; readonly bytes: number } | undefined;
  await expect
    .poll(
      async () => {
        const response = await fetch(`${archive().url}/api/v1/recordings?state=running&pod=${pod}`);
        [found] = ((await response.json()) as { recordings: { id: string; bytes: number }[] }).recordings;
        return found?.bytes ?? 0;
      },
      { timeout: 60_000 },
    )
    .toBeGreaterThan(bytes);
  return found!.id;
}

/** Checks the keyboard help, and turns on the announcements for screen readers. */
async function expectHelpAndAnnouncements(page: Page): Promise<void> {
  await page.keyboard.press('?');
  await page.getByRole('dialog').getByText('Full screen').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.locator('.display-options summary').click();
  await page.getByLabel('Read new output aloud').check();
  await page.locator('.controls [aria-live]').getByText('this is sized').waitFor({ state: 'attached' });
  await page.locator('.display-options summary').click();
}

describe('the wall', () => {
  it('shows each session as it is now, marks those that end, and takes in those that begin', async () => {
    const [one, two] = [await begin('wall-1'), await begin('wall-2')];
    const page = await open('#/', { ...LAPTOP, reducedMotion: 'reduce' });
    await page.getByRole('link', { name: 'Live' }).click();
    const tile = (pod: string): ReturnType<typeof page.locator> => page.locator('.tile', { hasText: pod });
    await tile('wall-1').locator('.terminal').getByText('this is wall-1').waitFor();
    await tile('wall-2').locator('.terminal').getByText('this is wall-2').waitFor();
    await page.getByText('2 running', { exact: true }).waitFor();
    one.write('[1,"o","and more"]\n');
    await tile('wall-1').locator('.terminal').getByText('and more').waitFor();
    await endSession(one);
    await page.getByText('1 running, 1 over').waitFor({ timeout: 15_000 });
    await tile('wall-1').locator('.badge', { hasText: 'over' }).waitFor();
    await tile('wall-1').getByText('The session is over.').waitFor();
    await tile('wall-1').locator('.terminal').getByText('and more').waitFor();
    const three = await begin('wall-3');
    await tile('wall-3').locator('.terminal').getByText('this is wall-3').waitFor({ timeout: 15_000 });
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('wall'), fullPage: true });
    const phone = await open('#/live', { ...PHONE, reducedMotion: 'reduce' });
    await phone.locator('.tile').first().waitFor();
    expect(await phone.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await phone.screenshot({ path: shot('wall-phone'), fullPage: true });
    await phone.context().close();
    // the keyboard opens the session of a tile
    await page.getByRole('link', { name: 'wall-2' }).press('Enter');
    await page.locator('.terminal').getByText('this is wall-2').waitFor();
    await endSession(two);
    await endSession(three);
    await page.goto(`${archive().url}/#/live`);
    await page.getByText('No session is running.').waitFor({ timeout: 15_000 });
  });
});

describe('a session that runs', () => {
  it('can be looked back in while it goes on, and is live again', async () => {
    const upload = await begin('shift-1');
    for (let at = 1; at < 100; at += 1) upload.write(`[${at},"o","second ${at}\\r\\n"]\n`);
    const page = await open('#/live', { ...LAPTOP, reducedMotion: 'reduce' });
    await page.locator('.tile .terminal').getByText('second 99').waitFor();
    await page.getByRole('link', { name: 'shift-1' }).click();
    // the wall stays until the session has loaded, and its tile has a terminal, too
    const screen = page.locator('.stage:not(.tile *) .terminal');
    await screen.getByText('second 99').waitFor();
    await page.getByRole('button', { name: 'Look back' }).click();
    await ready(page);
    await page.getByRole('button', { name: 'To live' }).waitFor();
    // playback has gone back by half a minute, not more
    const shown = async (): Promise<number> =>
      Number(
        (await screen.textContent())
          ?.match(/second (\d+)/g)
          ?.at(-1)
          ?.slice(7),
      );
    await expect.poll(shown, { timeout: 5000 }).toBeGreaterThanOrEqual(65);
    expect(await shown()).toBeLessThan(80);
    await page.locator('.position input').fill('10.5');
    await page.keyboard.press('Enter');
    await expect.poll(shown, { timeout: 5000 }).toBe(10);
    await page.screenshot({ path: shot('look-back'), fullPage: true });
    // output that arrives during playback appears when playback reaches its time
    upload.write('[101,"o","came later\\r\\n"]\n');
    await page.locator('.position input').fill('96.5');
    await page.keyboard.press('Enter');
    await page.keyboard.press(' ');
    await screen.getByText('came later').waitFor({ timeout: 20_000 });
    // playback skips idle time, so it catches up with the live session
    await page.getByText('Following the session.').waitFor({ timeout: 20_000 });
    upload.write('[102,"o","and live again"]\n');
    await screen.getByText('and live again').waitFor();
    expect(await close(page)).toEqual([]);
    await endSession(upload);
  });

  it.each([
    ['wide', 'light'],
    ['wide', 'dark'],
    ['phone', 'light'],
    ['phone', 'dark'],
  ] as const)('has the sizes of the text and full screen: %s, %s', async (size, colorScheme) => {
    const upload = await begin(`sized-${size}-${colorScheme}`);
    const shape = size === 'phone' ? PHONE : { ...LAPTOP, viewport: { width: 1440, height: 900 } };
    const page = await open(`#/live?text=sized-${size}-${colorScheme}`, { ...shape, colorScheme });
    await page.getByRole('link', { name: `sized-${size}` }).click();
    await page.locator('.stage:not(.tile *) .terminal').getByText('this is sized').waitFor();
    const font = (): Promise<number> =>
      page.evaluate<number>(
        `parseFloat(document.querySelector('.terminal').style.getPropertyValue('--font'))`,
      );
    const before = await font();
    if (size === 'phone') await page.locator('.display-options summary').click();
    await page.getByRole('button', { name: 'Larger text' }).first().click();
    await expect.poll(font).toBeGreaterThan(before);
    // on a phone, the panel may cover the button that opened it
    if (size === 'phone') await page.getByRole('heading', { level: 1 }).click();
    else {
      await page.keyboard.press('-');
      await expect.poll(font).toBe(before);
      await page.keyboard.press('-');
      await expect.poll(font).toBeLessThan(before);
      await expectHelpAndAnnouncements(page);
    }
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot(`live-${size}-${colorScheme}`) });
    await page.getByRole('button', { name: 'Full screen' }).click();
    await page.getByRole('button', { name: 'Leave full screen' }).waitFor();
    expect(await page.evaluate<boolean>(`document.fullscreenElement.matches('.player')`)).toBe(true);
    await page.locator('.player:fullscreen').getByRole('button', { name: 'Look back' }).waitFor();
    await page.screenshot({ path: shot(`live-full-${size}-${colorScheme}`) });
    await page.getByRole('button', { name: 'Leave full screen' }).click();
    await page.getByRole('button', { name: 'Full screen' }).waitFor();
    expect(await close(page)).toEqual([]);
    await endSession(upload);
  });

  it('that is long is looked back in from keyframes', async () => {
    const upload = await begin('shift-long');
    const text = 'served '.repeat(1400);
    for (let at = 1; at < 1000; at += 1)
      upload.write(`[${at},"o","second ${at}\\r\\n"]\n[${at},"i","${text}"]\n`);
    const id = await idOf('shift-long', 9_000_000);
    const index = `${archive().url}/api/v1/recordings/${id}/playback?view=1`;
    await expect.poll(async () => (await fetch(index)).status, { timeout: 120_000, interval: 500 }).toBe(200);
    const page = await open('#/live', { ...LAPTOP, reducedMotion: 'reduce' });
    await page.getByRole('link', { name: 'shift-long' }).click();
    const screen = page.locator('.terminal');
    await screen.getByText('second 999').waitFor({ timeout: 60_000 });
    let asked = 0;
    page.on('request', (request) => {
      const [, from = 0, to = 0] = /bytes=(\d+)-(\d+)/.exec(request.headers()['range'] ?? '') ?? [];
      asked += Number(to) - Number(from);
    });
    const known = page.waitForResponse(
      (response) => response.url().includes('/playback') && response.status() === 200,
    );
    await page.getByRole('button', { name: 'Look back' }).click();
    await ready(page);
    await known;
    asked = 0;
    for (const at of [600, 100]) {
      await page.locator('.position input').fill(`${at}.5`);
      await page.keyboard.press('Enter');
      await screen.getByText(`second ${at}`, { exact: true }).waitFor();
      await expect.poll(() => screen.getByText(`second ${at + 1}`, { exact: true }).count()).toBe(0);
    }
    // the page has read less than half of the recording, which has about ten million bytes
    expect(asked).toBeLessThan(4_000_000);
    expect(await close(page)).toEqual([]);
    await endSession(upload);
  });

  it('that ends while it is looked back in stays where it is', async () => {
    const upload = await begin('shift-2');
    for (let at = 1; at < 60; at += 1) upload.write(`[${at},"o","second ${at}\\r\\n"]\n`);
    const page = await open('#/live', { ...LAPTOP, reducedMotion: 'reduce' });
    await page.locator('.tile .terminal').getByText('second 59').waitFor();
    await page.getByRole('link', { name: 'shift-2' }).click();
    await page.locator('.stage:not(.tile *) .terminal').getByText('second 59').waitFor();
    await page.getByRole('button', { name: 'Look back' }).click();
    await page.getByRole('button', { name: 'To live' }).waitFor();
    // playback exists when it shows its position
    await expect.poll(() => page.locator('.position input').inputValue()).toMatch(/^0:(29|3\d)/);
    await page.locator('.position input').fill('20.5');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.position input').inputValue()).toBe('0:20.5');
    await endSession(upload);
    await page.locator('.strip').waitFor({ timeout: 15_000 });
    await expect.poll(() => page.locator('.position input').inputValue()).toBe('0:20.5');
    await page.locator('.terminal').getByText('second 20').waitFor();
    expect(await page.getByRole('button', { name: 'To live' }).count()).toBe(0);
  });
});

/** The player page with an archive of casts in a real browser, for suites about playback. */
import { mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { HEADER, openUpload, type Upload } from '../../tsrecorder/recorder-rig.ts';
import { type Complaints, collectComplaints, openBrowser } from './browser.ts';
import { type CastArchive, type CastSpec, startCastArchive } from './casts.ts';
import { differences, expectedScreen, oracleAt, readShown } from './screen-cells.ts';

export const DESKTOP: BrowserContextOptions = { viewport: { width: 1600, height: 1000 }, locale: 'en-GB' };
export const LAPTOP: BrowserContextOptions = { viewport: { width: 1366, height: 768 }, locale: 'en-GB' };
export const PHONE: BrowserContextOptions = {
  viewport: { width: 390, height: 844 },
  locale: 'en-GB',
  hasTouch: true,
  isMobile: true,
};
const STILL: BrowserContextOptions = { ...DESKTOP, reducedMotion: 'reduce' };

export interface PlayerRig {
  readonly archive: () => CastArchive;
  /** @param path path below the recorder, or a complete address */
  readonly open: (path: string, options?: BrowserContextOptions) => Promise<Page>;
  /**
   * Closes the page during a test. At the end of a test, all other pages are closed, and a problem fails the test.
   *
   * @returns the problems that the browser reported about this page
   */
  readonly close: (page: Page) => Promise<readonly string[]>;
}

/** Starts the browser and the archive before the tests of a file, and stops them after these tests. */
export function setUpPlayer(...given: Parameters<typeof startCastArchive>): PlayerRig {
  let browser: Browser;
  let archive: CastArchive;
  const opened = new Map<Page, Complaints>();
  beforeAll(async () => {
    archive = await startCastArchive(...given);
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await archive?.[Symbol.asyncDispose]();
  });
  async function close(page: Page): Promise<readonly string[]> {
    await page.context().close();
    const complaints = opened.get(page)?.all ?? [];
    opened.delete(page);
    return complaints;
  }
  afterEach(async () => {
    const complaints = await Promise.all(Array.from(opened.keys(), close));
    expect(complaints.flat()).toEqual([]);
  });
  return {
    archive: () => archive,
    async open(path, options = STILL) {
      const context = await browser.newContext(options);
      const page = await context.newPage();
      opened.set(page, await collectComplaints(page));
      await page.goto(/^[a-z]+:/.test(path) ? path : `${archive.url}/${path}`);
      return page;
    },
    close,
  };
}

/** Waits until the page shows the same screen as the oracle. */
export async function expectScreenAt(page: Page, spec: CastSpec, seconds: number): Promise<void> {
  const wanted = await expectedScreen(page, await oracleAt(spec, seconds));
  await expect
    .poll(async () => differences(await readShown(page), wanted), { timeout: 8000, interval: 50 })
    .toEqual([]);
}

export async function goTo(page: Page, seconds: number): Promise<void> {
  await page.locator('.position input').fill(String(seconds));
  await page.keyboard.press('Enter');
}

export async function ready(page: Page): Promise<void> {
  await page.locator('.terminal[data-size]').waitFor();
}

/** Returns the path for a screenshot, which people review by hand. */
export function shot(name: string): string {
  const folder = join(tmpdir(), 'tailcast-player');
  mkdirSync(folder, { recursive: true });
  return join(folder, `${name}.png`);
}

export function lengthOf({ events }: CastSpec): number {
  return events.at(-1)?.[0] ?? 0;
}

/** Starts a session in a pod with one line of output. */
export function beginSession(url: string, pod: string, text = pod): Upload {
  const upload = openUpload({ url });
  upload.write(HEADER.replace('web-0', pod));
  upload.write(`[0.1,"o","this is ${text}\\r\\n"]\n`);
  return upload;
}

/** Completes a session, and waits until the recorder has responded. */
export async function endSession(upload: Upload): Promise<void> {
  upload.write(`${JSON.stringify({ kind: 'end', outcome: 'completed', outputBytes: 1, outputLines: 1 })}\n`);
  upload.end();
  await upload.over;
  upload.close();
}

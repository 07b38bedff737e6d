/**
 * Twelve jobs of an auditor in a real browser, each in at most three steps. A step is a click, a key press, or a typed
 * text. The table of steps is printed at the end.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Download, Locator, Page } from 'playwright-core';
import { afterAll, describe, expect, it } from 'vitest';
import { UPLOADER } from '../../tsrecorder/recorder-rig.ts';
import type { CastSpec } from '../support/casts.ts';
import { beginSession, endSession, LAPTOP, ready, setUpPlayer } from '../support/player-page.ts';

const STILL = { ...LAPTOP, reducedMotion: 'reduce' } as const;
const MAX_STEPS = 3;
/** Returns a command with the escape sequences with which a shell marks prompt, command and output (OSC 133). */
const typed = (command: string): string => `\x1b]133;A\x07$ \x1b]133;B\x07${command}\r\n\x1b]133;C\x07`;
const CLEANUP: CastSpec = {
  command: 'bash',
  columns: 80,
  rows: 24,
  user: 'mallory@example.com',
  events: [
    [1, 'o', typed('ls')],
    [5, 'o', `data\r\n\x1b]133;D;0\x07${typed('rm -rf /srv/data')}`],
    [9, 'o', `\x1b]133;D;0\x07${typed('export PASSWORD=hunter2hunter2')}`],
    [20, 'o', '\x1b]133;D;0\x07$ exit\r\n'],
  ],
};
const LONG: CastSpec = {
  ...CLEANUP,
  command: 'long job',
  user: 'dave@example.com',
  events: [[7200, 'o', 'end']],
};
const OTHER: CastSpec = {
  ...CLEANUP,
  command: 'sh',
  user: 'erin@example.com',
  events: [[30, 'o', 'the same word']],
};

const folder = mkdtempSync(join(tmpdir(), 'tcjobs-'));
const { archive, open, close } = setUpPlayer(
  {
    searchText: 'all',
    spoolDirectory: join(folder, 'spool'),
    evidenceKey: join(folder, 'key.pem'),
    identify: async () => UPLOADER,
  },
  [CLEANUP, LONG, OTHER],
);
const table: string[] = [];
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
  console.log(table.join('\n'));
});

/** Simulates a person at the page, and counts the steps. */
class Auditor {
  readonly page: Page;
  steps = 0;

  constructor(page: Page) {
    this.page = page;
  }

  async click(target: Locator): Promise<void> {
    this.steps += 1;
    await target.click();
  }

  async type(field: Locator, text: string): Promise<void> {
    this.steps += 1;
    await field.fill(text);
    await field.press('Enter');
  }

  async press(key: string): Promise<void> {
    this.steps += 1;
    await this.page.keyboard.press(key);
  }

  async download(target: Locator): Promise<Download> {
    const saving = this.page.waitForEvent('download');
    await this.click(target);
    return saving;
  }
}

/** Does a job from a page of the recorder, in at most three steps. */
async function expectFewSteps(from: string, work: (auditor: Auditor) => Promise<void>): Promise<void> {
  const page = await open(from, STILL);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: archive().url });
  if (from.startsWith('#/r/')) await ready(page);
  else await page.locator('tbody tr[data-id]').nth(2).waitFor();
  const auditor = new Auditor(page);
  await work(auditor);
  table.push(`${auditor.steps}  ${expect.getState().currentTestName}`);
  // the test copied the recordings into the store without sidecars and notes
  const missing = /^404 .*\/(?:sidecar|notes)$|status of 404/;
  expect((await close(page)).filter((complaint) => !missing.test(complaint))).toEqual([]);
  expect(auditor.steps).toBeLessThanOrEqual(MAX_STEPS);
}

const recording = (at: number): string => `#/r/${encodeURIComponent(archive().ids[at] ?? '')}`;
const search = (page: Page): Locator => page.locator('input[name=q]');
const copied = (page: Page): Promise<string> => page.evaluate<string>('navigator.clipboard.readText()');

describe('an auditor', () => {
  it('finds who ran a command since a day', () =>
    expectFewSteps('#/', async (auditor) => {
      await auditor.type(search(auditor.page), 'cmd:rm after:2026-01-01');
      await auditor.page.locator('tbody tr[data-id]', { hasText: 'mallory@example.com' }).waitFor();
      await expect.poll(() => auditor.page.locator('tbody tr[data-id]').count()).toBe(1);
    }));

  it('opens the moment of a command', () =>
    expectFewSteps('#/', async (auditor) => {
      await auditor.type(search(auditor.page), 'cmd:rm');
      await auditor.click(auditor.page.locator('tr.hits a').first());
      await ready(auditor.page);
      await expect.poll(() => auditor.page.locator('.position input').inputValue()).toBe('0:03.0');
    }));

  it('shares a moment', () =>
    expectFewSteps(`${recording(0)}?t=5`, async (auditor) => {
      await auditor.click(auditor.page.locator('.share summary'));
      await auditor.click(auditor.page.getByText('Link to this moment'));
      await expect.poll(() => copied(auditor.page)).toContain('?t=5');
    }));

  it('copies text', () =>
    expectFewSteps(`${recording(0)}?t=6`, async (auditor) => {
      const row = auditor.page.locator('.terminal').getByText('rm -rf /srv/data');
      auditor.steps += 1;
      await row.click({ clickCount: 3 });
      await auditor.press('Control+c');
      expect(await copied(auditor.page)).toContain('rm -rf /srv/data');
    }));

  it('finds a word in a recording', () =>
    expectFewSteps(recording(0), async (auditor) => {
      await auditor.press('Control+f');
      await auditor.type(auditor.page.getByLabel('Find in this recording'), 'srv');
      await auditor.page.locator('.terminal').getByText('rm -rf /srv/data').waitFor();
    }));

  it('follows three running sessions', () =>
    expectFewSteps('#/', async (auditor) => {
      const names = ['one', 'two', 'three'];
      const uploads = names.map((name) => beginSession(archive().url, name));
      await auditor.click(auditor.page.getByRole('link', { name: 'Live' }));
      for (const name of names)
        await auditor.page.locator('.tile .terminal').getByText(`this is ${name}`).waitFor();
      for (const upload of uploads) await endSession(upload);
    }));

  it('compares two recordings', () =>
    expectFewSteps('#/', async (auditor) => {
      for (const name of ['long job', 'sh'])
        await auditor.click(auditor.page.getByRole('checkbox', { name: `Select ${name} of` }));
      await auditor.click(auditor.page.getByRole('link', { name: 'Compare' }));
      await auditor.page.locator('.compare .terminal[data-size] >> nth=1').waitFor();
    }));

  it('exports a bundle that opens without a network', () =>
    expectFewSteps(recording(0), async (auditor) => {
      await auditor.click(auditor.page.locator('.share summary'));
      const file = join(folder, 'bundle.html');
      const saved = await auditor.download(auditor.page.getByRole('button', { name: 'Export bundle' }));
      await saved.saveAs(file);
      const offline = await open('about:blank', { ...STILL, offline: true });
      auditor.steps += 1;
      await offline.goto(pathToFileURL(file).href);
      await ready(offline);
      expect(await close(offline)).toEqual([]);
    }));

  it('saves a clip', () =>
    expectFewSteps(recording(0), async (auditor) => {
      await auditor.click(auditor.page.locator('.share summary'));
      const saved = await auditor.download(
        auditor.page.getByRole('button', { name: 'Save as animated SVG' }),
      );
      expect(readFileSync(await saved.path(), 'utf8')).toMatch(/^<svg/);
    }));

  it('verifies a recording', async () => {
    await endSession(beginSession(archive().url, 'signed'));
    await expectFewSteps('#/', async (auditor) => {
      await auditor.click(
        auditor.page.locator('tbody tr[data-id]', { hasText: 'signed' }).locator('a').first(),
      );
      await auditor.page.locator('[data-verdict=verified]').first().waitFor();
      const colours = await auditor.page.evaluate<readonly string[]>(
        `['.verdict .icon', '.headline .trust-verified'].map((of) => getComputedStyle(document.querySelector(of)).color)`,
      );
      expect(colours[0]).toBe(colours[1]);
      const signer = await auditor.page.locator('.evidence .facts').first().textContent();
      expect(signer).toContain('(key of this recorder)');
    });
  });

  it('finds the longest session', () =>
    expectFewSteps('#/', async (auditor) => {
      await auditor.click(auditor.page.getByRole('button', { name: 'Length' }));
      await auditor.page.locator('tbody tr[data-id]').first().getByText('long job').waitFor();
    }));

  it('finds a leaked secret', () =>
    expectFewSteps('#/', async (auditor) => {
      await auditor.type(search(auditor.page), 'password secret');
      await auditor.click(auditor.page.locator('tr.hits a').first());
      await ready(auditor.page);
      await auditor.press('n');
      await auditor.page.locator('.terminal').getByText('PASSWORD=hunter2hunter2').waitFor();
    }));
});

/** Small previews of a recording: over the time line and over the rows of the list. */
import { describe, expect, it } from 'vitest';
import { accessibilityFaults } from '../support/axe.ts';
import type { CastSpec } from '../support/casts.ts';
import { LAPTOP, lengthOf, PHONE, ready, setUpPlayer, shot } from '../support/player-page.ts';
import { differences, expectedScreen, oracleAt, readShown } from '../support/screen-cells.ts';

const { archive, open } = setUpPlayer();

const SPEC: CastSpec = {
  command: 'previewed',
  columns: 80,
  rows: 24,
  user: 'preview@example.com',
  events: [
    [1, 'o', '\x1b[32mgreen\x1b[0m and \x1b[1mbold\x1b[0m, wide 世界\r\n'],
    [4, 'r', '100x30'],
    [5, 'o', `\x1b[2J\x1b[H${'second screen '.repeat(9)}\x1b[30;90Hcorner`],
    [8, 'o', '\x1b[2J\x1b[H'],
    [10, 'o', '$ '],
  ],
};

/**
 * Returns the differences between a preview and the oracle. The pixel positions of cells are ignored, because the text
 * of a preview is too small to measure them.
 */
async function wrongIn(
  page: Awaited<ReturnType<typeof open>>,
  selector: string,
  seconds: number,
): Promise<readonly string[]> {
  const shown = await readShown(page, selector);
  const wanted = await expectedScreen(page, await oracleAt(SPEC, seconds));
  return differences(shown === undefined ? undefined : { ...shown, misplaced: [] }, wanted);
}

describe('over the time line', () => {
  it('stands the screen of the moment that is pointed at, and the screen itself stays', async () => {
    const id = archive().add(SPEC);
    const page = await open(`#/r/${encodeURIComponent(id)}`, { ...LAPTOP, reducedMotion: 'reduce' });
    await ready(page);
    await page.locator('.strip').waitFor();
    const position = await page.locator('.position input').inputValue();
    const box = (await page.locator('.track').boundingBox())!;
    for (const seconds of [2, 6, 9, 4.5]) {
      await page.mouse.move(box.x + (seconds / lengthOf(SPEC)) * box.width, box.y + box.height / 2);
      await expect
        .poll(() => wrongIn(page, '.hover .preview', seconds), { timeout: 8000, interval: 50 })
        .toEqual([]);
    }
    await page.screenshot({ path: shot('preview') });
    expect(await page.locator('.position input').inputValue()).toBe(position);
    expect(await accessibilityFaults(page)).toEqual([]);
    for (const share of [0, 1]) {
      await page.mouse.move(box.x + share * (box.width - 1), box.y + box.height / 2);
      const bubble = (await page.locator('.hover').boundingBox())!;
      expect(bubble.x).toBeGreaterThanOrEqual(0);
      expect(bubble.x + bubble.width).toBeLessThanOrEqual(1366);
    }
    await page.mouse.move(5, 5);
    await expect.poll(() => page.locator('.preview').count()).toBe(0);
  });
});

describe('over a row of the list', () => {
  it('stands the middle of the recording for whoever stays there, and that is a viewing', async () => {
    const id = archive().add(SPEC);
    const viewings = async (): Promise<number> =>
      (await archive().accesses()).filter(({ recording }) => recording === id).length;
    const page = await open('#/?user=preview@example.com', { ...LAPTOP, reducedMotion: 'reduce' });
    const row = page.locator(`tr[data-id="${id}"]`);
    await row.waitFor();
    expect(await viewings()).toBe(0);
    await row.hover();
    const preview = page.locator('.row-preview .preview');
    const shown = (): Promise<string> =>
      page.evaluate<string>(`document.querySelector('.row-preview .preview')?.textContent ?? ''`);
    await expect.poll(shown, { timeout: 60_000 }).toContain('second screen');
    await page.screenshot({ path: shot('preview in the list') });
    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await viewings()).toBe(1);
    await page.keyboard.press('Escape');
    await expect.poll(() => preview.count()).toBe(0);
    // the preview also opens when the row gets the keyboard focus, and closes when the row loses the focus
    await page.mouse.move(5, 5);
    await row.locator('a').focus();
    await expect.poll(shown, { timeout: 60_000 }).toContain('second screen');
    await row.locator('a').blur();
    await expect.poll(() => preview.count()).toBe(0);
    expect(await viewings()).toBe(1);
  });

  it('is nothing in the way of a phone', async () => {
    archive().add(SPEC);
    const page = await open('#/?user=preview@example.com', { ...PHONE, reducedMotion: 'reduce' });
    await page.locator('tr[data-id] a').first().tap();
    await ready(page);
    expect(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });
});

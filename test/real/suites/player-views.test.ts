/** Views of several recordings in a real browser: comparison, command palette, and the controls of the wall. */
import { describe, expect, it } from 'vitest';
import { UPLOADER } from '../../tsrecorder/recorder-rig.ts';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import { accessibilityFaults } from '../support/axe.ts';
import type { CastSpec } from '../support/casts.ts';
import { beginSession, endSession, LAPTOP, PHONE, ready, setUpPlayer, shot } from '../support/player-page.ts';

const { archive, open, close } = setUpPlayer({ identify: async () => UPLOADER });
const STILL = { ...LAPTOP, reducedMotion: 'reduce' } as const;

function numbers(name: string, seconds: number): CastSpec {
  const events = Array.from(
    { length: seconds },
    (_, at) => [at + 1, 'o', `\x1b[2J\x1b[H${name} ${at + 1}.`] as const,
  );
  return { command: name, columns: 80, rows: 24, events };
}

describe('searches on the recorder', () => {
  const recorder = setUpPlayer({
    searchText: 'all',
    viewers: ['carol@example.com', 'carol@example.com=review'].map(parseViewRule),
  });

  it('are saved for one viewer or for all, appear in other browsers, and are removed', async () => {
    const page = await recorder.open('#/?q=user:alice', STILL);
    const menu = page.locator('.saved summary');
    await menu.click();
    const place = page.getByLabel('Place of the saved search');
    for (const [title, name] of [
      ['My searches', 'mine'],
      ['Shared', 'ours'],
    ] as const) {
      await place.selectOption(title);
      await page.getByLabel('Name for this search').fill(name);
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.locator('.saved section', { hasText: title }).getByRole('link', { name }).waitFor();
    }
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('saved') });
    expect(await recorder.close(page)).toEqual([]);
    const other = await recorder.open('#/', STILL);
    await other.locator('.saved summary').waitFor();
    // the command palette lists saved searches, too
    await other.keyboard.press('Control+k');
    await other.getByRole('combobox', { name: 'Find a command' }).fill('saved search');
    await other.getByRole('option', { name: 'Saved search: ours' }).waitFor();
    await other.getByRole('option', { name: 'Saved search: mine' }).click();
    await other.waitForURL(/q=user%3Aalice$/);
    await other.goto(`${recorder.archive().url}/#/`);
    await other.locator('.saved summary').click();
    await other.getByRole('button', { name: 'Forget mine' }).click();
    await other.getByRole('link', { name: 'mine' }).waitFor({ state: 'detached' });
    await other.getByRole('link', { name: 'ours' }).click();
    await other.waitForURL(/q=user%3Aalice$/);
  });
});

describe('notes on a recording', () => {
  const recorder = setUpPlayer({
    searchText: 'all',
    viewers: ['carol@example.com', 'carol@example.com=review'].map(parseViewRule),
  });

  it('are written at a moment, and are visible in the list and found by search', async () => {
    const id = recorder.archive().add(numbers('noted', 20));
    recorder.archive().add(numbers('other', 20));
    const page = await recorder.open(`#/r/${encodeURIComponent(id)}?t=7`, STILL);
    await ready(page);
    await page.getByRole('tab', { name: 'Notes' }).click();
    await page.getByRole('button', { name: 'Mark as reviewed' }).click();
    await page.getByText('Reviewed by carol@example.com').waitFor();
    await page.getByLabel('Add a tag').fill('incident');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Remove tag incident' }).waitFor();
    await page.locator('.review textarea').fill('look here');
    await page.getByRole('button', { name: 'Add comment' }).click();
    const comment = page.locator('.comments li', { hasText: 'look here' });
    await comment.getByText('carol@example.com').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('notes') });
    await page.keyboard.press('Home');
    await comment.getByRole('button', { name: '0:07' }).click();
    await page.locator('.terminal', { hasText: 'noted 7.' }).waitFor();
    for (const [query, found] of [
      ['tag:incident', 'noted'],
      ['reviewed:no', 'other'],
    ] as const) {
      await page.goto(`${recorder.archive().url}/#/?q=${query}`);
      await page.reload();
      await page.locator('tr[data-id]', { hasText: found }).waitFor();
      expect(await page.locator('tr[data-id]').count()).toBe(1);
    }
    await page.goto(`${recorder.archive().url}/#/?q=tag:incident`);
    await page.locator('tr[data-id]', { hasText: 'noted' }).getByText('incident').waitFor();
    await page.screenshot({ path: shot('notes-list') });
  });
});

describe('two recordings', () => {
  it('are compared from the list, with one clock or two', async () => {
    archive().add(numbers('left', 60));
    archive().add(numbers('right', 30));
    const page = await open('#/', STILL);
    for (const command of ['left', 'right'])
      await page.getByRole('checkbox', { name: `Select ${command} of` }).check();
    await page.getByRole('link', { name: 'Compare' }).click();
    const panes = page.locator('.compare section');
    const [first, second] = [panes.nth(0), panes.nth(1)];
    await page.locator('.compare .terminal[data-size] >> nth=1').waitFor();
    // with one clock, a key press seeks in both recordings, and the shorter one stays at its end
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    for (const pane of [first, second]) await pane.locator('.terminal').getByText('10.').waitFor();
    const slider = page.getByRole('slider').first();
    const box = (await slider.boundingBox())!;
    await slider.click({ position: { x: (box.width * 45) / 60, y: 5 } });
    await page.locator('.terminal', { hasText: '45.' }).waitFor();
    await page.locator('.terminal', { hasText: '30.' }).waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('compare'), fullPage: true });
    // with two clocks, each time line moves only its own screen
    await page.getByRole('button', { name: 'One clock' }).click();
    const right = panes.filter({ hasText: 'right' });
    await right.getByRole('slider').focus();
    await right.getByRole('slider').click({ position: { x: 1, y: 5 } });
    await right.locator('.clock', { hasText: '0:00' }).waitFor();
    await page.locator('.terminal', { hasText: '45.' }).waitFor();
    await right.getByRole('button', { name: /^Play/ }).click();
    await right.getByRole('button', { name: /^Pause/ }).waitFor();
    // the URL restores the comparison
    await page.reload();
    await page.locator('.compare .terminal[data-size] >> nth=1').waitFor();
  });

  it('are one below the other on a phone', async () => {
    const ids = ['left', 'right'].map((name) => archive().add(numbers(name, 5)));
    const query = new URLSearchParams(ids.map((id) => ['id', id]));
    const page = await open(`#/compare?${query.toString()}`, { ...PHONE, reducedMotion: 'reduce' });
    await page.locator('.compare .terminal[data-size] >> nth=1').waitFor();
    expect(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });
});

describe('the command palette', () => {
  it('finds actions, views and preferences with the keyboard', async () => {
    const id = archive().add(numbers('palette', 10));
    const page = await open(`#/r/${encodeURIComponent(id)}`, STILL);
    await ready(page);
    await page.keyboard.press('Control+k');
    const field = page.getByRole('combobox', { name: 'Find a command' });
    await field.fill('theme dark');
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.keyboard.press('Enter');
    expect(await page.evaluate<string>('document.documentElement.dataset.theme')).toBe('dark');
    // the palette also lists actions of the player
    await page.keyboard.press('Control+k');
    await field.fill('5 seconds forward');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.position input').inputValue()).toBe('0:05.0');
    await page.keyboard.press('Control+k');
    await field.fill('show');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(/#\/live$/);
    await page.keyboard.press('Control+k');
    await field.waitFor();
    await page.keyboard.press('Escape');
    await field.waitFor({ state: 'detached' });
  });

  it('opens with a button, and searches', async () => {
    const page = await open('#/', { ...PHONE, reducedMotion: 'reduce' });
    // waits for the list of recordings, which tells the page that this recorder has no index
    await page.locator('tbody tr[data-id]').first().waitFor();
    await page.getByRole('button', { name: 'Commands' }).click();
    await page.getByRole('combobox', { name: 'Find a command' }).fill('unheard-of');
    await page.getByRole('option', { name: 'Search recordings for unheard-of' }).click();
    await page.getByText('0 recordings', { exact: true }).waitFor();
    expect(await close(page)).toEqual([]);
  });
});

describe('the wall', () => {
  it('has titles that differ, a filter, sizes and a pause, and marks new output', async () => {
    const uploads = [
      beginSession(archive().url, 'twin-0', 'one'),
      beginSession(archive().url, 'twin-0', 'two'),
      beginSession(archive().url, 'other-0', 'x'),
    ];
    const page = await open('#/live', STILL);
    const tiles = page.locator('.tile');
    await page.getByText('3 running', { exact: true }).waitFor();
    const titles = await tiles.locator('h2 a').allTextContents();
    expect(new Set(titles).size).toBe(3);
    await page.getByLabel('Filter running sessions').fill('twin');
    await page.getByText('2 running', { exact: true }).waitFor();
    await page.reload();
    await page.getByText('2 running', { exact: true }).waitFor();
    const tile = tiles.filter({ hasText: 'this is one' });
    await tile.locator('.terminal').getByText('this is one').waitFor();
    await page.locator('.tile[data-fresh]').first().waitFor({ state: 'detached' });
    uploads[0]!.write('[1,"o","and more"]\n');
    await page.locator('.tile[data-fresh]').waitFor();
    await tile.locator('.terminal').getByText('and more').waitFor();
    // paused screens keep their content, but mark new output
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('2 running, paused').waitFor();
    await page.locator('.tile[data-fresh]').waitFor({ state: 'detached' });
    uploads[0]!.write('[2,"o","and later"]\n');
    await page.locator('.tile[data-fresh]').waitFor();
    expect(await tile.locator('.terminal').textContent()).not.toContain('and later');
    await page.getByRole('button', { name: 'Continue' }).click();
    await tile.locator('.terminal').getByText('and later').waitFor();
    const width = async (): Promise<number> => (await tiles.first().boundingBox())?.width ?? 0;
    const medium = await width();
    await page.getByText('Large', { exact: true }).click();
    expect(await width()).toBeGreaterThan(medium);
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.screenshot({ path: shot('wall-filtered'), fullPage: true });
    await page.getByLabel('Filter running sessions').fill('nobody');
    await page.getByText('No running session matches the filter.').waitFor();
    expect(await close(page)).toEqual([]);
    for (const upload of uploads) await endSession(upload);
  });
});

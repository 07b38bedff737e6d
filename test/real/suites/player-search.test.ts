/**
 * Search on the page finds sessions by screen content and by properties, and the time of a hit, but only in sessions
 * that the viewer may see.
 */
import type { BrowserContextOptions, Locator, Page } from 'playwright-core';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { accessibilityFaults } from '../support/axe.ts';
import type { CastLine, CastSpec } from '../support/casts.ts';
import { DESKTOP, LAPTOP, PHONE, ready, setUpPlayer, shot } from '../support/player-page.ts';
import { readShown } from '../support/screen-cells.ts';

const STILL: BrowserContextOptions = { ...LAPTOP, reducedMotion: 'reduce' };
const CAROL: Viewer = { node: 'auditor.example.ts.net', nodeId: 'nAUD', user: 'carol@example.com' };
let viewer = CAROL;

const EDITED = '\x1b[?1049h\x1b[2J\x1b[3;1Hthe heron config\x1b[4;1Hreplicas: 4';
const SPECS: readonly CastSpec[] = [
  cast('bash', 'erin@example.com', [
    [0.5, 'o', '$ kubectl get pods\r\n'],
    [8, 'o', EDITED],
    [12, 'o', '\x1b[?1049l$ ls\r\n'],
    [40, 'o', 'another heron flew by\r\n'],
    [80, 'o', 'heron number three\r\n'],
    [81, 'o', 'done\r\n'],
  ]),
  cast('sh', 'bob@example.com', [
    [1, 'o', '<img src=x onerror=alert(1)> heron <b>bold</b>\r\n'],
    [2, 'o', 'bye\r\n'],
  ]),
  cast('sh', 'bob@example.com', [[1, 'o', 'nothing to see\r\n']]),
  cast('top', 'dave@example.com', [[1, 'o', 'osprey\r\n']]),
];

const { archive, open } = setUpPlayer(
  {
    searchText: 'all',
    viewers: ['carol@example.com', 'bob@example.com=user:bob@example.com'].map(parseViewRule),
    identifyViewer: async () => viewer,
  },
  SPECS,
);

function cast(command: string, user: string, events: readonly CastLine[]): CastSpec {
  return { command, columns: 80, rows: 24, user, events };
}

const field = (page: Page): Locator => page.locator('input[name=q]');
const rows = (page: Page): Locator => page.locator('tbody tr[data-id]');
const hits = (page: Page): Locator => page.locator('tr.hits a');
const chips = (page: Page): Locator => page.locator('.chips .chip');
const facets = (page: Page): Locator => page.locator('.facets [data-facet]');
const position = (page: Page): Promise<string> => page.locator('.position input').inputValue();

async function screenOf(page: Page): Promise<string> {
  const cells = (await readShown(page))?.cells ?? [];
  return cells.map((row) => row.map((cell) => cell.replace(/ \[.*\]$/s, '')).join('')).join('\n');
}

/** Timeout that is long enough for a busy machine. */
const SOON = { timeout: 15_000 };

function queryOf(page: Page): string {
  return new URLSearchParams(new URL(page.url()).hash.split('?')[1] ?? '').get('q') ?? '';
}

async function api<T>(path: string): Promise<T> {
  return (await (await fetch(`${archive().url}/api/v1/${path}`)).json()) as T;
}

interface FacetsAnswer {
  readonly counted: number;
  readonly user: readonly { readonly value: string; readonly count: number }[];
  readonly ns: FacetsAnswer['user'];
  readonly kind: FacetsAnswer['user'];
  readonly state: FacetsAnswer['user'];
  readonly result: FacetsAnswer['user'];
  readonly trust: FacetsAnswer['user'];
}

beforeAll(async () => {
  while ((await api<FacetsAnswer>('search/facets')).counted < SPECS.length)
    await new Promise((resolve) => setTimeout(resolve, 100));
});
beforeEach(() => {
  viewer = CAROL;
});

describe('the field', () => {
  it('finds, shows where, and opens two seconds before', async () => {
    const page = await open('', STILL);
    await rows(page).nth(3).waitFor();
    await field(page).fill('heron');
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    expect(queryOf(page)).toBe('heron');
    const texts = await hits(page).allTextContents();
    expect(texts).toEqual([
      '0:01<img src=x onerror=alert(1)> heron <b>bold</b>',
      '0:08the heron config',
      '0:40another heron flew by',
      '1:20heron number three',
    ]);
    // the page shows hits as text, never as markup
    expect(await page.locator('tr.hits img, tr.hits b').count()).toBe(0);
    await hits(page).nth(1).click();
    await ready(page);
    await expect.poll(() => position(page), SOON).toBe('0:06.0');
    expect(await screenOf(page)).not.toContain('heron');
    await page.getByText('3 matches').waitFor();
    expect(await page.locator('.mark-hit').count()).toBe(3);
  });

  it('has its query in the address: back, forward, reload', async () => {
    const page = await open('', STILL);
    await field(page).fill('heron');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await field(page).fill('osprey');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows(page).count(), SOON).toBe(1);
    await page.goBack();
    await expect.poll(() => field(page).inputValue(), SOON).toBe('heron');
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await page.goBack();
    await expect.poll(() => field(page).inputValue(), SOON).toBe('');
    await expect.poll(() => rows(page).count(), SOON).toBe(4);
    await page.goForward();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await page.reload();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    expect(await field(page).inputValue()).toBe('heron');
  });

  it('takes over links to lists that were filtered', async () => {
    const page = await open('#/?text=heron&user=bob%40example.com&state=completed', STILL);
    await expect.poll(() => queryOf(page), SOON).toBe('user:"bob@example.com" state:"completed" "heron"');
    await expect.poll(() => hits(page).count(), SOON).toBe(1);
  });

  it('says what is wrong, and what may have been meant', async () => {
    const page = await open('', STILL);
    await field(page).fill('usr:bob@example.com');
    const problem = page.locator('#search-problem');
    await problem.getByText('There is no key usr: – did you mean user:?').waitFor();
    expect(await field(page).getAttribute('aria-invalid')).toBe('true');
    await page.screenshot({ path: shot('search-wrong') });
    await problem.getByRole('link', { name: 'user:bob@example.com' }).click();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    expect(await problem.textContent()).toBe('');
    expect(await field(page).getAttribute('aria-invalid')).toBe('false');
    // opens a link from another user that contains an invalid query
    await page.goto(`${archive().url}/#/?q=exit:many`);
    await problem.getByText('takes a code').waitFor();
    expect(await rows(page).count()).toBe(0);
  });

  it('offers keys and known values, and words that begin so', async () => {
    const page = await open('', STILL);
    await rows(page).nth(3).waitFor();
    const offered = (): Promise<readonly (string | null)[]> =>
      page
        .locator('#search-offers option')
        .evaluateAll((options) => options.map((option) => option.getAttribute('value')));
    await field(page).fill('u');
    expect(await offered()).toEqual(['user:']);
    await field(page).fill('user:b');
    expect(await offered()).toEqual(['user:bob@example.com']);
    await field(page).fill('hero');
    await page.getByRole('link', { name: 'hero*' }).click();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
  });

  it('explains itself, and its examples can be tried', async () => {
    const page = await open('', STILL);
    await page.getByText('Search syntax').click();
    await page.screenshot({ path: shot('search-help') });
    for (const example of await page.locator('.search-help a').all()) {
      const href = (await example.getAttribute('href')) ?? '';
      const q = new URLSearchParams(href.split('?')[1]).get('q') ?? '';
      const answer = await fetch(`${archive().url}/api/v1/search?q=${encodeURIComponent(q)}`);
      expect([q, answer.status]).toEqual([q, 200]);
    }
    await page.getByRole('link', { name: 'deploy*' }).click();
    await page.getByText('No recording matches').waitFor();
    expect(await page.locator('.search-help[open]').count()).toBe(0);
  });
});

describe('parts of a query', () => {
  it('are taken out with the mouse, and with the keyboard', async () => {
    const page = await open(`#/?q=${encodeURIComponent('user:bob@example.com heron NOT zebra')}`, STILL);
    await expect.poll(() => rows(page).count(), SOON).toBe(1);
    expect(await chips(page).allTextContents()).toEqual(['user:bob@example.com ×', 'heron ×', 'NOT zebra ×']);
    await page.getByRole('button', { name: 'Remove user:bob@example.com' }).click();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    expect(queryOf(page)).toBe('heron NOT zebra');
    await chips(page).nth(1).focus();
    await page.keyboard.press('Delete');
    await expect.poll(() => queryOf(page), SOON).toBe('heron');
    // the focus moves to the previous term
    await expect
      .poll(() => page.evaluate<string | null>(`document.activeElement.getAttribute('aria-label')`), SOON)
      .toBe('Remove heron');
    await page.keyboard.press('Enter');
    await expect.poll(() => rows(page).count(), SOON).toBe(4);
    await expect.poll(() => page.evaluate<string | null>(`document.activeElement.name`), SOON).toBe('q');
    await page.goBack();
    await expect.poll(() => queryOf(page), SOON).toBe('heron');
  });
});

describe('what the sessions have in common', () => {
  it('is counted as the recorder counts it, narrows, and widens again', async () => {
    const page = await open('', STILL);
    for (const query of ['', 'heron']) {
      if (query !== '') await field(page).fill(query);
      const counted = await api<FacetsAnswer>(`search/facets?q=${query}`);
      const wanted = (['user', 'ns', 'kind', 'state', 'result', 'trust'] as const).flatMap((name) =>
        counted[name].slice(0, 3).map(({ value, count }) => `${value} ${count}`),
      );
      await expect
        .poll(() => facets(page).allTextContents(), SOON)
        .toEqual(['last hour', 'last day', 'last week', 'last month', ...wanted]);
    }
    await page.locator('[data-facet="user:bob@example.com"]').click();
    await expect.poll(() => queryOf(page), SOON).toBe('heron user:bob@example.com');
    await expect.poll(() => rows(page).count(), SOON).toBe(1);
    const chosen = page.locator('[data-facet="user:bob@example.com"][aria-current]');
    await chosen.click();
    await expect.poll(() => queryOf(page), SOON).toBe('heron');
    await page.getByRole('link', { name: 'last week' }).click();
    await page.getByText('No recording matches').waitFor();
    expect(queryOf(page)).toBe('heron after:7d');
  });
});

describe('a search that is kept', () => {
  it('is there after a reload, by its name, until it is forgotten', async () => {
    const page = await open('#/?q=heron', STILL);
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await page.locator('.saved summary').click();
    await page.getByLabel('Name for this search').fill('birds <b>');
    await page.keyboard.press('Enter');
    await page.screenshot({ path: shot('search-saved') });
    await page.goto(`${archive().url}/#/`);
    await page.reload();
    await expect.poll(() => rows(page).count(), SOON).toBe(4);
    await page.getByText('Saved (1)').click();
    await page.getByRole('link', { name: 'birds <b>' }).click();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await page.getByText('Saved (1)').click();
    await page.getByRole('button', { name: 'Forget birds <b>' }).click();
    await page.getByText('There are no saved searches.').waitFor();
    await page.reload();
    await page.locator('.saved summary').getByText('Saved', { exact: true }).waitFor();
  });
});

describe('the keyboard alone', () => {
  it('finds, opens, and goes from hit to hit', async () => {
    const page = await open('', STILL);
    await rows(page).nth(3).waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('heron');
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    expect(await page.evaluate<string>('document.activeElement.textContent')).toBe('0:08the heron config');
    await page.keyboard.press('Enter');
    await ready(page);
    const bar = page.getByRole('group', { name: 'Matches of the search' });
    await bar.getByText('3 matches').waitFor();
    await page.keyboard.press('n');
    await expect.poll(() => screenOf(page), SOON).toContain('the heron config');
    await bar.getByText('Match 1 of 3').waitFor();
    await page.keyboard.press('n');
    await expect.poll(() => screenOf(page), SOON).toContain('another heron flew by');
    await page.screenshot({ path: shot('search-player') });
    await page.keyboard.press('n');
    await bar.getByText('Match 3 of 3').waitFor();
    await page.keyboard.press('N');
    await bar.getByText('Match 2 of 3').waitFor();
    await bar.getByRole('button', { name: 'Next' }).click();
    await bar.getByText('Match 3 of 3').waitFor();
    await bar.getByRole('link', { name: 'All matching recordings' }).click();
    await expect.poll(() => rows(page).count(), SOON).toBe(2);
  });
});

describe('sizes', () => {
  it.each([
    ['laptop', LAPTOP],
    ['dark', { ...LAPTOP, colorScheme: 'dark' } satisfies BrowserContextOptions],
    ['desktop', DESKTOP],
    ['phone', PHONE],
  ])('%s: nothing is cut off, and axe finds no fault', async (name, options) => {
    const page = await open('#/?q=heron', { ...options, reducedMotion: 'reduce' });
    await expect.poll(() => hits(page).count(), SOON).toBe(4);
    await facets(page).first().waitFor();
    await page.screenshot({ path: shot(`search-${name}`), fullPage: true });
    const { width = 0 } = options.viewport ?? {};
    const overflows = `document.documentElement.scrollWidth > ${width}`;
    expect(await page.evaluate<boolean>(overflows)).toBe(false);
    expect(await accessibilityFaults(page)).toEqual([]);
    // on a phone, the help button shows only its icon
    await page.locator('.search-help summary').click();
    await page.screenshot({ path: shot(`search-help-${name}`) });
    expect(await page.evaluate<boolean>(overflows)).toBe(false);
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await hits(page).nth(1).click();
    await ready(page);
    await page.getByText('3 matches').waitFor();
    await page.screenshot({ path: shot(`search-hits-${name}`) });
    expect(await page.evaluate<boolean>(overflows)).toBe(false);
    expect(await accessibilityFaults(page)).toEqual([]);
  });
});

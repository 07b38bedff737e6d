/** The player in a real browser. Each screen is compared with an oracle terminal, cell by cell. */
import type { BrowserContextOptions } from 'playwright-core';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { accessibilityFaults } from '../support/axe.ts';
import { PLAIN_HOST } from '../support/browser.ts';
import { captureAll } from '../support/captures.ts';
import type { CastLine, CastSpec } from '../support/casts.ts';
import {
  DESKTOP,
  goTo,
  LAPTOP,
  lengthOf,
  PHONE,
  ready,
  setUpPlayer,
  shot,
  expectScreenAt,
} from '../support/player-page.ts';

const { archive, open, close } = setUpPlayer();

describe('the screen', () => {
  it('is that of the oracle at any moment, forwards and back, for everything captured', async () => {
    const specs = await captureAll();
    expect(specs.length).toBeGreaterThanOrEqual(30);
    const page = await open('');
    const table: string[] = [];
    for (const spec of specs) {
      const id = archive().add(spec);
      await page.goto(`${archive().url}/#/r/${encodeURIComponent(id)}`);
      await page.reload();
      await ready(page);
      const moments = [0.3, 0.75, 0.5, 0.1, 1].map((part) => Math.floor(lengthOf(spec) * part * 10) / 10);
      for (const moment of moments) {
        await goTo(page, moment);
        await expectScreenAt(page, spec, moment).catch((error: unknown) => {
          table.push(`${spec.command} at ${moment}: ${String(error).slice(0, 1500)}`);
        });
      }
    }
    expect(table).toEqual([]);
  });

  it.each([
    ['a laptop', LAPTOP],
    ['a phone', PHONE],
    ['a dark desktop', { ...DESKTOP, colorScheme: 'dark' } satisfies BrowserContextOptions],
  ])('is whole on %s, with its controls, before and after a resize', async (_name, options) => {
    const spec = resizing();
    const id = archive().add(spec);
    const page = await open(`#/r/${encodeURIComponent(id)}`, { ...options, reducedMotion: 'reduce' });
    await ready(page);
    // the automatic font size has a minimum, so a wider terminal screen needs a scroll bar
    await page.locator('.display-options summary').click();
    await page.getByText(options.isMobile === true ? 'Full width' : 'Automatic', { exact: true }).click();
    await page.keyboard.press('Escape');
    for (const moment of [0.5, 2]) {
      await goTo(page, moment);
      await expectScreenAt(page, spec, moment);
      const fits = await page.evaluate<boolean>(`document.documentElement.scrollWidth <= innerWidth &&
        document.querySelector('.controls').getBoundingClientRect().bottom <= innerHeight &&
        [...document.querySelectorAll('.terminal .row')].every((row) => {
          const box = row.getBoundingClientRect();
          const frame = document.querySelector('.terminal').getBoundingClientRect();
          return box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1;
        })`);
      expect(fits).toBe(true);
    }
  });
});

describe('a recorder without HTTPS', () => {
  it('serves list and player to its own page', async () => {
    const spec = idle();
    const id = archive().add(spec);
    const page = await open(archive().url.replace('127.0.0.1', PLAIN_HOST));
    await page.locator(`tr[data-id="${id}"] a`).first().click();
    await ready(page);
    await expectScreenAt(page, spec, 0);
    // Chromium reports that it ignores a header without HTTPS
    expect((await close(page)).filter((complaint) => !complaint.includes('Cross-Origin-Opener'))).toEqual([]);
  });
});

describe('the clock', () => {
  it('is the recording’s own, whether idle time is skipped or not', async () => {
    const spec = idle();
    const id = archive().add(spec);
    for (const skips of [true, false]) {
      const page = await open(`#/r/${encodeURIComponent(id)}?t=61`);
      await ready(page);
      const skipping = page.getByRole('button', { name: 'Skip idle time' });
      if (((await skipping.getAttribute('aria-pressed')) === 'true') !== skips) await skipping.click();
      await expectScreenAt(page, spec, 61);
      await expect.poll(() => page.locator('.position input').inputValue()).toBe('1:01.0');
      expect(await close(page)).toEqual([]);
    }
  });

  it('passes idle time quickly, and stands at the same moments', async () => {
    const spec = idle();
    const id = archive().add(spec);
    const page = await open(`#/r/${encodeURIComponent(id)}`, DESKTOP);
    await ready(page);
    const started = performance.now();
    await expectScreenAt(page, spec, lengthOf(spec));
    expect(performance.now() - started).toBeLessThan(30_000);
    await expect.poll(() => page.locator('.position input').inputValue()).toBe('1:02.0');
  });

  it('does not move by itself for whoever wants less movement', async () => {
    const spec = idle();
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await ready(page);
    await page.getByRole('button', { name: 'Play' }).waitFor();
    await expectScreenAt(page, spec, 0);
  });
});

describe('a recording that is not whole', () => {
  it('is shown up to the cut', async () => {
    const events: CastLine[] = [[0.1, 'o', 'before the cut\r\n']];
    const raw = `${JSON.stringify(events[0])}\n[0.2,"o","lost in the mid`;
    const spec = { command: 'cut', columns: 80, rows: 24, events, raw };
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await ready(page);
    await goTo(page, 9);
    await expectScreenAt(page, spec, 9);
    await page.locator('[data-notice=cut]').waitFor();
  });

  it('is shown past a line that cannot be read, and says so', async () => {
    const raw = '[0.1,"o","one\\r\\n"]\n{{{ not a line\n[0.2,"o","two\\r\\n"]\n';
    const events: CastLine[] = [
      [0.1, 'o', 'one\r\n'],
      [0.2, 'o', 'two\r\n'],
    ];
    const spec = { command: 'bad', columns: 80, rows: 24, events, raw };
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await ready(page);
    await goTo(page, 9);
    await expectScreenAt(page, spec, 9);
    await page.locator('[data-notice=damage]').getByText('1 line').waitFor();
  });

  it('without output has an empty screen and says so', async () => {
    const spec = { command: 'true', columns: 0, rows: 0, events: [] };
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await page.locator('[data-notice=silent]').waitFor();
    await expectScreenAt(page, { ...spec, columns: 80, rows: 24 }, 0);
  });

  it('without a terminal has its lines one below the other, and says when they are no text', async () => {
    const text = { command: 'ls', columns: 0, rows: 0, events: [[0.1, 'o', 'a\nb\nc\n']] as const };
    const page = await open(`#/r/${encodeURIComponent(archive().add(text))}`);
    await ready(page);
    await goTo(page, 1);
    await expectScreenAt(
      page,
      { ...text, columns: 80, rows: 24, events: [[0.1, 'o', 'a\r\nb\r\nc\r\n']] },
      1,
    );
    const data = {
      ...text,
      command: 'tar',
      events: [[0.1, 'o', '\u0000\ufffd\u0001x'.repeat(200)]] as const,
    };
    await page.goto(`${archive().url}/#/r/${encodeURIComponent(archive().add(data))}`);
    await page.locator('[data-notice=binary]').waitFor();
  });
});

describe('the keyboard alone', () => {
  it('plays, seeks, changes speed, shows its keys, and reaches the time line', async () => {
    const spec = idle();
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await ready(page);
    const at = (): Promise<string> => page.locator('.position input').inputValue();
    await page.locator('.terminal').focus();
    await page.keyboard.press('End');
    await expect.poll(at).toBe('1:02.0');
    await page.keyboard.press('ArrowLeft');
    await expect.poll(at).toBe('0:57.0');
    await page.keyboard.press('5');
    await expect.poll(at).toBe('0:31.0');
    await page.keyboard.press('Home');
    await expect.poll(at).toBe('0:00.0');
    await expectScreenAt(page, spec, 0);
    await page.keyboard.press('.');
    await expectScreenAt(page, spec, 1);
    await page.keyboard.press('>');
    expect(await page.getByLabel('Speed').inputValue()).toBe('2');
    await page.keyboard.press(' ');
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    await page.keyboard.press(' ');
    await page.getByRole('button', { name: 'Play' }).waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('Play or pause').waitFor();
    await page.keyboard.press('Escape');
    const slider = page.getByRole('slider', { name: 'Position in the recording' });
    await slider.focus();
    expect(await slider.getAttribute('aria-valuetext')).toMatch(/of 1:02/);
  });
});

describe('axe', () => {
  it.each([
    ['light', DESKTOP],
    ['dark', { ...DESKTOP, colorScheme: 'dark' } satisfies BrowserContextOptions],
    ['on a phone', PHONE],
  ])('finds nothing wrong, %s', async (name, options) => {
    const id = archive().add({ ...resizing(), events: [...resizing().events, [2, 'm', 'a marker']] });
    const page = await open('', { ...options, reducedMotion: 'reduce' });
    await page.locator('tr[data-id]').first().waitFor();
    const found = [...(await accessibilityFaults(page))];
    await page.goto(`${archive().url}/#/r/${encodeURIComponent(id)}?q=bottom`);
    await ready(page);
    await page.locator('.transcript .line').first().waitFor();
    await page.locator('[data-verdict]').waitFor();
    for (const summary of await page.locator('details.card > summary').all()) await summary.click();
    found.push(...(await accessibilityFaults(page)));
    await page.screenshot({ path: shot(`recording ${name}`), fullPage: true });
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    found.push(...(await accessibilityFaults(page)));
    expect(found).toEqual([]);
  });
});

describe('the layout', () => {
  it.each([
    ['the list', DESKTOP],
    ['the list on a phone', PHONE],
    ['the player', DESKTOP],
    ['the player on a phone', PHONE],
  ])('of %s does not move while a slow recorder responds', async (name, options) => {
    const id = archive().add(resizing());
    const page = await open('#/nowhere', { ...options, reducedMotion: 'reduce' });
    await page.route('**/api/**', async (route) => {
      await delay(300);
      await route.continue();
    });
    await page.addInitScript(`window.moved = 0; new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
    }).observe({ type: 'layout-shift', buffered: true })`);
    await page.goto(`${archive().url}/${name.includes('player') ? `#/r/${encodeURIComponent(id)}` : '#/'}`);
    await page.reload();
    if (name.includes('player')) await page.locator('.strip').waitFor();
    else await page.locator('.thumbnail canvas').first().waitFor();
    expect(await page.evaluate<number>('window.moved')).toBeLessThan(0.1);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  });
});

describe('the evidence', () => {
  it('stands below, with the sessions around it', async () => {
    const id = archive().add(idle());
    archive().add(idle());
    const page = await open(`#/r/${encodeURIComponent(id)}`);
    // the recordings of this test have no signature
    await page.locator('[data-verdict=none]').click();
    await page.getByText('Same pod, within a day').click();
    await page.locator('.evidence details', { hasText: 'Same pod' }).locator('a').first().waitFor();
    await page.getByText('Viewers of this recording').click();
    await page.getByText('carol@example.com (auditor.example.ts.net) play').first().waitFor();
    expect(await close(page)).toEqual([]);
  });
});

describe('what can be taken away', () => {
  it('is the screen with its line breaks', async () => {
    const spec = {
      command: 'copy',
      columns: 40,
      rows: 6,
      events: [[0.1, 'o', `first\r\nsecond  line\r\n${'w'.repeat(50)}\r\nlast`]] as const,
    };
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: archive().url });
    await ready(page);
    await goTo(page, 1);
    await expectScreenAt(page, spec, 1);
    await page.evaluate(`getSelection().selectAllChildren(document.querySelector('.terminal'))`);
    await page.keyboard.press('Control+c');
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');
    expect(copied.trimEnd()).toBe(`first\nsecond  line\n${'w'.repeat(50)}\nlast`);
  });
});

describe('the transcript', () => {
  const spec: CastSpec = {
    command: 'bash',
    columns: 60,
    rows: 10,
    events: [
      [1, 'o', '$ '],
      [2, 'o', 'vim notes\r\n'],
      [5, 'o', '\x1b[?1049h\x1b[Hthe word zephyr in an editor\x1b[3;1Hsecond row'],
      [9, 'o', '\x1b[?1049l$ '],
      [12, 'o', 'exit\r\n'],
      [40, 'o', Array.from({ length: 300 }, (_, n) => `row ${n}\r\n`).join('')],
    ],
  };

  it('stands beside the screen; Ctrl-F finds in it, and a hit is where the screen goes', async () => {
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await ready(page);
    await page.keyboard.press('Control+f');
    await page.getByLabel('Find in this recording').fill('ZEPHYR');
    await page.locator('.find output').getByText('1 found').waitFor();
    await page.locator('.mark-hit').waitFor();
    await page.keyboard.press('Enter');
    await expectScreenAt(page, spec, 5.1);
    expect(await page.locator('.transcript mark').first().textContent()).toBe('zephyr');
    const boxes = await page.evaluate<readonly number[]>(
      `['.terminal', '.transcript'].map((name) => document.querySelector(name).getBoundingClientRect().left)`,
    );
    expect(boxes[1]).toBeGreaterThan(boxes[0]!);
    await page.screenshot({ path: shot('transcript') });
  });

  it('has few of its rows in the page, jumps on a click, and is copied with its line breaks', async () => {
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}`);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: archive().url });
    await ready(page);
    await page.getByRole('tab', { name: 'Transcript' }).click();
    const lines = page.locator('.transcript .line');
    await lines.filter({ hasText: 'vim notes' }).first().waitFor();
    expect(await lines.count()).toBeLessThan(120);
    await lines.filter({ hasText: 'second row' }).click();
    await expectScreenAt(page, spec, 5.1);
    await page.evaluate(`document.querySelector('.transcript .rows').scrollTop = 1e6`);
    await lines.filter({ hasText: 'row 299' }).waitFor();
    await page.evaluate(`getSelection().selectAllChildren(document.querySelector('.transcript .virtual'))`);
    await page.keyboard.press('Control+c');
    const copied = await page.evaluate<string>('navigator.clipboard.readText()');
    expect(copied).toContain('row 297\nrow 298\nrow 299');
  });

  it('is saved as text with times, and commands are marks on the time line', async () => {
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}?q=zephyr`);
    await ready(page);
    await page.locator('.find output').getByText('1 found').waitFor();
    const saving = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Save as text' }).click();
    const text = readFileSync(await (await saving).path(), 'utf8');
    expect(text).toContain('0:05.0\tthe word zephyr in an editor\n');
    expect(await page.locator('.mark-command').first().getAttribute('title')).toBe('0:02 $ vim notes');
  });

  it('stands below the screen on a phone', async () => {
    const page = await open(`#/r/${encodeURIComponent(archive().add(spec))}?q=row`, {
      ...PHONE,
      reducedMotion: 'reduce',
    });
    await ready(page);
    await page.locator('.transcript .line').first().waitFor();
    expect(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await page.screenshot({ path: shot('transcript-phone'), fullPage: true });
  });
});

describe('the list', () => {
  it('finds what is in no field that is shown, and says where', async () => {
    archive().add({ command: 'sh', columns: 80, rows: 24, events: [], node: 'desktop-7.example.ts.net' });
    const page = await open('#/?text=desktop-7');
    await page.locator('tbody .why').getByText('from: desktop-7').first().waitFor();
    expect(await close(page)).toEqual([]);
  });

  it('loads on while somebody scrolls, has few rows in the page, and keeps the place', async () => {
    for (let count = 0; count < 700; count += 1)
      archive().add({
        command: `run ${count}`,
        columns: 80,
        rows: 24,
        events: [[1, 'o', 'x']],
        user: 'many@example.com',
      });
    const page = await open('#/?user=many@example.com', LAPTOP);
    const rows = page.locator('tr[data-id]');
    // the user has not scrolled, so the page loads no more rows
    await page.getByText('50 recordings so far', { exact: true }).waitFor();
    await page.screenshot({ path: shot('list'), fullPage: true });
    await expect
      .poll(
        async () => {
          await page.evaluate('scrollTo(0, document.body.scrollHeight)');
          return page.getByText('run 0', { exact: true }).count();
        },
        { timeout: 60_000 },
      )
      .toBe(1);
    await page.getByText('700 recordings', { exact: true }).waitFor();
    expect(await rows.count()).toBeLessThan(300);
    expect(await page.locator('table').getAttribute('aria-rowcount')).toBe('701');
    const wanted = page.getByText('run 300', { exact: true });
    await expect
      .poll(
        async () => {
          await page.evaluate('scrollBy(0, -600)');
          return wanted.count();
        },
        { timeout: 60_000 },
      )
      .toBe(1);
    // hovers first, which scrolls the row into view, so that the later click does not change the scroll position
    await wanted.hover();
    const before = await page.evaluate<number>('scrollY');
    await page.locator('tr', { has: wanted }).locator('a').click();
    await ready(page);
    await page.goBack();
    await expect.poll(() => page.evaluate<number>('scrollY'), { timeout: 10_000 }).toBe(before);
    await wanted.waitFor();
    // the list still shows new recordings
    archive().add({ command: 'the newest', columns: 80, rows: 24, events: [], user: 'many@example.com' });
    await page.getByText('701 recordings', { exact: true }).waitFor({ timeout: 15_000 });
    await page.evaluate('scrollTo(0, 0)');
    await rows.first().getByText('the newest').waitFor();
  });

  it('has a button for whoever does not scroll', async () => {
    const page = await open('#/?user=many@example.com', LAPTOP);
    await page.getByText('50 recordings so far', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Older recordings' }).press('Enter');
    await page.getByText(/^[2-6]50 recordings so far$/).waitFor();
    expect(await close(page)).toEqual([]);
  });

  it('opens a row in another tab for whoever asks so', async () => {
    const page = await open('', LAPTOP);
    const { x, y } = (await page.locator('tr[data-id]').first().locator('td').nth(3).boundingBox())!;
    const opening = page.context().waitForEvent('page');
    await page.keyboard.down('Control');
    await page.mouse.click(x + 5, y + 5);
    await page.keyboard.up('Control');
    const other = await opening;
    await other.waitForURL(/#\/r\//);
    expect(await close(page)).toEqual([]);
  });

  it('fits a phone', async () => {
    archive().add(idle());
    const page = await open('', PHONE);
    await page.locator('tr[data-id]').first().waitFor();
    expect(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    expect(await page.locator('td.length').first().innerText()).toMatch(/\d s$/);
  });

  it.each(['light', 'dark'] as const)('has a first heading inside its frame: %s', async (colorScheme) => {
    archive().add(idle());
    const page = await open('', { ...PHONE, colorScheme });
    await page.locator('tr[data-id]').first().waitFor();
    const radiusOf = (selector: string): Promise<number> =>
      page.evaluate<number>(
        `parseFloat(getComputedStyle(document.querySelector('${selector}')).borderTopLeftRadius)`,
      );
    // the inner radius is smaller than the outer one by the border, which is one pixel wide
    expect(await radiusOf('tr.day')).toBe((await radiusOf('table')) - 1);
    await page.screenshot({ path: shot(`day-phone-${colorScheme}`) });
  });
});

describe('a large recording', () => {
  it('is begun at once, jumped in by keyframes, and not kept in memory', async () => {
    const events = 70_000;
    const secondsOf = (event: number): number => (event + 1) / 100;
    const lines = Array.from({ length: events }, (_, event) => {
      const text = `\x1b[3${event % 8}mrequest ${event}\x1b[0m ${'served '.repeat(100)}\r\n`;
      return `${JSON.stringify([secondsOf(event), 'o', text])}\n`;
    });
    const raw = lines.join('');
    const id = archive().add({ command: 'large', columns: 100, rows: 30, events: [], raw });
    const started = performance.now();
    const page = await open(`#/r/${encodeURIComponent(id)}`, { ...LAPTOP, reducedMotion: 'reduce' });
    await ready(page);
    const timings = [`first picture ${Math.round(performance.now() - started)} ms`];
    const index = `${archive().url}/api/v1/recordings/${id}/playback?view=1`;
    await expect.poll(async () => (await fetch(index)).status, { timeout: 120_000, interval: 500 }).toBe(200);
    await page.locator('.strip').waitFor();
    let asked = 0;
    page.on('request', (request) => {
      const [, from = 0, to = 0] = /bytes=(\d+)-(\d+)/.exec(request.headers()['range'] ?? '') ?? [];
      asked += Number(to) - Number(from);
    });
    for (const event of [60_000, 5_000, 33_333, 69_999]) {
      const begun = performance.now();
      await goTo(page, secondsOf(event) + 0.002);
      await expect
        .poll(async () => (await page.locator('.terminal').textContent())?.match(/request \d+/g)?.at(-1), {
          timeout: 10_000,
          interval: 10,
        })
        .toBe(`request ${event}`);
      timings.push(`jump to ${event}: ${Math.round(performance.now() - begun)} ms`);
    }
    const heap = await page.evaluate<number>('performance.memory.usedJSHeapSize');
    timings.push(`heap ${Math.round(heap / 1e6)} MB of ${Math.round(raw.length / 1e6)} MB`);
    console.log(timings.join('; '));
    // the test jumps four times, and each jump reads only a few chunks after a keyframe
    expect(asked).toBeLessThan(raw.length / 5);
  });
});

describe('the access log', () => {
  it('has one event for one viewing, however often the page asks', async () => {
    const spec = idle();
    const id = archive().add(spec);
    const page = await open(`#/r/${encodeURIComponent(id)}`);
    await ready(page);
    for (const moment of [5, 60, 1]) await goTo(page, moment);
    await expectScreenAt(page, spec, 1);
    await page.reload();
    await ready(page);
    expect(await close(page)).toEqual([]);
    const mine = (await archive().accesses()).filter(({ recording }) => recording === id);
    expect(mine.map(({ action }) => action)).toEqual(['play']);
  });
});

function idle(): CastSpec {
  return {
    command: 'idle',
    columns: 80,
    rows: 24,
    events: [
      [1, 'o', 'first\r\n'],
      [60, 'o', 'a minute later\r\n'],
      [62, 'o', 'the end\r\n'],
    ],
  };
}

function resizing(): CastSpec {
  const ruler = (columns: number): string =>
    Array.from({ length: columns }, (_, n) => String(n % 10)).join('');
  return {
    command: 'resize',
    columns: 80,
    rows: 24,
    events: [
      [0.1, 'o', `${ruler(80)}\x1b[24;1Hbottom`],
      [1, 'r', '130x40'],
      [1.1, 'o', `\x1b[2J\x1b[H${ruler(130)}\x1b[40;1Hbottom\x1b[20;65H\x1b[7mmiddle\x1b[0m`],
    ],
  };
}

/** An exported recording as one file, opened without a network in a real browser. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readOfflinePage } from '../../../src/compose/player-directory.ts';
import { writeBundle, type BundleSources } from '../../../src/bundle/write-bundle.ts';
import { createLineSealer } from '../../../src/tsrecorder/evidence/line-seal.ts';
import { signSidecar } from '../../../src/tsrecorder/evidence/signed-sidecar.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { decodeRecording } from '../../../src/wire/recorder-api/recording.ts';
import { runCommand } from '../../support/run-command.ts';
import { accessibilityFaults } from '../support/axe.ts';
import { castText, type CastSpec } from '../support/casts.ts';
import { DESKTOP, goTo, PHONE, ready, setUpPlayer, shot, expectScreenAt } from '../support/player-page.ts';

const { archive, open, close } = setUpPlayer();
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tcexport-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const RULER = Array.from({ length: 80 }, (_, n) => String(n % 10)).join('');
const SPEC: CastSpec = {
  command: 'exported </script><b>',
  columns: 80,
  rows: 24,
  events: [
    [0.5, 'o', `${RULER}\x1b[24;1Hbottom`],
    [1, 'r', '100x30'],
    [1.5, 'o', '\x1b[2J\x1b[Hthe word \x1b[1;31mzephyr\x1b[0m 漢字\x1b[30;1Hlast'],
    [40, 'o', '\x1b[10;10Hafter a while'],
  ],
};

/** Opens the file in a browser without a network, and counts its requests. */
async function openFile(path: string, options = DESKTOP): Promise<{ page: Page; asked: readonly string[] }> {
  const asked: string[] = [];
  const page = await open('about:blank', { ...options, offline: true, reducedMotion: 'reduce' });
  page.on('request', (request) => {
    if (!/^(?:file|blob|data):/.test(request.url())) asked.push(request.url());
  });
  await page.goto(pathToFileURL(path).href);
  return { page, asked };
}

async function exported(spec: CastSpec): Promise<{ path: string; id: string }> {
  const id = archive().add(spec);
  const page = await open(`#/r/${encodeURIComponent(id)}`);
  await ready(page);
  const saving = page.waitForEvent('download');
  await page.locator('.share summary').click();
  await page.getByRole('button', { name: 'Export bundle' }).click();
  const download = await saving;
  const name = `${id.replaceAll(':', '-')}.html`;
  expect(download.suggestedFilename()).toBe(name);
  await page.getByText(`Exported as ${name}.`).waitFor();
  const path = join(folder, `${Math.random().toString(36).slice(2)}.html`);
  await download.saveAs(path);
  // the test copied the recording into the store without sidecar and notes
  const missing = /^404 .*\/(?:sidecar|notes)$|status of 404/;
  expect((await close(page)).filter((complaint) => !missing.test(complaint))).toEqual([]);
  return { path, id };
}

describe('the button', () => {
  it('makes a file that plays without a network, cell by cell, and asks for nothing', async () => {
    const { path } = await exported(SPEC);
    const { page, asked } = await openFile(path);
    await ready(page);
    for (const moment of [0.6, 40, 1.2, 2]) {
      await goTo(page, moment);
      await expectScreenAt(page, SPEC, moment);
    }
    await page.keyboard.press('Control+f');
    await page.getByLabel('Find in this recording').fill('zephyr');
    await page.locator('.find output').getByText('1 found').waitFor();
    await page.locator('.mark-resize').waitFor();
    await page.locator('[data-checked=none]').waitFor();
    // an exported file contains no verdict of a recorder
    expect(await page.locator('[data-verdict]').count()).toBe(0);
    expect(await page.locator('.share').count()).toBe(0);
    expect(asked).toEqual([]);
    await page.screenshot({ path: shot('exported'), fullPage: true });
    expect(await accessibilityFaults(page)).toEqual([]);
  });

  it('is one download in the access log, however large the recording is', async () => {
    const raw = Array.from(
      { length: 12_000 },
      (_, n) => `${JSON.stringify([n / 100, 'o', `row ${n} ${'served '.repeat(20)}\r\n`])}\n`,
    ).join('');
    const { path, id } = await exported({ ...SPEC, events: [], raw });
    const mine = (await archive().accesses()).filter(({ recording }) => recording === id);
    expect(mine.filter(({ action }) => action === 'download').length).toBeLessThanOrEqual(3);
    const { page } = await openFile(path);
    await ready(page);
    // playback in the exported file starts from one of its keyframes
    await goTo(page, 110.005);
    await page.locator('.terminal').getByText('row 11000').waitFor();
    const saving = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Save .cast' }).click();
    const cast = readFileSync(await (await saving).path(), 'utf8');
    expect(cast.slice(cast.indexOf('\n') + 1)).toBe(raw);
  });

  it('makes a file that another page can embed', async () => {
    const { path } = await exported(SPEC);
    const outer = join(folder, 'outer.html');
    writeFileSync(outer, `<iframe src="${pathToFileURL(path).href}" width="900" height="700"></iframe>`);
    const { page, asked } = await openFile(outer);
    await page.frameLocator('iframe').locator('.terminal[data-size]').waitFor();
    expect(asked).toEqual([]);
  });

  it('makes a file that fits a phone', async () => {
    const { path } = await exported(SPEC);
    const { page } = await openFile(path, PHONE);
    await ready(page);
    expect(await page.evaluate<boolean>('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    await page.screenshot({ path: shot('exported-phone'), fullPage: true });
  });
});

describe('a file with a signature', () => {
  async function signed(): Promise<BundleSources> {
    const id = archive().add(SPEC);
    const recording = decodeRecording(
      await (await fetch(`${archive().url}/api/v1/recordings/${id}`)).json(),
    )!;
    const cast = Buffer.from(castText(SPEC));
    const sealer = createLineSealer(64);
    sealer.push(cast);
    const key = generateSigningKey();
    const evidence = { format: 1, log: '0'.repeat(32), start: 1, cast: sealer.finish() } as const;
    const sidecar = signSidecar(`{\n  "recording": ${JSON.stringify(recording)}\n}\n`, evidence, key);
    return {
      recording,
      async *cast() {
        yield cast;
      },
      sidecar: async () => Buffer.from(sidecar),
      notes: async () => undefined,
      evidence: async () => ({
        evidence: {
          verdict: 'verified',
          checkedAt: '2026-01-02T03:04:05Z',
          findings: [],
          signedBy: {
            key: key.public.id,
            owner: 'this recorder',
            log: evidence.log,
            entry: 1,
            pem: key.public.pem,
          },
        },
        gaps: [],
        gapCount: 0,
        parts: 1,
      }),
    };
  }

  async function written(sources: BundleSources, name: string): Promise<string> {
    const options = { page: await readOfflinePage(), madeAt: '2026-01-02T03:04:05Z' };
    const path = join(folder, name);
    writeFileSync(path, (await Array.fromAsync(writeBundle(sources, options))).join(''));
    return path;
  }

  it('is checked by the browser that opens it, and a changed one is refused', async () => {
    const sources = await signed();
    const good = await openFile(await written(sources, 'good.html'));
    await good.page.locator('[data-checked=verified]').waitFor();
    await good.page.locator('.covers').getByText('computed by this page from the recording').waitFor();
    await good.page.screenshot({ path: shot('exported-signed'), fullPage: true });
    expect(await close(good.page)).toEqual([]);
    const changed: BundleSources = {
      ...sources,
      async *cast() {
        yield Buffer.from(castText(SPEC).replace('zephyr', 'zephir'));
      },
    };
    const bad = await openFile(await written(changed, 'bad.html'));
    await bad.page.locator('[data-checked=failed]').getByText('differs from the signed content').waitFor();
    expect(await bad.page.locator('[data-verdict]').count()).toBe(0);
  });

  it('that was cut off says that it is not whole', async () => {
    const whole = readFileSync(await written(await signed(), 'whole.html'), 'utf8');
    for (const end of [whole.lastIndexOf('data-bundle') + 30, whole.lastIndexOf('data-file="cast"') + 60]) {
      const path = join(folder, 'cut.html');
      writeFileSync(path, whole.slice(0, end));
      const { page } = await openFile(path);
      await page.getByText('This file is incomplete').waitFor();
      expect(await close(page)).toEqual([]);
    }
  });
});

describe('tailcast clip', () => {
  it('writes GIF and MP4 with the colours, columns and times of the screen', async ({ skip }) => {
    if (spawnSync('ffmpeg', ['-version']).error !== undefined) skip('ffmpeg is not installed');
    if (spawnSync('agg', ['--version']).error === undefined) skip('agg is installed; its cells differ');
    const block = '\x1b[41m    \x1b[0m';
    const cast = join(folder, 'clip.cast');
    const events: CastSpec['events'] = [
      [1, 'o', `12345678${block}\r\n漢字漢字${block}\r\n🚀🎉🚀🎉${block}\r\n`],
      [3, 'o', `${'\x1b[44m \x1b[0m'.repeat(8)}\x1b[42m    \x1b[0m`],
    ];
    writeFileSync(cast, castText({ command: 'clip', columns: 40, rows: 8, events }));
    for (const format of ['gif', 'mp4']) {
      const target = join(folder, `clip.${format}`);
      const made = await runCommand('clip', cast, '--to', '4', '--format', format, '--output', target);
      expect(made).toMatchObject({ code: 0, err: `${target}\n` });
      const rows = (at: number): readonly string[] =>
        [0, 1, 2, 3].map((row) => colourAt(target, at, { column: 10, row, columns: 40, rows: 8 }));
      expect([format, rows(0.5)]).toEqual([format, ['none', 'none', 'none', 'none']]);
      expect([format, rows(2)]).toEqual([format, ['red', 'red', 'red', 'none']]);
      expect([format, rows(3.5)]).toEqual([format, ['red', 'red', 'red', 'green']]);
    }
  });
});

/** Returns the strongest colour of one cell in a clip, read with ffmpeg. */
function colourAt(
  path: string,
  seconds: number,
  { column, row, columns, rows }: Record<'column' | 'row' | 'columns' | 'rows', number>,
): string {
  // in a clip, the padding has 12 pixels, and a cell has 8.4 × 17 pixels
  const x = `(12+8.4*${column})*iw/ceil(24+8.4*${columns})`;
  const y = `(12+17*${row + 0.25})*ih/(24+17*${rows})`;
  const filter = `trim=start=${seconds},crop=4:4:'${x}':'${y}',scale=1:1:flags=area`;
  const output = ['-frames:v', '1', '-f', 'rawvideo', '-pix_fmt', 'rgb24', '-'];
  const pixel = execFileSync('ffmpeg', ['-loglevel', 'error', '-i', path, '-vf', filter, ...output]);
  const parts = [...pixel];
  const most = Math.max(...parts);
  return most < 80 ? 'none' : (['red', 'green', 'blue'][parts.indexOf(most)] ?? '');
}

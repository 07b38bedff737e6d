/**
 * Measures the player page in Chromium, with temporary archives:
 *
 *   npm run bench:player [-- --gigabytes=1 --recordings=100000 --keep]
 *
 * Uses one recording of the given size, and a list of the given length. Prints progress and a table with the goals, and
 * exits with 1 if a goal is missed. Removes the archives afterwards, unless `--keep` is given.
 */
import {
  closeSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { PLAYER_DIRECTORY } from '../src/compose/player-directory.ts';
import { createSilentLogger } from '../src/observe/logger.ts';
import { createRecorder, type RunningRecorder } from '../src/compose/recorder-parts.ts';
import { openBrowser } from '../test/real/support/browser.ts';

const args = new Map(
  process.argv.slice(2).map((arg) => arg.replace(/^--/, '').split('=') as [string, string]),
);
const GIGABYTES = Number(args.get('gigabytes') ?? 1);
const RECORDINGS = Number(args.get('recordings') ?? 100_000);
const NODE = 'nBENCH1CNTRL';
const START_MS = Date.UTC(2026, 0, 1);
/**
 * Number of recordings that fill a screen of 200 columns and 60 rows and thus have the largest thumbnails. These
 * recordings are the newest ones.
 */
const FULL_SCREENS = 60;
const SEEKS = 40;
const LAPTOP = { viewport: { width: 1366, height: 768 } };

interface Row {
  readonly what: string;
  readonly figure: number;
  readonly goal: number;
  readonly unit: string;
}
const rows: Row[] = [];
const add = (what: string, figure: number, goal: number, unit: string): void => {
  rows.push({ what, figure, goal, unit });
  const verdict = isMet({ figure, goal, unit }) ? 'met' : 'MISSED';
  console.log(`${what}: ${figure.toFixed(figure < 10 ? 2 : 0)} ${unit} (goal ${goal}: ${verdict})`);
};

function isMet({ figure, goal, unit }: Omit<Row, 'what'>): boolean {
  return unit === 'fps' ? figure >= goal : figure <= goal;
}

const folder = mkdtempSync(join(tmpdir(), 'tcbench-player-'));
process.on('exit', () => {
  if (!args.has('keep')) rmSync(folder, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));
const browser = await openBrowser();
let measured: BrowserContext | undefined;
try {
  add('page, compressed', pageBytes() / 1024, 120, 'KiB');
  if (GIGABYTES > 0) await measureLong(join(folder, 'long'));
  if (RECORDINGS > 0) await measureList(join(folder, 'many'));
} finally {
  await browser.close();
}
console.log('\n| what | figure | goal | met |\n|---|---:|---:|---|');
for (const row of rows) {
  const { what, figure, goal, unit } = row;
  const met = isMet(row) ? 'yes' : 'no';
  console.log(`| ${what} | ${figure.toFixed(figure < 10 ? 1 : 0)} ${unit} | ${goal} ${unit} | ${met} |`);
}
process.exitCode = rows.every(isMet) ? 0 : 1;

/** Returns the number of bytes that a browser loads for the page, which contains both the list and the player. */
function pageBytes(): number {
  const names = ['index.html.br', ...globSync('assets/!(access-*).br', { cwd: PLAYER_DIRECTORY })];
  return names.reduce((sum, name) => sum + statSync(join(PLAYER_DIRECTORY, name)).size, 0);
}

async function measureLong(directory: string): Promise<void> {
  console.log(`writing a recording of ${GIGABYTES} GB …`);
  const { id, seconds, bytes } = writeLong(directory);
  await using recorder = await startRecorder(directory);
  const index = `${recorder.url}/api/v1/recordings/${id}/playback?view=1`;
  const building = performance.now();
  add('first picture, while the index is made', await firstPicture(recorder, id), 300, 'ms');
  for (;;) {
    const response = await fetch(index);
    await response.arrayBuffer();
    if (response.status === 200) break;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  console.log(`the index was made in ${Math.round((performance.now() - building) / 1000)} s`);
  add('first picture', await firstPicture(recorder, id), 300, 'ms');
  const page = await openPage(browser);
  await page.goto(`${recorder.url}/#/r/${id}`);
  await page.locator('.strip').waitFor();
  const seeks: number[] = [];
  for (let count = 0; count < SEEKS; count += 1) {
    const share = ((count * 17 + 3) % (SEEKS + 1)) / (SEEKS + 1);
    const line = Math.floor((bytes.lines - 1) * share);
    const at = ((line + 0.5) / bytes.lines) * seconds;
    seeks.push(
      await page.evaluate<number>(
        `new Promise((done) => {
          const input = document.querySelector('.position input');
          const begun = performance.now();
          input.focus(); input.value = '${at.toFixed(4)}';
          input.dispatchEvent(new Event('input', { bubbles: true }));
          input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
          const look = () => {
            const text = document.querySelector('.terminal').textContent;
            if (text.match(/request \\d+/g)?.at(-1) === 'request ${line}') done(performance.now() - begun);
            else requestAnimationFrame(look);
          };
          look();
        })`,
      ),
    );
  }
  seeks.sort((left, right) => left - right);
  console.log(`seeks: ${seeks.map(Math.round).join(' ')} ms`);
  add(`seek, 95th percentile of ${SEEKS}`, seeks[Math.ceil(SEEKS * 0.95) - 1] ?? 0, 100, 'ms');
  await page.keyboard.press(' ');
  await page.waitForTimeout(2000);
  add('heap of the player', await heapOf(page), 40, 'MiB');
  await page.context().close();
}

/** Memory in use after a garbage collection, in MiB. */
async function heapOf(page: Page): Promise<number> {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  return (await session.send('Runtime.getHeapUsage')).usedSize / 1024 ** 2;
}

/** Returns the median over five loads. */
async function firstPicture(recorder: RunningRecorder, id: string): Promise<number> {
  const isShown = `/request \\d+/.test(document.querySelector('.terminal')?.textContent ?? '')`;
  const took: number[] = [];
  for (let count = 0; count < 5; count += 1) took.push(await timeTo(`${recorder.url}/#/r/${id}`, isShown));
  console.log(`first pictures: ${took.map(Math.round).join(' ')} ms`);
  return took.toSorted((left, right) => left - right)[2] ?? 0;
}

async function measureList(directory: string): Promise<void> {
  console.log(`writing ${RECORDINGS} recordings …`);
  writeMany(directory);
  await using recorder = await startRecorder(directory);
  console.log(`first rows of a recorder that has just started: ${Math.round(await firstRows(recorder))} ms`);
  await catalogued(recorder);
  const took: number[] = [];
  for (let count = 0; count < 5; count += 1) took.push(await firstRows(recorder));
  console.log(`first rows: ${took.map(Math.round).join(' ')} ms`);
  add('list, first rows, median of 5', took.toSorted((left, right) => left - right)[2] ?? 0, 200, 'ms');
  await measureThumbnails(recorder);
  const page = await openPage(browser);
  await page.goto(recorder.url);
  await page.locator('tr[data-id] a').first().waitFor();
  await measureScroll(page);
  add('heap of the list, scrolled', await heapOf(page), 40, 'MiB');
  await page.context().close();
}

/**
 * Waits until the catalogue contains all recordings, because its build would use a processor during the measurement.
 */
async function catalogued(recorder: RunningRecorder): Promise<void> {
  const begun = performance.now();
  // until the catalogue is complete, a recorder refuses all sort orders except `newest`
  while (!(await fetch(`${recorder.url}/api/v1/recordings?limit=1&sort=oldest`)).ok) {
    console.log('the catalogue is being built');
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
  console.log(`the catalogue was complete after ${Math.round((performance.now() - begun) / 1000)} s`);
}

function firstRows(recorder: RunningRecorder): Promise<number> {
  return timeTo(recorder.url, `document.querySelector('tr[data-id] a') !== null`);
}

/**
 * Returns the time from the start of a navigation to the first frame that fulfils `condition`, in milliseconds. The
 * page opens in a new tab with an empty cache.
 */
async function timeTo(address: string, condition: string): Promise<number> {
  measured ??= await openWindow();
  const page = await measured.newPage();
  const session = await measured.newCDPSession(page);
  await session.send('Network.clearBrowserCache');
  await page.addInitScript(`new MutationObserver((_, watching) => {
    if (!(${condition})) return;
    watching.disconnect();
    requestAnimationFrame(() => { globalThis.shownAt = performance.now(); });
  }).observe(document, { childList: true, subtree: true, characterData: true })`);
  await page.goto(address);
  await until(page, 'globalThis.shownAt !== undefined');
  const took = await page.evaluate<number>('shownAt');
  await page.close();
  return took;
}

/**
 * Opens a window in which all loads are measured. Chromium loads about 370 files of its own user interface into each
 * new window, and this would use the processors during a measurement.
 */
async function openWindow(): Promise<BrowserContext> {
  const page = await openPage(browser);
  await page.waitForTimeout(5000);
  return page.context();
}

/** Reloads the list until the recorder has built all thumbnails, and then counts the requests of a new page. */
async function measureThumbnails(recorder: RunningRecorder): Promise<void> {
  for (let isComplete = false; !isComplete;) {
    const { page, answers } = await openThumbnails(recorder);
    const missing = `document.querySelectorAll('.thumbnail:not(:has(canvas))').length`;
    console.log(`${await page.evaluate<number>(missing)} thumbnails are not built yet`);
    await until(page, `${missing} === 0`);
    isComplete = answers.length === 1;
    await page.context().close();
  }
  const { page, answers } = await openThumbnails(recorder);
  await page.waitForTimeout(3000);
  const thumbnails = answers.flatMap((body) => Object.values(body.thumbnails));
  const largest = Math.max(...thumbnails.map((rows) => JSON.stringify(rows).length));
  console.log(`${thumbnails.length} thumbnails of a page of the list`);
  add('requests for the thumbnails of a page of the list', answers.length, 1, 'request');
  add('largest thumbnail', largest / 1024, 4, 'KiB');
  await page.context().close();
}

interface ThumbnailBody {
  readonly thumbnails: Readonly<Record<string, readonly string[]>>;
}

/** Opens the list and waits for the first thumbnails. */
async function openThumbnails(
  recorder: RunningRecorder,
): Promise<{ readonly page: Page; readonly answers: readonly ThumbnailBody[] }> {
  const page = await openPage(browser);
  const answers: ThumbnailBody[] = [];
  page.on('response', (response) => {
    if (response.url().includes('/api/v1/thumbnails'))
      // a response may arrive while the page closes
      response.json().then(
        (body: ThumbnailBody) => void answers.push(body),
        () => undefined,
      );
  });
  await page.goto(recorder.url);
  await page.locator('.thumbnail canvas').first().waitFor();
  return { page, answers };
}

async function measureScroll(page: Page): Promise<void> {
  const {
    frames,
    rows: reached,
    nodes,
  } = await page.evaluate<{ frames: number[]; rows: number; nodes: number }>(
    `new Promise((done) => {
      const frames = [];
      let last = performance.now();
      const end = last + 20000;
      const step = (now) => {
        frames.push(now - last);
        last = now;
        scrollBy(0, 120);
        if (now < end) requestAnimationFrame(step);
        else done({
          frames,
          rows: Math.round(scrollY / 36),
          nodes: document.querySelectorAll('*').length,
        });
      };
      requestAnimationFrame(step);
    })`,
  );
  const seconds = frames.reduce((sum, frame) => sum + frame, 0) / 1000;
  frames.sort((left, right) => left - right);
  const late = frames.filter((frame) => frame > 34).length;
  console.log(
    `scrolled past some ${reached} rows, ${nodes} elements in the page, ${late} of ${frames.length} frames late`,
  );
  add('scrolling', Math.round(frames.length / seconds), 60, 'fps');
  add('frame, 99th percentile', frames[Math.floor(frames.length * 0.99)] ?? 0, 34, 'ms');
}

async function openPage(from: Browser): Promise<Page> {
  const context = await from.newContext({ ...LAPTOP, reducedMotion: 'reduce' });
  return context.newPage();
}

/** Polls on each animation frame, because the page's Content-Security-Policy blocks Playwright's `waitForFunction`. */
async function until(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise((done) => {
    const look = () => (${condition} ? done() : requestAnimationFrame(look));
    look();
  })`);
}

function startRecorder(directory: string): Promise<RunningRecorder & AsyncDisposable> {
  return createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory,
    playerDirectory: PLAYER_DIRECTORY,
    searchText: 'off',
    identify: async () => ({ kind: 'refused', reason: 'this archive is only read' }),
    identifyViewer: async () => ({ node: 'bench.example.ts.net', nodeId: 'nB', user: 'carol@example.com' }),
    log: createSilentLogger(),
    timing: { closeGraceMs: 200 },
  }).then((recorder) => Object.assign(recorder, { [Symbol.asyncDispose]: () => recorder.close() }));
}

function headerOf(number: number): string {
  return `${JSON.stringify({
    version: 2,
    width: 100,
    height: 30,
    timestamp: START_MS / 1000 + number,
    command: number % 3 === 0 ? 'bash' : `kubectl logs deploy/web-${number % 97}`,
    srcNode: `laptop-${number % 40}.example.ts.net`,
    srcNodeID: 'nLAP',
    srcNodeUser: `user-${number % 25}@example.com`,
    kubernetes: { PodName: `web-${number % 500}`, Namespace: 'prod', Container: 'app', SessionType: 'exec' },
    tailcast: 1,
  })}\n`;
}

function keyAt(number: number): string {
  return `${new Date(START_MS + number * 60_000).toISOString().replace('Z', '000000Z')}`;
}

/** Returns coloured lines of a busy log that covers 90 minutes. */
function writeLong(directory: string): { id: string; seconds: number; bytes: { lines: number } } {
  mkdirSync(join(directory, NODE), { recursive: true });
  const file = openSync(join(directory, NODE, `${keyAt(0)}.cast`), 'w');
  writeSync(file, headerOf(0));
  const line = (number: number, at: string): string =>
    `[${at},"o","\\u001b[3${number % 8}mrequest ${number}\\u001b[0m ${'served in time '.repeat(12)}\\r\\n"]\n`;
  const total = GIGABYTES * 1e9;
  const lines = Math.floor(total / line(1_000_000, '1000.00000').length);
  const seconds = 5400;
  let text = '';
  for (let number = 0; number < lines; number += 1) {
    text += line(number, ((number / lines) * seconds).toFixed(5));
    if (text.length < 4e6) continue;
    writeSync(file, text);
    text = '';
    if (number % 500_000 < 20_000) console.log(`  ${Math.round((number / lines) * 100)} %`);
  }
  writeSync(file, text);
  closeSync(file);
  return { id: `${NODE}_${keyAt(0)}`, seconds, bytes: { lines } };
}

function writeMany(directory: string): void {
  mkdirSync(join(directory, NODE), { recursive: true });
  const full = JSON.stringify([1, 'o', `\u001b[1;1H${'\u001b[31mx\u001b[44my'.repeat(6000)}`]);
  for (let number = 0; number < RECORDINGS; number += 1) {
    const isFull = number >= RECORDINGS - FULL_SCREENS;
    const [header, output] = isFull
      ? [headerOf(number).replace('"width":100,"height":30', '"width":200,"height":60'), full]
      : [headerOf(number), '[1.5,"o","hello"]'];
    writeFileSync(
      join(directory, NODE, `${keyAt(number)}.cast`),
      `${header}${output}\n[${number % 600},"o","bye"]\n`,
    );
    if (number % 20_000 === 0) console.log(`  ${number} of ${RECORDINGS}`);
  }
}

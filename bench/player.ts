/**
 * Measures the player page in Chromium, with temporary archives:
 *
 *   npm run bench:player [-- --gigabytes=1 --recordings=100000 --keep]
 *
 * Uses one recording of the given size, and a list of the given length. Prints progress and a table with the goals, and
 * exits with 1 if a goal is missed. Removes the archives afterwards, unless `--keep` is given. README.md describes the
 * measurements.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core';
import { PLAYER_DIRECTORY } from '../src/compose/player-directory.ts';
import { writeLong, writeMany } from './player-archive.ts';
import { median } from './recorder.ts';
import { openBrowser } from '../test/real/support/browser.ts';

const args = new Map(
  process.argv.slice(2).map((arg) => arg.replace(/^--/, '').split('=') as [string, string]),
);
const GIGABYTES = Number(args.get('gigabytes') ?? 1);
const RECORDINGS = Number(args.get('recordings') ?? 100_000);
const SEEKS = 40;
/** Number of rows that the scrolling passes, at most. */
const SCROLLED_ROWS = 4000;
/** Latency of each request in additional loads. Their times show how many requests run one after another. */
const LATENCY_MS = 100;
const LAPTOP = { viewport: { width: 1366, height: 768 } };

const HAS_ROWS = `document.querySelector('tr[data-id] a') !== null`;

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
  const { id, seconds, bytes } = writeLong(directory, GIGABYTES);
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
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.goto(`${recorder.url}/#/r/${id}`);
  await page.locator('.strip').waitFor();
  const before = await cpuOf(session);
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
  const cpuMs = ((await cpuOf(session)) - before) / SEEKS;
  console.log(
    `seeks: ${seeks.map(Math.round).join(' ')} ms; ${cpuMs.toFixed(1)} ms of CPU time of the page each`,
  );
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

/** Returns the median time over five loads, and prints the other measurements of the loads. */
async function medianLoad(name: string, address: string, condition: string): Promise<number> {
  const loads: Load[] = [];
  for (let count = 0; count < 5; count += 1) loads.push(await load(address, condition));
  const far = await load(address, condition, LATENCY_MS);
  console.log(
    `${name}: ${loads.map(({ ms }) => Math.round(ms)).join(' ')} ms; ` +
      `${Math.round(median(loads.map(({ cpuMs }) => cpuMs)))} ms of CPU time of the page; ` +
      `${Math.round(far.ms)} ms with a latency of ${LATENCY_MS} ms per request`,
  );
  return median(loads.map(({ ms }) => ms));
}

function firstPicture(recorder: Recorder, id: string): Promise<number> {
  const isShown = `/request \\d+/.test(document.querySelector('.terminal')?.textContent ?? '')`;
  return medianLoad('first pictures', `${recorder.url}/#/r/${id}`, isShown);
}

async function measureList(directory: string): Promise<void> {
  console.log(`writing ${RECORDINGS} recordings …`);
  writeMany(directory, RECORDINGS);
  await using recorder = await startRecorder(directory);
  const { ms } = await load(recorder.url, HAS_ROWS);
  console.log(`first rows of a recorder that has just started: ${Math.round(ms)} ms`);
  await catalogued(recorder);
  add('list, first rows, median of 5', await medianLoad('first rows', recorder.url, HAS_ROWS), 200, 'ms');
  await measureThumbnails(recorder);
  await buildThumbnails(recorder);
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
async function catalogued(recorder: Recorder): Promise<void> {
  const begun = performance.now();
  // until the catalogue is complete, a recorder refuses all sort orders except `newest`
  while (!(await fetch(`${recorder.url}/api/v1/recordings?limit=1&sort=oldest`)).ok) {
    console.log('the catalogue is being built');
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
  console.log(`the catalogue was complete after ${Math.round((performance.now() - begun) / 1000)} s`);
}

interface Load {
  /** Time from the start of the navigation to the first frame that fulfils the condition, in milliseconds. */
  readonly ms: number;
  /** CPU time of the page's main thread until then, in milliseconds. */
  readonly cpuMs: number;
}

/**
 * Loads a page in a new tab with an empty cache, until a frame fulfils `condition`. The time contains layout and paint
 * of the frame in the main thread.
 *
 * @param latencyMs additional latency of each request
 */
async function load(address: string, condition: string, latencyMs = 0): Promise<Load> {
  measured ??= await openWindow();
  const page = await measured.newPage();
  const session = await measured.newCDPSession(page);
  // the page of the measurement and this page run in one renderer process, whose CPU time is the metric
  await page.goto(new URL('/healthz', address).href);
  await session.send('Network.clearBrowserCache');
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  if (latencyMs > 0) {
    await session.send('Network.enable');
    const conditions = { offline: false, latency: latencyMs, downloadThroughput: -1, uploadThroughput: -1 };
    await session.send('Network.emulateNetworkConditions', conditions);
  }
  await page.addInitScript(`new MutationObserver((_, watching) => {
    if (!(${condition})) return;
    watching.disconnect();
    requestAnimationFrame(() => setTimeout(() => { globalThis.shownAt = performance.now(); }));
  }).observe(document, { childList: true, subtree: true, characterData: true })`);
  const before = await cpuOf(session);
  await page.goto(address);
  await until(page, 'globalThis.shownAt !== undefined');
  const ms = await page.evaluate<number>('shownAt');
  const cpuMs = (await cpuOf(session)) - before;
  await page.close();
  return { ms, cpuMs };
}

/** Returns the CPU time of all tasks of the page's main thread, in milliseconds. */
async function cpuOf(session: CDPSession): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics');
  return (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? Number.NaN) * 1000;
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
async function measureThumbnails(recorder: Recorder): Promise<void> {
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
  recorder: Recorder,
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

/**
 * Waits until the recorder has built the thumbnails that a scrolling viewer sees, because the builds would use a
 * processor during the measurement. A recorder usually runs on another machine than the browser.
 */
async function buildThumbnails({ url }: Recorder): Promise<void> {
  let cursor = '';
  for (let shown = 0; shown < SCROLLED_ROWS;) {
    const list = await fetch(`${url}/api/v1/recordings?limit=50${cursor}`);
    const { recordings, next } = (await list.json()) as {
      recordings: readonly { readonly id: string }[];
      next?: string;
    };
    const ids = new URLSearchParams({ ids: recordings.map(({ id }) => id).join() });
    for (;;) {
      const response = await fetch(`${url}/api/v1/thumbnails?${ids.toString()}`);
      const { thumbnails } = (await response.json()) as ThumbnailBody;
      // otherwise the recorder has waited for some of the builds
      if (Object.keys(thumbnails).length === recordings.length) break;
    }
    shown += recordings.length;
    if (next === undefined || next === null) return;
    cursor = `&cursor=${encodeURIComponent(next)}`;
  }
}

async function measureScroll(page: Page): Promise<void> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const before = await cpuOf(session);
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
  const cpuMs = ((await cpuOf(session)) - before) / frames.length;
  const seconds = frames.reduce((sum, frame) => sum + frame, 0) / 1000;
  frames.sort((left, right) => left - right);
  const late = frames.filter((frame) => frame > 34).length;
  console.log(
    `scrolled past some ${reached} rows, ${nodes} elements in the page, ${late} of ${frames.length} frames late, ` +
      `${cpuMs.toFixed(1)} ms of CPU time of the page per frame`,
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

interface Recorder extends AsyncDisposable {
  readonly url: string;
}

/** Starts a recorder in its own process, because the process of the benchmark also controls the browser. */
async function startRecorder(directory: string): Promise<Recorder> {
  const program = fileURLToPath(new URL('recorder-server.ts', import.meta.url));
  const child = spawn(process.execPath, [program, directory, PLAYER_DIRECTORY], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const [url] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return {
    url,
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await exited;
    },
  };
}

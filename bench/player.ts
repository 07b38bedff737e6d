/**
 * Measures the player page in Chromium, with temporary archives:
 *
 *   npm run bench:player [-- --gigabytes=1 --recordings=100000 --keep]
 *
 * Uses one recording of the given size, and a list of the given length. Prints a table with the goals, and exits with 1
 * if a goal is missed.
 */
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
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
  console.log(`${what}: ${figure.toFixed(figure < 10 ? 2 : 0)} ${unit} (goal ${goal})`);
};

const folder = mkdtempSync(join(tmpdir(), 'tcbench-player-'));
const browser = await openBrowser();
try {
  add('page, compressed', pageBytes() / 1024, 250, 'KiB');
  if (GIGABYTES > 0) await measureLong(join(folder, 'long'));
  if (RECORDINGS > 0) await measureList(join(folder, 'many'));
} finally {
  await browser.close();
  if (!args.has('keep')) rmSync(folder, { recursive: true, force: true });
}
console.log('\n| what | figure | goal |\n|---|---:|---:|');
for (const { what, figure, goal, unit } of rows)
  console.log(`| ${what} | ${figure.toFixed(figure < 10 ? 1 : 0)} ${unit} | ${goal} ${unit} |`);
process.exitCode = rows.every(({ figure, goal, unit }) => (unit === 'fps' ? figure >= goal : figure <= goal))
  ? 0
  : 1;

/** Returns the bytes that a browser loads before the list is visible. */
function pageBytes(): number {
  const assets = join(PLAYER_DIRECTORY, 'assets');
  const first = readdirSync(assets).filter((name) => /^index-.*\.br$/.test(name));
  return [join(PLAYER_DIRECTORY, 'index.html.br'), ...first.map((name) => join(assets, name))].reduce(
    (sum, path) => sum + statSync(path).size,
    0,
  );
}

async function measureLong(directory: string): Promise<void> {
  console.log(`writing a recording of ${GIGABYTES} GB …`);
  const { id, seconds, bytes } = writeLong(directory);
  await using recorder = await startRecorder(directory);
  const index = `${recorder.url}/api/v1/recordings/${id}/playback?view=1`;
  const building = performance.now();
  add('first picture, while the index is made', await firstPicture(recorder, id), 1000, 'ms');
  for (;;) {
    const response = await fetch(index);
    await response.arrayBuffer();
    if (response.status === 200) break;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  console.log(`the index was made in ${Math.round((performance.now() - building) / 1000)} s`);
  add('first picture', await firstPicture(recorder, id), 1000, 'ms');
  const page = await openPage(browser);
  await page.goto(`${recorder.url}/#/r/${id}`);
  await page.locator('.strip').waitFor();
  const seeks: number[] = [];
  for (let count = 0; count < 15; count += 1) {
    const share = ((count * 7 + 3) % 16) / 16;
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
  add('seek, median of 15', seeks[7] ?? 0, 300, 'ms');
  add('seek, slowest of 15', seeks[14] ?? 0, 300, 'ms');
  await page.keyboard.press(' ');
  await page.waitForTimeout(2000);
  await (await page.context().newCDPSession(page)).send('HeapProfiler.collectGarbage');
  add(
    'heap of the page',
    (await page.evaluate<number>('performance.memory.usedJSHeapSize')) / 1024 ** 2,
    150,
    'MiB',
  );
  await page.context().close();
}

/** The median of five new browser contexts. */
async function firstPicture(recorder: RunningRecorder, id: string): Promise<number> {
  const took: number[] = [];
  for (let count = 0; count < 5; count += 1) {
    const page = await openPage(browser);
    const begun = performance.now();
    await page.goto(`${recorder.url}/#/r/${id}`);
    await shown(page, /request \d+/);
    took.push(performance.now() - begun);
    await page.context().close();
  }
  console.log(`first pictures: ${took.map(Math.round).join(' ')} ms`);
  return took.toSorted((left, right) => left - right)[2] ?? 0;
}

async function measureList(directory: string): Promise<void> {
  console.log(`writing ${RECORDINGS} recordings …`);
  writeMany(directory);
  await using recorder = await startRecorder(directory);
  for (const [name, note] of [
    ['list, first rows, of a recorder that has just started', 'cold'],
    ['list, first rows', 'warm'],
  ] as const) {
    const page = await openPage(browser);
    await page.addInitScript(`addEventListener('DOMContentLoaded', () => {
      new MutationObserver((_, watching) => {
        if (document.querySelector('tr[data-id] a') === null) return;
        watching.disconnect();
        requestAnimationFrame(() => { globalThis.firstRows = performance.now(); });
      }).observe(document.body, { childList: true, subtree: true });
    })`);
    await page.goto(recorder.url);
    await until(page, 'globalThis.firstRows !== undefined');
    const took = await page.evaluate<number>('firstRows');
    if (note === 'warm') add(name, took, 500, 'ms');
    else console.log(`${name}: ${Math.round(took)} ms`);
    if (note === 'warm') await measureScroll(page);
    await page.context().close();
  }
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
  add('scrolling', frames.length / seconds, 58, 'fps');
  add('frame, 99th percentile', frames[Math.floor(frames.length * 0.99)] ?? 0, 34, 'ms');
}

async function openPage(from: Browser): Promise<Page> {
  const context = await from.newContext({ ...LAPTOP, reducedMotion: 'reduce' });
  return context.newPage();
}

/** Polls each frame, because the page's policy blocks playwright's own function. */
async function until(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise((done) => {
    const look = () => (${condition} ? done() : requestAnimationFrame(look));
    look();
  })`);
}

async function shown(page: Page, what: RegExp): Promise<void> {
  await until(page, `document.querySelector('.terminal')?.textContent.match(${what}) != null`);
}

function startRecorder(directory: string): Promise<RunningRecorder & AsyncDisposable> {
  return createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory,
    playerDirectory: PLAYER_DIRECTORY,
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

/** Coloured lines of a busy log that covers 90 minutes. */
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
  }
  writeSync(file, text);
  closeSync(file);
  return { id: `${NODE}_${keyAt(0)}`, seconds, bytes: { lines } };
}

function writeMany(directory: string): void {
  mkdirSync(join(directory, NODE), { recursive: true });
  for (let number = 0; number < RECORDINGS; number += 1)
    writeFileSync(
      join(directory, NODE, `${keyAt(number)}.cast`),
      `${headerOf(number)}[1.5,"o","hello"]\n[${number % 600},"o","bye"]\n`,
    );
}

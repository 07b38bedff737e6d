/** Archives for `player.ts`. */
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';

const NODE = 'nBENCH1CNTRL';
const START_MS = Date.UTC(2026, 0, 1);
/**
 * Number of recordings that fill a screen of 200 columns and 60 rows and thus have the largest thumbnails. These
 * recordings are the newest ones.
 */
const FULL_SCREENS = 60;

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

/** Writes one recording of this size: coloured lines of a log over 90 minutes. Returns its ID, duration and lines. */
export function writeLong(
  directory: string,
  gigabytes: number,
): { id: string; seconds: number; bytes: { lines: number } } {
  mkdirSync(join(directory, NODE), { recursive: true });
  const file = openSync(join(directory, NODE, `${keyAt(0)}.cast`), 'w');
  writeSync(file, headerOf(0));
  const line = (number: number, at: string): string =>
    `[${at},"o","\\u001b[3${number % 8}mrequest ${number}\\u001b[0m ${'served in time '.repeat(12)}\\r\\n"]\n`;
  const total = gigabytes * 1e9;
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

/** Writes this number of small recordings. The newest `FULL_SCREENS` of them have a full screen. */
export function writeMany(directory: string, recordings: number): void {
  mkdirSync(join(directory, NODE), { recursive: true });
  const full = JSON.stringify([1, 'o', `\u001b[1;1H${'\u001b[31mx\u001b[44my'.repeat(6000)}`]);
  for (let number = 0; number < recordings; number += 1) {
    const isFull = number >= recordings - FULL_SCREENS;
    const [header, output] = isFull
      ? [headerOf(number).replace('"width":100,"height":30', '"width":200,"height":60'), full]
      : [headerOf(number), '[1.5,"o","hello"]'];
    writeFileSync(
      join(directory, NODE, `${keyAt(number)}.cast`),
      `${header}${output}\n[${number % 600},"o","bye"]\n`,
    );
    if (number % 20_000 === 0) console.log(`  ${number} of ${recordings}`);
  }
}

/**
 * Cost of the journal of unacknowledged output: CPU time per MB of asciicast events, and per line of an echo.
 *
 *   node bench/journal.ts [--megabytes 512]
 *
 * Each case writes through a `SessionJournal` into a scratch directory. Data is acknowledged one window later, as by a
 * recorder. The control does the same without a journal. Prints a table; the CPU time is of the complete process,
 * including the kernel.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { randomBytes } from 'node:crypto';
import { createJournalKey } from '../src/recording/journal/journal-key.ts';
import { SessionJournal, type JournalRoom } from '../src/recording/journal/session-journal.ts';
import { Preamble } from '../src/recording/preamble.ts';

const { values } = parseArgs({ options: { megabytes: { type: 'string', default: '512' } } });
const MB = 1_000_000;
const total = Number(values.megabytes) * MB;
const WINDOW = 8 * 1024 * 1024;
const folder = mkdtempSync(join(tmpdir(), 'tcjournal-bench-'));
const room: JournalRoom = {
  directory: () => folder,
  key: createJournalKey(randomBytes(32)),
  reserve: () => true,
  release: () => undefined,
  failed: (error) => {
    throw error;
  },
  forget: () => undefined,
};
const head = { sessionId: 'bench', recorders: ['192.0.2.1:80'], recorderTags: [], about: {} };

/** @returns microseconds of CPU per chunk */
async function measure(chunkBytes: number, count: number, name: string | undefined): Promise<number> {
  const chunk = randomBytes(chunkBytes);
  const preamble = new Preamble();
  const journal = name === undefined ? undefined : new SessionJournal(room, name, head);
  const before = process.cpuUsage();
  for (let index = 0; index < count; index += 1) {
    journal?.append(index * chunkBytes, chunk, preamble);
    journal?.acknowledged(index * chunkBytes - WINDOW);
    // another thread removes files
    if (index % 16 === 0) await turn();
  }
  journal?.remove();
  await new Promise((resolve) => setTimeout(resolve, 200));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}

try {
  process.stdout.write('| bytes of lines per chunk | CPU per chunk | CPU per MB |\n| --: | --: | --: |\n');
  for (const [index, bytes] of [100, 4096, 65_536, 131_072].entries()) {
    const count = Math.min(200_000, Math.floor(total / bytes));
    await measure(bytes, Math.ceil(count / 10), `warm-${index}`);
    const control = await measure(bytes, count, undefined);
    const cost = (await measure(bytes, count, `case-${index}`)) - control;
    const perMb = (cost / 1000) * (MB / bytes);
    process.stdout.write(`| ${bytes} | ${cost.toFixed(1)} µs | ${perMb.toFixed(2)} ms |\n`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/**
 * Measures the number of stored bytes per byte of output. A `RecordingSession`, the class that gateways use, sends each
 * kind of output to a recorder. The recorder stores the output in each archive format. Prints a table of stored bytes
 * (cast, exact bytes and sidecar) per displayed byte; no time is measured.
 *
 *   node bench/stored.ts [--megabytes 50]
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:http2';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createRecorder, type RunningRecorder } from '../src/compose/recorder-parts.ts';
import { ARCHIVE_FORMATS } from '../src/config/archive-formats.ts';
import { createSilentLogger } from '../src/observe/logger.ts';
import { RecordingSession } from '../src/recording/session.ts';
import { createSealKeys } from '../src/tsrecorder/store/seal-keys.ts';
import { bytesWritten } from '../test/support/session-sink.ts';
import { EventBatch } from '../src/recording/event-batch.ts';

const { values } = parseArgs({ options: { megabytes: { type: 'string', default: '50' } } });
const BYTES = Number(values.megabytes) * 1_000_000;
/** Size of the pieces in which a gateway reads output, in bytes. */
const CHUNK_BYTES = 64 * 1024;
const CHUNK_MS = 1;
const CASTS = join(import.meta.dirname, '../test/fixtures/casts');

interface Content {
  readonly name: string;
  readonly tty: boolean;
  /** Pieces of output, each with its time in milliseconds since the start of the session. */
  readonly chunks: readonly (readonly [number, Uint8Array])[];
}

/** Output and timing of the terminal sessions in the playback tests. */
function castContent(file: string): Content {
  const lines = readFileSync(join(CASTS, file), 'utf8').trim().split('\n').slice(1);
  const events = lines.map((line) => JSON.parse(line) as [number, string, string]);
  const output = events.filter(([, kind]) => kind === 'o');
  return {
    name: `terminal: ${file.replace('.cast', '')}`,
    tty: true,
    chunks: output.map(([seconds, , text]) => [seconds * 1000, Buffer.from(text)]),
  };
}

function bulk(name: string, piece: (index: number) => Uint8Array): Content {
  const chunks: [number, Uint8Array][] = [];
  for (let bytes = 0; bytes < BYTES; bytes += CHUNK_BYTES) {
    const chunk = piece(chunks.length).subarray(0, Math.min(CHUNK_BYTES, BYTES - bytes));
    chunks.push([chunks.length * CHUNK_MS, chunk]);
  }
  return { name, tty: false, chunks };
}

/** Returns distinct lines of a program's log. */
function log(index: number): Uint8Array {
  const lines: string[] = [];
  for (let line = 0, bytes = 0; bytes < CHUNK_BYTES; line += 1) {
    const number = index * 1000 + line;
    const text = `2026-01-01T00:00:${(number / 997).toFixed(3)}Z INFO handler=${number % 17} id=${(number * 2_654_435_761) % 4_294_967_296} took=${number % 913}ms "GET /api/v1/items/${number}"\n`;
    lines.push(text);
    bytes += text.length;
  }
  return Buffer.from(lines.join('')).subarray(0, CHUNK_BYTES);
}

/** @returns the upload of a session with this output */
function castOf({ tty, chunks }: Content): readonly Uint8Array[] {
  const written: Uint8Array[] = [];
  let nowMs = 0;
  const session = new RecordingSession(
    {
      createBatch: () => new EventBatch({ frames: false, annotations: true }),
      policy: 'bestEffort',
      write: (lines) => void written.push(bytesWritten(lines)),
      whenShown: () => undefined,
      end: async () => 'confirmed',
      leave: () => undefined,
    },
    {
      tty,
      enforce: true,
      header: ({ columns, rows }) =>
        `{"version":2,"width":${columns},"height":${rows},"timestamp":1785325858,"command":"bench","srcNode":"n","srcNodeID":"n"}\n`,
      about: { kind: 'session', id: 'bench', tty, stdin: false, protocol: 'spdy', path: '/x' },
      nowMs: () => nowMs,
    },
  );
  if (tty) session.resize({ columns: 80, rows: 24 });
  for (const [ms, chunk] of chunks) {
    nowMs = ms;
    session.output('stdout', chunk);
    void session.flush();
  }
  session.exit({ kind: 'success' });
  void session.end('completed');
  return written;
}

async function upload({ url }: RunningRecorder, name: string, pieces: readonly Uint8Array[]): Promise<void> {
  const http = connect(url);
  const stream = http.request({ ':method': 'POST', ':path': '/v2/record', 'tailcast-session': name });
  stream.resume();
  for (const piece of pieces) if (!stream.write(piece)) await once(stream, 'drain');
  stream.end();
  await once(stream, 'close');
  http.close();
}

/** Returns the size of the recording's objects, in bytes. */
function storedIn(directory: string): number {
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' });
  const ours = files.filter((file) => /\.(?:cast|notes|json)$/.test(file) && !file.startsWith('.'));
  return ours.reduce((sum, file) => sum + statSync(join(directory, file)).size, 0);
}

/** The executable of Node, as an example of a file that `kubectl cp` copies. */
const program = readFileSync(process.execPath);
const contents = [
  ...readdirSync(CASTS).toSorted().map(castContent),
  bulk('log', log),
  bulk('zeros', () => new Uint8Array(CHUNK_BYTES)),
  bulk('random bytes', () => randomBytes(CHUNK_BYTES)),
  bulk('copied file', (index) => program.subarray((index * CHUNK_BYTES) % (program.length - CHUNK_BYTES))),
];
const keys = createSealKeys([randomBytes(32)]);
console.log(`| content | bytes shown | ${ARCHIVE_FORMATS.join(' | ')} |`);
console.log(`| --- | --: |${' --: |'.repeat(ARCHIVE_FORMATS.length)}`);
for (const content of contents) {
  const shown = content.chunks.reduce((sum, [, chunk]) => sum + chunk.length, 0);
  const ratios: string[] = [];
  for (const archive of ARCHIVE_FORMATS) {
    const directory = mkdtempSync(join(tmpdir(), 'tcstored-'));
    const recorder = await createRecorder({
      listen: { host: '127.0.0.1', port: 0 },
      directory,
      archive,
      sealKeys: keys,
      identify: async () => ({ kind: 'accepted', nodeId: 'nBENCH', nodeName: 'bench.ts.net' }),
      log: createSilentLogger(),
    });
    try {
      await upload(
        recorder,
        `bench-${process.pid}-${archive}-${content.name.replace(/\W/g, '')}`,
        castOf(content),
      );
      await recorder.close();
      const ratio = storedIn(directory) / shown;
      ratios.push(ratio < 0.01 ? ratio.toFixed(4) : ratio.toFixed(2));
    } finally {
      rmSync(directory, { recursive: true, force: true });
      rmSync(`${directory}.spool`, { recursive: true, force: true });
    }
  }
  console.log(`| ${content.name} | ${shown.toLocaleString('en')} | ${ratios.join(' | ')} |`);
}

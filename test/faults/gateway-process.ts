/**
 * The recording part of a gateway in its own process, for tests that kill it: `node gateway-process.ts <json>`. The
 * sessions write as fast as their recorder acknowledges. The process reports over IPC, and ends the sessions on
 * request. If a session loses its recorder permanently, the gateway delivers a final message later, and then reports
 * the session as confirmed.
 */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createJournalKey, KEY_BYTES } from '../../src/recording/journal/journal-key.ts';
import { Journals } from '../../src/recording/journal/journals.ts';
import { createRecorderClient } from '../../src/recording/recorder-client.ts';
import { parseCastEvent } from '../../src/wire/asciicast/event.ts';
import { FrameBatch } from '../../src/wire/recorder-api/upload-frame.ts';
import { CUT_END, END, sessionLines, type SessionReport } from './workload.ts';

export interface GatewayPlan {
  /** `ip:port` in order of preference. */
  readonly recorders: readonly string[];
  readonly sessions: readonly number[];
  /** Pause between two writes of one session. */
  readonly paceMs: number;
  /** Maximum time in which a session tries other recorders. */
  readonly moveTimeoutMs?: number;
  /** Folder for unacknowledged output. The process also delivers output that earlier processes left there. */
  readonly journals?: string;
}

const FLOOD_BYTES = 80 * 1024;

const plan = JSON.parse(process.argv[2] ?? '{}') as GatewayPlan;
const journals =
  plan.journals === undefined
    ? undefined
    : await Journals.open({
        directory: plan.journals,
        key: createJournalKey(Buffer.alloc(KEY_BYTES, 1)),
        maxBytes: 1024 ** 3,
        unixMs: Date.now,
        log: createSilentLogger(),
        eventsOf: () => ({
          left: () => undefined,
          delivered: () => undefined,
          dropped: () => undefined,
          kept: () => undefined,
        }),
        signMs: 200,
      });
const stopped = Promise.withResolvers<void>();
const client = createRecorderClient({
  dial: async (address) => {
    const [host = '', port = ''] = address.split(':');
    const socket = connect(Number(port), host);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return socket;
  },
  nowMs: () => performance.now(),
  log: createSilentLogger(),
  limits: { maxPendingBytes: 256 * 1024, moveTimeoutMs: plan.moveTimeoutMs ?? 30_000, suspectMs: 500 },
  lateLimits: { retryMs: 50, maxRetryMs: 300 },
  journals,
});

/** Returns a line of a session as a frame: an output event as its exact bytes, any other line as text. */
function frameOf(line: string): Uint8Array {
  const batch = new FrameBatch();
  const event = line.startsWith('[') ? parseCastEvent(line) : undefined;
  if (event === undefined) batch.text(line);
  else batch.output(event.seconds, Buffer.from(event.data), 'exact');
  return batch.take();
}

/**
 * Returns the lines of a session in batches. Every second session has large batches, which may wait for the recorder
 * before the gateway writes them to the journal.
 */
function* writesOf(session: number): Generator<readonly string[]> {
  const leastBytes = session % 2 === 0 ? 0 : FLOOD_BYTES;
  let lines: string[] = [];
  let bytes = 0;
  for (const line of sessionLines(session)) {
    lines.push(line);
    bytes += line.length;
    if (bytes < leastBytes) continue;
    yield lines;
    lines = [];
    bytes = 0;
  }
}

let ending = false;
process.on('message', () => {
  ending = true;
  stopped.resolve();
});
const reports = new Map<number, SessionReport>();
let changed = false;

async function run(session: number): Promise<void> {
  const late = Promise.withResolvers<boolean>();
  const opened = await client.open(
    {
      recorders: plan.recorders,
      sessionId: `session-${session}`,
      late: {
        left: () => undefined,
        delivered: () => late.resolve(true),
        dropped: () => late.resolve(false),
        kept: () => late.resolve(false),
      },
    },
    new AbortController().signal,
  );
  let written = 0;
  let shown = 0;
  let acked = 0;
  /**
   * Number of bytes written to the upload. `ends` contains the positions of line ends that are not acknowledged yet.
   */
  let sent = 0;
  const ends: { readonly kept: number; readonly lines: number }[] = [];
  const write = (...lines: readonly string[]): void | Promise<void> => {
    const pieces = lines.map((line) => frameOf(line));
    const room = opened.write(pieces);
    for (const [index, line] of lines.entries()) {
      sent += pieces[index]?.length ?? 0;
      written += line.length;
      ends.push({ kept: sent, lines: written });
    }
    return room;
  };
  const acknowledged = (): number => {
    const kept = sent - opened.pendingBytes;
    let last = acked;
    while (ends[0] !== undefined && ends[0].kept <= kept) last = ends.shift()?.lines ?? last;
    return last;
  };
  let ackedAt = performance.now();
  let pauseMs = 0;
  let lost: string | undefined;
  const report = (confirmed: boolean): void => {
    const now = performance.now();
    const latest = lost === undefined ? acknowledged() : acked;
    // the upload progresses if new bytes are acknowledged, or if all bytes are acknowledged
    if (latest > acked || latest === written) {
      if (latest > acked) pauseMs = Math.max(pauseMs, now - ackedAt);
      ackedAt = now;
    }
    acked = latest;
    reports.set(session, { session, written, shown, acked, confirmed, lost, pauseMs });
    changed = true;
  };
  void opened.lost.then((error) => {
    lost = error.message;
    report(false);
  });
  const timer = setInterval(() => report(false), 2);
  try {
    for (const lines of writesOf(session)) {
      await write(...lines);
      shown = written;
      if (ending && lines.at(-1)?.startsWith('[') === true) break;
      if (plan.paceMs > 0 && written % 7 === 0) await delay(plan.paceMs);
    }
    await write(END);
    clearInterval(timer);
    report((await opened.end()) === 'confirmed' || (await late.promise));
  } catch (error) {
    clearInterval(timer);
    lost ??= String(error);
    report(false);
    written += CUT_END.length;
    opened.leave(frameOf(CUT_END));
    report(await late.promise);
  }
}

setInterval(() => {
  if (!changed || process.connected !== true) return;
  changed = false;
  process.send?.([...reports.values()]);
}, 2);
await Promise.all(plan.sessions.map(run));
if (journals !== undefined && plan.sessions.length === 0) await stopped.promise;
process.send?.([...reports.values()], () => process.disconnect?.());
setTimeout(() => process.exit(0), 50);

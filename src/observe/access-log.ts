/**
 * The access log: one JSON line per finished request, on a destination of its own. Lines are gathered and written
 * together, because one write per request would cost more than relaying a small one. Query strings are not logged:
 * they can carry commands and selectors that belong in recordings, not here.
 */
import type { Protocol } from './metrics.ts';

/** HTTP status in logs and metrics for a client that left before it got one (as nginx has it). */
export const CLIENT_LEFT = 499;
const MAX_LOGGED_PATH = 1024;

/** The path of a request target for logs: without the query, and no longer than a line can bear. */
export function loggedPath(target: string): string {
  const mark = target.indexOf('?');
  return target.slice(0, Math.min(mark === -1 ? target.length : mark, MAX_LOGGED_PATH));
}

/** One finished request. */
export interface AccessEntry {
  readonly id: string;
  readonly protocol: Protocol;
  readonly peer: string;
  /** Login or node name; empty when the request was refused before that was known. */
  readonly user: string;
  readonly method: string;
  /** See `loggedPath`. */
  readonly path: string;
  /** Status sent to the client; `CLIENT_LEFT` when it went away before one was sent. */
  readonly status: number;
  readonly durationMs: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  /** Code of what went wrong, also when the status had already been sent. */
  readonly error?: string;
}

export interface AccessLog {
  write(entry: AccessEntry): void;
  /** Writes what is gathered now. */
  flush(): void;
  /** Stops the timer and flushes. */
  close(): void;
  /** Lines dropped because the destination did not keep up. */
  readonly dropped: number;
}

/** Where the lines go, e.g. `process.stdout`. `write` returns false when the destination is full. */
export interface LineSink {
  write(text: string): boolean;
  readonly writableLength: number;
}

/**
 * @param options.nowMs wall clock; the time of a line is when its request began
 * @param options.flushMs how long a line may wait (default 200 ms)
 * @param options.maxPendingBytes when the sink holds more than this, new lines are dropped and counted (default 4 MiB)
 */
export function createAccessLog(
  sink: LineSink,
  options: {
    readonly flushMs?: number;
    readonly maxPendingBytes?: number;
    readonly nowMs?: () => number;
  } = {},
): AccessLog {
  const flushMs = options.flushMs ?? 200;
  const maxPendingBytes = options.maxPendingBytes ?? 4 * 1024 * 1024;
  const nowMs = options.nowMs ?? Date.now;
  const gatherLimit = 32 * 1024;
  let gathered = '';
  let timer: NodeJS.Timeout | undefined;
  let dropped = 0;

  const flush = (): void => {
    if (timer !== undefined) clearTimeout(timer);
    timer = undefined;
    if (gathered === '') return;
    sink.write(gathered);
    gathered = '';
  };

  return {
    write(entry) {
      if (sink.writableLength > maxPendingBytes) {
        dropped += 1;
        return;
      }
      gathered += formatEntry(entry, nowMs() - entry.durationMs);
      if (gathered.length >= gatherLimit) flush();
      else timer ??= setTimeout(flush, flushMs).unref();
    },
    flush,
    close: flush,
    get dropped() {
      return dropped;
    },
  };
}

/** An access log that keeps nothing. */
export function createNullAccessLog(): AccessLog {
  return { write() {}, flush() {}, close() {}, dropped: 0 };
}

function formatEntry(entry: AccessEntry, atMs: number): string {
  const error = entry.error === undefined ? '' : `,"error":${quote(entry.error)}`;
  return (
    `{"time":"${isoTime(atMs)}","level":"info","msg":"request","id":${quote(entry.id)}` +
    `,"protocol":"${entry.protocol}","peer":${quote(entry.peer)},"user":${quote(entry.user)}` +
    `,"method":${quote(entry.method)},"path":${quote(entry.path)},"status":${entry.status}` +
    `,"durationMs":${Math.round(entry.durationMs * 1000) / 1000}` +
    `,"requestBytes":${entry.requestBytes},"responseBytes":${entry.responseBytes}${error}}\n`
  );
}

/** Plain text goes between quotes as it is; `JSON.stringify` is only called for what needs escaping. */
function quote(text: string): string {
  return SAFE_TEXT.test(text) ? `"${text}"` : JSON.stringify(text);
}
const SAFE_TEXT = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/** `toISOString` costs a microsecond; within one second only the milliseconds change. */
let isoSecond = -1;
let isoPrefix = '';
function isoTime(atMs: number): string {
  const second = Math.floor(atMs / 1000);
  if (second !== isoSecond) {
    isoSecond = second;
    isoPrefix = new Date(second * 1000).toISOString().slice(0, 20);
  }
  return `${isoPrefix}${String(Math.floor(atMs) - second * 1000).padStart(3, '0')}Z`;
}

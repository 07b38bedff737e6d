/**
 * The access log: one JSON line for each finished request. The destination of this log is separate from the destination
 * of the other logs. Lines are buffered, because a separate write for each request would be more expensive than
 * relaying a small request. Query strings are not logged, because they can contain commands and selectors.
 */
import { escapeLogLines } from '../safe-text.ts';
import type { Protocol } from './metrics.ts';

/** HTTP status in logs and metrics for a client that disconnected before the response. nginx uses the same number. */
export const CLIENT_LEFT = 499;
const MAX_LOGGED_PATH = 1024;

/** Returns the path of a request target for logs, without the query and with a maximum length. */
export function loggedPath(target: string): string {
  const mark = target.indexOf('?');
  return target.slice(0, Math.min(mark === -1 ? target.length : mark, MAX_LOGGED_PATH));
}

/** One finished request. */
export interface AccessEntry {
  readonly id: string;
  readonly protocol: Protocol;
  readonly peer: string;
  /** Login or node name; empty if the request was rejected before authentication. */
  readonly user: string;
  readonly method: string;
  /** Path from `loggedPath`. */
  readonly path: string;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string | undefined;
  /** Status that the client received, or `CLIENT_LEFT` if the client disconnected before the response. */
  readonly status: number;
  readonly durationMs: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  /** Error code. An error that occurred after the status was sent also sets this field. */
  readonly error?: string;
}

export type AccessLog = ReturnType<typeof createAccessLog>;

/** Destination of the lines, such as `process.stdout`. `write` returns false if the destination is full. */
export interface LineSink {
  write(text: string): boolean;
  readonly writableLength: number;
}

/**
 * @param options.nowMs wall clock; the time in a line is the start of the request
 * @param options.flushMs maximum delay of a line, in milliseconds (default 200)
 * @param options.maxPendingBytes maximum number of bytes that the destination has not written yet; above this limit,
 * new lines are dropped (default 4 MiB)
 */
export function createAccessLog(
  sink: LineSink,
  options: {
    readonly flushMs?: number;
    readonly maxPendingBytes?: number;
    readonly nowMs?: () => number;
  } = {},
) {
  const flushMs = options.flushMs ?? 200;
  const maxPendingBytes = options.maxPendingBytes ?? 4 * 1024 * 1024;
  const nowMs = options.nowMs ?? Date.now;
  const gatherLimit = 32 * 1024;
  let gathered = '';
  let timer: NodeJS.Timeout | undefined;

  const flush = (): void => {
    if (timer !== undefined) clearTimeout(timer);
    timer = undefined;
    if (gathered === '') return;
    sink.write(gathered);
    gathered = '';
  };

  return {
    write(entry: AccessEntry): void {
      if (sink.writableLength > maxPendingBytes) return;
      gathered += formatEntry(entry, nowMs() - entry.durationMs);
      if (gathered.length >= gatherLimit) flush();
      else timer ??= setTimeout(flush, flushMs).unref();
    },
    /** Writes the buffered lines. */
    close: flush,
  };
}

function formatEntry(entry: AccessEntry, atMs: number): string {
  const error = entry.error === undefined ? '' : `,"error":${quote(entry.error)}`;
  const cluster = entry.cluster === undefined ? '' : `,"cluster":${quote(entry.cluster)}`;
  return (
    `{"time":"${isoTime(atMs)}","level":"info","msg":"request","id":${quote(entry.id)}` +
    `,"protocol":"${entry.protocol}","peer":${quote(entry.peer)},"user":${quote(entry.user)}${cluster}` +
    `,"method":${quote(entry.method)},"path":${quote(entry.path)},"status":${entry.status}` +
    `,"durationMs":${Math.round(entry.durationMs * 1000) / 1000}` +
    `,"requestBytes":${entry.requestBytes},"responseBytes":${entry.responseBytes}${error}}\n`
  );
}

/** Returns a text as a JSON string. For speed, `JSON.stringify` is called only if the text needs escaping. */
function quote(text: string): string {
  return SAFE_TEXT.test(text) ? `"${text}"` : escapeLogLines(JSON.stringify(text));
}
const SAFE_TEXT = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/**
 * Cached text of the current second, because a call of `toISOString` costs about 1 µs, and within a second only the
 * milliseconds change.
 */
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

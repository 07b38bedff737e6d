/** One line of a container's log, or a part of a very long line. */
export interface LogPart {
  readonly sequence: number;
  readonly timeMs: number;
  /**
   * Bytes of the line, including the newline. The newline is missing if the line was split, or if the last line is
   * incomplete.
   */
  readonly bytes: Uint8Array;
}

/** The latest log lines of a container, limited in bytes. */
export interface LogBuffer {
  append(source: 'stdout' | 'stderr', chunk: Uint8Array): void;
  /** Ends the log. An incomplete last line becomes an entry of the log. */
  end(): void;
  readonly ended: boolean;
  /** Returns the entries that are still available, starting at `sequence`. */
  since(sequence: number): readonly LogPart[];
  /** Resolves when the log grows or ends. Resolves immediately if the log has already ended. */
  changed(signal: AbortSignal): Promise<void>;
}

/** Maximum length of an entry, in bytes. Longer lines are split, as by the kubelet. */
const MAX_ENTRY_BYTES = 16 * 1024;
const NEWLINE = 0x0a;

/** Creates a log of the last `maxBytes` bytes. `now` returns the time of each line in ms. */
export function createLogBuffer(now: () => number, maxBytes = 1024 * 1024): LogBuffer {
  const entries: LogPart[] = [];
  const unfinished = new Map<'stdout' | 'stderr', Uint8Array>();
  const waiting = new Set<() => void>();
  let heldBytes = 0;
  let next = 0;
  let ended = false;

  const keep = (bytes: Uint8Array): void => {
    entries.push({ sequence: next, timeMs: now(), bytes });
    next += 1;
    heldBytes += bytes.byteLength;
    while (heldBytes > maxBytes && entries.length > 1) heldBytes -= entries.shift()?.bytes.byteLength ?? 0;
  };
  const wake = (): void => {
    for (const resolve of waiting) resolve();
    waiting.clear();
  };

  return {
    append(source, chunk) {
      let rest: Uint8Array = Buffer.concat([unfinished.get(source) ?? new Uint8Array(0), chunk]);
      for (;;) {
        const newline = rest.indexOf(NEWLINE);
        const line = newline === -1 ? rest.byteLength : newline + 1;
        if (newline === -1 && rest.byteLength < MAX_ENTRY_BYTES) break;
        const length = Math.min(line, MAX_ENTRY_BYTES);
        keep(rest.slice(0, length));
        rest = rest.subarray(length);
      }
      unfinished.set(source, rest);
      wake();
    },
    end() {
      for (const bytes of unfinished.values()) if (bytes.byteLength > 0) keep(bytes);
      unfinished.clear();
      ended = true;
      wake();
    },
    get ended() {
      return ended;
    },
    since: (sequence) => entries.slice(Math.max(0, sequence - (entries[0]?.sequence ?? 0))),
    changed(signal) {
      if (ended || signal.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const settle = (): void => {
          waiting.delete(settle);
          signal.removeEventListener('abort', settle);
          resolve();
        };
        waiting.add(settle);
        signal.addEventListener('abort', settle);
      });
    },
  };
}

/** Query parameters of `GET …/log`. Source: core/v1 PodLogOptions. */
export interface LogQuery {
  readonly follow: boolean;
  readonly timestamps: boolean;
  readonly tailLines: number | undefined;
  readonly sinceMs: number | undefined;
  readonly limitBytes: number | undefined;
}

/**
 * Writes a log like `kubectl logs`. With `follow`, waits for further lines until the log ends or `signal` aborts. A
 * slow reader misses lines that the buffer has dropped. Each call of `write` is awaited, so that back-pressure works.
 */
export async function writeLog(
  log: LogBuffer,
  query: LogQuery,
  write: (bytes: Uint8Array) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { tailLines, sinceMs = 0, limitBytes = Infinity } = query;
  let sequence = firstSequence(log.since(0), tailLines);
  let left = limitBytes;
  while (!signal.aborted && left > 0) {
    const { ended } = log;
    const entries = log.since(sequence);
    const recent = entries.filter(({ timeMs }) => timeMs >= sinceMs);
    const bytes = Buffer.concat(recent.flatMap((entry) => renderEntry(entry, query.timestamps)));
    const part = bytes.subarray(0, Math.min(left, bytes.byteLength));
    left -= part.byteLength;
    if (part.byteLength > 0) await write(part);
    sequence = (entries.at(-1)?.sequence ?? sequence - 1) + 1;
    if (!query.follow || ended) return;
    if (log.since(sequence).length === 0) await log.changed(signal);
  }
}

function firstSequence(held: readonly LogPart[], tailLines: number | undefined): number {
  if (tailLines === undefined) return 0;
  if (tailLines === 0) return (held.at(-1)?.sequence ?? -1) + 1;
  return held.at(-tailLines)?.sequence ?? 0;
}

function renderEntry({ timeMs, bytes }: LogPart, timestamps: boolean): readonly Uint8Array[] {
  if (!timestamps) return [bytes];
  return [Buffer.from(`${new Date(timeMs).toISOString().replace('Z', '000000Z')} `), bytes];
}

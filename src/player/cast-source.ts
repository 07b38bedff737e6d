/**
 * Reads recordings from the recorder: any recording as ranges of bytes, and a running session also as a stream of
 * lines.
 */
import { readCastStart, type CastStart } from '../screen/cast-reader.ts';
import { HEAD_BYTES, type CastBytes } from '../screen/cast-lines.ts';
import { WireError } from '../wire/wire-error.ts';
import { castAddress, liveAddress, rangeHeaders } from './addresses.ts';
import { answerOf } from './archive.ts';
import { failureOf } from './archive-error.ts';
import type { Ask } from './recorder-context.ts';

/** A playable cast. */
export interface OpenCast {
  readonly cast: CastBytes;
  /** Reads the current length of a running session from the recorder. */
  readonly refresh: () => Promise<void>;
  readonly start: CastStart;
  readonly headerBytes: number;
}

const LINE_FEED = 0x0a;
const MAX_HEADER_BYTES = 4 * 1024 * 1024;

/** @throws Error with a sentence for the viewer */
export async function openCast(
  ask: Ask,
  id: string,
  signal: AbortSignal,
  isGrowing = false,
): Promise<OpenCast> {
  const address = castAddress(id, { watched: true });
  const { bytes: first, total } = await readRange(ask, address, 0, HEAD_BYTES, signal);
  let head = first;
  let end = head.indexOf(LINE_FEED);
  if (end < 0 && head.length < total) {
    head = (await readRange(ask, address, 0, Math.min(total, MAX_HEADER_BYTES), signal)).bytes;
    end = head.indexOf(LINE_FEED);
  }
  const line = new TextDecoder().decode(end < 0 ? head : head.subarray(0, end));
  let known = total;
  const cast: CastBytes = {
    get bytes() {
      return known;
    },
    isGrowing,
    async read(from, to, stop) {
      if (to <= head.length) return head.subarray(from, to);
      return (await readRange(ask, address, from, to, AbortSignal.any([signal, stop]))).bytes;
    },
  };
  try {
    const headerBytes = end < 0 ? total : end + 1;
    const refresh = async (): Promise<void> => {
      known = Math.max(known, (await readRange(ask, address, 0, 1, signal)).total);
    };
    return { cast, refresh, start: readCastStart(line), headerBytes };
  } catch (error) {
    // only a WireError shows a defect of the recording; any other error is a defect of this page
    if (!(error instanceof WireError)) throw error;
    throw new Error('The first line of this recording cannot be read, so nothing of it can be shown.');
  }
}

async function readRange(
  ask: Ask,
  address: string,
  start: number,
  end: number,
  signal: AbortSignal,
): Promise<{ readonly bytes: Uint8Array; readonly total: number }> {
  const response = await answerOf(ask, address, signal, rangeHeaders(start, end));
  // the recording is still empty or does not exist yet
  if (response.status === 416) return { bytes: new Uint8Array(), total: 0 };
  if (!response.ok) throw await failureOf(response);
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status !== 206) return { bytes: bytes.subarray(start, end), total: bytes.length };
  const total = Number(/\/(\d+)$/.exec(response.headers.get('content-range') ?? '')?.[1] ?? Number.NaN);
  if (!Number.isSafeInteger(total))
    throw new Error('The response of the recorder is not a part of a recording.');
  return { bytes, total };
}

export interface LiveFeed {
  close(): void;
}

export interface LiveListener {
  onStart(start: CastStart): void;
  onLine(line: string): void;
  /**
   * Called when the session stops (`isOver` is true), and before a retry after a closed connection (`isOver` is false).
   */
  onEnd(isOver: boolean): void;
}

const RETRY_MS = 2000;
/** WebSocket close code that the recorder sends at the end of a session (RFC 6455 7.4.1). */
const CLOSE_NORMAL = 1000;
const SUBPROTOCOL = 'v2.asciicast';

/** Follows a running session from its beginning. After a reconnect, the stream starts from the beginning again. */
export function followLive(id: string, listener: LiveListener): LiveFeed {
  let socket: WebSocket | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false;
  function connect(): void {
    const connection = new WebSocket(liveAddress(id), SUBPROTOCOL);
    socket = connection;
    let hasStarted = false;
    connection.addEventListener('message', ({ data }) => {
      if (closed || typeof data !== 'string') return;
      if (hasStarted) {
        listener.onLine(data);
        return;
      }
      try {
        listener.onStart(readCastStart(data));
        hasStarted = true;
      } catch {
        connection.close();
      }
    });
    connection.addEventListener('close', ({ code }) => {
      if (closed) return;
      listener.onEnd(code === CLOSE_NORMAL);
      if (code !== CLOSE_NORMAL) timer = setTimeout(connect, RETRY_MS);
    });
  }
  connect();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      const connection = socket;
      // The connection is closed only after it has opened, because the browser logs a warning otherwise.
      if (connection?.readyState === WebSocket.CONNECTING)
        connection.addEventListener('open', () => connection.close());
      else connection?.close();
    },
  };
}

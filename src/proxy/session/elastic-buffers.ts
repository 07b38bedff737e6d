/** The elastic buffers of a process, one per session. */
import { Shares } from '../../memory/shares.ts';
import { DrainRate } from './drain-rate.ts';
import { ElasticBuffer, type ElasticOptions } from './elastic-buffer.ts';
import { openSpillFile } from './spill-file.ts';

/** Limits of the elastic buffers, in bytes. */
export interface BufferSettings {
  /** Maximum number of bytes of one session in memory. */
  readonly memoryBytes: number;
  /** Maximum number of bytes of one session in its file. */
  readonly diskBytes: number;
  /** Maximum number of bytes of all sessions together in memory. Users share these bytes, see `Shares`. */
  readonly totalMemoryBytes: number;
  /** Maximum number of bytes of all sessions together in their files. Users share these bytes, too. */
  readonly totalDiskBytes: number;
  /** Directory of the files. */
  readonly directory: string;
}

/**
 * `deep`: the buffer may grow to the limits of the settings. `brief`: the buffer holds only the output that
 * the client reads in {@link BRIEF_MS}, so that the terminal reacts quickly to Ctrl-C.
 */
export type BufferDepth = 'deep' | 'brief';

export type BufferEvents = Pick<ElasticOptions, 'ready' | 'room' | 'limitReached' | 'fileLost' | 'failed'>;

/** Output buffer of one session. A `brief` buffer adapts its size to the speed of the client. */
export interface SessionBuffer {
  readonly bytes: ElasticBuffer;
  /** Records the number of bytes that the client has accepted. */
  drained(bytes: number): void;
  /** Sets the number of bytes that left the buffer but wait for the client. They count as memory of the user. */
  waiting(bytes: number): void;
  /** True if the user has much output in memory, so that no session of the user should read ahead. */
  readonly scarce: boolean;
  /** Drops all bytes. */
  close(): void;
}

export type ElasticBuffers = ReturnType<typeof createElasticBuffers>;

/** Time for which output of a terminal may continue after Ctrl-C, in milliseconds. */
const BRIEF_MS = 200;
/** Minimum size of a brief buffer, in bytes: about one screen of text. */
const BRIEF_BYTES = 16 * 1024;

export function createElasticBuffers(
  settings: BufferSettings,
  nowMs: () => number = () => performance.now(),
) {
  const { directory } = settings;
  const memory = new Shares(settings.totalMemoryBytes);
  const disk = new Shares(settings.totalDiskBytes);
  const openFile = (): ReturnType<typeof openSpillFile> => openSpillFile(directory);
  return {
    /** Memory and files of all buffers. */
    memory,
    disk,
    open(depth: BufferDepth, user: string, events: BufferEvents): SessionBuffer {
      const rate = new DrainRate(BRIEF_MS, nowMs);
      const brief = depth === 'brief';
      const limits = brief
        ? {
            memoryBytes: () => Math.min(Math.max(rate.recent, BRIEF_BYTES), settings.memoryBytes),
            diskBytes: 0,
          }
        : { memoryBytes: () => settings.memoryBytes, diskBytes: settings.diskBytes };
      // A brief buffer is often full, which is normal, so its `limitReached` is not reported.
      const limitReached = brief ? (): void => {} : events.limitReached;
      const bytes = new ElasticBuffer({ limits, memory, disk, user, openFile, ...events, limitReached });
      let waited = 0;
      const waiting = (count: number): void => {
        if (count > waited) memory.keep(user, count - waited);
        else memory.give(user, waited - count);
        waited = count;
      };
      return {
        bytes,
        drained: (count) => rate.note(count),
        waiting,
        get scarce() {
          return memory.isScarceFor(user);
        },
        close() {
          waiting(0);
          bytes.close();
        },
      };
    },
  };
}

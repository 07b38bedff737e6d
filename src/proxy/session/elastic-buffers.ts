/** The elastic buffers of a process: one for each session that is written to a person or a program at its own pace. */
import { DrainRate } from './drain-rate.ts';
import { ElasticBudget } from './elastic-budget.ts';
import { ElasticBuffer, type ElasticOptions } from './elastic-buffer.ts';
import { openSpillFile } from './spill-file.ts';

export interface BufferSettings {
  /** What may wait of one session, in memory and in its file. */
  readonly memoryBytes: number;
  readonly diskBytes: number;
  /** The same of all sessions. */
  readonly totalMemoryBytes: number;
  readonly totalDiskBytes: number;
  /** Where the files are. */
  readonly directory: string;
}

export const BUFFER_SETTINGS: Omit<BufferSettings, 'directory'> = {
  memoryBytes: 4 * 1024 ** 2,
  diskBytes: 1024 ** 3,
  totalMemoryBytes: 128 * 1024 ** 2,
  totalDiskBytes: 4 * 1024 ** 3,
};

/** `deep`: as much as the settings allow. `brief`: what the client takes in a moment, so that Ctrl-C stays quick. */
export type BufferDepth = 'deep' | 'brief';

export type BufferEvents = Pick<ElasticOptions, 'ready' | 'room' | 'beyond' | 'fileLost' | 'failed'>;

/** A buffer, and who tells it how quickly it is emptied. */
export interface SessionBuffer {
  readonly bytes: ElasticBuffer;
  /** The client has taken so many bytes. */
  drained(bytes: number): void;
}

export interface ElasticBuffers {
  readonly budget: ElasticBudget;
  open(depth: BufferDepth, events: BufferEvents): SessionBuffer;
}

/** A flood goes on for so long behind what stopped it, at the pace of the client. */
const BRIEF_MS = 200;
/** A terminal that has taken nothing yet gets a screen full at once. */
const BRIEF_BYTES = 16 * 1024;

export function createElasticBuffers(
  settings: BufferSettings,
  nowMs: () => number = () => performance.now(),
): ElasticBuffers {
  const { totalMemoryBytes, totalDiskBytes, directory } = settings;
  const budget = new ElasticBudget({ memoryBytes: totalMemoryBytes, diskBytes: totalDiskBytes });
  const openFile = (): ReturnType<typeof openSpillFile> => openSpillFile(directory);
  return {
    budget,
    open(depth, events) {
      const rate = new DrainRate(BRIEF_MS, nowMs);
      const brief = depth === 'brief';
      const limits = brief
        ? {
            memoryBytes: () => Math.min(Math.max(rate.recent, BRIEF_BYTES), settings.memoryBytes),
            diskBytes: 0,
          }
        : { memoryBytes: () => settings.memoryBytes, diskBytes: settings.diskBytes };
      // for a brief one, to be full is a matter of course
      const beyond = brief ? (): void => {} : events.beyond;
      const bytes = new ElasticBuffer({ limits, budget, openFile, ...events, beyond });
      return { bytes, drained: (count) => rate.note(count) };
    },
  };
}

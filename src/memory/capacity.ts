/** What a process has memory for: requests, and output that waits. */
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';

/** What is there: of the machine, of the container (cgroup), and what V8 may use of it (`--max-old-space-size`). */
export interface Memory {
  readonly machineBytes: number;
  /** Undefined: no limit. */
  readonly containerBytes: number | undefined;
  readonly heapBytes: number;
}

export interface Capacity {
  readonly requests: number;
  readonly requestsPerUser: number;
  readonly bytesPerUser: number;
  /** Maximum bytes of request heads whose sender is not known yet, of all connections together. */
  readonly headBytes: number;
  /** Output of sessions that may wait in memory: of all of them, and of one. */
  readonly outputBytes: number;
  readonly outputBytesPerSession: number;
}

/** Of an idle watch with its two TLS connections; `npm run soak:user` measures it. */
const REQUEST_BYTES = 200 * 1024;
/** The rest is for the process itself, sessions and what waits. */
const SHARE_FOR_REQUESTS = 1 / 2;
const MAX_REQUESTS = 20_000;
const MIN_REQUESTS = 300;
/** One user may have a third: two who overdo it leave room. */
const USERS = 3;
const SHARE_OF_BYTES = 1 / 16;
/** The strings of a head with short lines need about twice its bytes. */
const SHARE_FOR_HEADS = 1 / 16;
/**
 * What does not fit waits on disk, where the recorder beside it may be syncing: a disk that is late makes the API server wait,
 * and one that has finished loses what then is not read.
 */
const SHARE_FOR_OUTPUT = 1 / 4;
const SESSIONS = 8;
const MIN_SESSION_OUTPUT = 4 * 1024 ** 2;
/** A heap that is full ends the process, and about as much again is outside of it. */
const HEAP_FACTOR = 2;

export function readMemory(): Memory {
  const constrained = process.constrainedMemory();
  const machineBytes = totalmem();
  return {
    machineBytes,
    containerBytes: constrained > 0 && constrained < machineBytes ? constrained : undefined,
    heapBytes: getHeapStatistics().heap_size_limit,
  };
}

/** Derives default limits of one gateway process from the memory that it may use. */
export function capacityOf(memory: Memory): Capacity {
  const { machineBytes, containerBytes = machineBytes, heapBytes } = memory;
  const bytes = Math.min(machineBytes, containerBytes, heapBytes * HEAP_FACTOR);
  const fitting = Math.floor((bytes * SHARE_FOR_REQUESTS) / REQUEST_BYTES);
  const requests = Math.min(MAX_REQUESTS, Math.max(MIN_REQUESTS, fitting));
  const outputBytes = Math.floor(bytes * SHARE_FOR_OUTPUT);
  return {
    requests,
    requestsPerUser: Math.floor(requests / USERS),
    bytesPerUser: Math.floor(bytes * SHARE_OF_BYTES),
    headBytes: Math.floor(bytes * SHARE_FOR_HEADS),
    outputBytes,
    outputBytesPerSession: Math.max(MIN_SESSION_OUTPUT, Math.floor(outputBytes / SESSIONS)),
  };
}

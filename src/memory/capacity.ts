/** Derives the limits for requests and pending output from the memory of the process. */
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';

/**
 * Available memory: of the machine, of the container (cgroup), and of the V8 heap (`--max-old-space-size`).
 */
export interface Memory {
  readonly machineBytes: number;
  /** Memory limit of the container; undefined without a limit. */
  readonly containerBytes: number | undefined;
  readonly heapBytes: number;
}

export interface Capacity {
  readonly requests: number;
  readonly requestsPerUser: number;
  readonly bytesPerUser: number;
  /** Maximum number of bytes of request heads before authentication, in all connections in total. */
  readonly headBytes: number;
  /** Maximum pending output in memory, in bytes: one limit for all sessions together, and one for each session. */
  readonly outputBytes: number;
  readonly outputBytesPerSession: number;
}

/** Memory of an idle watch with its two TLS connections; `npm run soak:user` measures it. */
const REQUEST_BYTES = 200 * 1024;
/** Fraction of the memory that requests may use. The rest is for the process, sessions and pending output. */
const SHARE_FOR_REQUESTS = 1 / 2;
const MAX_REQUESTS = 20_000;
const MIN_REQUESTS = 300;
/** Each user may use at most a third of the requests, so that two users at their limit leave capacity for others. */
const USERS = 3;
const SHARE_OF_BYTES = 1 / 16;
/**
 * Fraction of the memory for request heads before authentication. The strings of a head with short lines need about
 * twice as much memory as the head.
 */
const SHARE_FOR_HEADS = 1 / 16;
/**
 * Fraction of the memory for pending output. Further output goes to disk, which may be slow if a recorder on the same
 * machine syncs its files. While the disk is slow, the API server must wait. If the API server closes its connection
 * during this wait, unread output is lost.
 */
const SHARE_FOR_OUTPUT = 1 / 4;
const SESSIONS = 8;
const MIN_SESSION_OUTPUT = 4 * 1024 ** 2;
/**
 * The process uses about as much memory outside of the heap as in the heap. When the heap is full, the process exits.
 */
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

/** Messages to and from the load generator. */
import type { Content } from './content.ts';

/** Where the load goes. */
export interface Target {
  readonly port: number;
  /** CA of the server certificate; none: plain text. */
  readonly ca?: string;
  /** Sent before anything else, e.g. a PROXY header. */
  readonly preamble?: string;
  /** A bearer token, for a server that requires one. */
  readonly token?: string;
}

export type LoadPlan =
  | {
      readonly kind: 'requests';
      readonly protocol: 'h1' | 'h2';
      readonly answer: Answer;
      readonly connections: number;
      /** HTTP/2 only: requests under way on each connection. */
      readonly streams?: number;
      /** Reads no faster than this, on each connection. */
      readonly bytesPerSecond?: number;
      /**
       * How long all connections are under way before anything counts; none: everything after the handshakes counts.
       */
      readonly rampMs?: number;
      /** Pause of a connection after each response. */
      readonly pauseMs?: number;
      readonly durationMs: number;
    }
  /** One TLS handshake, three small requests, and the connection is closed. */
  | { readonly kind: 'handshakes'; readonly parallel: number; readonly durationMs: number }
  | { readonly kind: 'watches'; readonly watches: number; readonly durationMs: number }
  | {
      readonly kind: 'exec';
      readonly transport: Transport;
      readonly work: ExecWork;
    }
  /** All of these at the same time; steady when those of them are that say so. */
  | { readonly kind: 'together'; readonly plans: readonly LoadPlan[] };

/** Kind of request and response. */
export type Answer = 'small' | 'list-chunked' | 'list-length' | 'list-gzip' | 'post' | KnownAnswer;

/** The direct response of a real API server to a request. */
export interface KnownAnswer {
  readonly path: string;
  /** A file with the body. Of a list, what comes before its items may differ: it names the moment. */
  readonly body: string;
  readonly counts: 'requests' | 'bytes';
}

export type Transport = 'spdy' | 'websocket';

export type ExecWork =
  /** Output without a terminal. */
  | {
      readonly kind: 'cat';
      readonly content: Content;
      readonly bytes: number;
      /** Where a real node has just that. */
      readonly file?: string;
    }
  /** Short lines on a terminal, each in a frame of its own. */
  | { readonly kind: 'lines'; readonly lines: number }
  /** A full-screen program that redraws; `sessions` of them. */
  | {
      readonly kind: 'redraw';
      readonly sessions: number;
      readonly perSecond: number;
      readonly seconds: number;
    }
  /** Shells that show a prompt and wait. */
  | { readonly kind: 'idle'; readonly sessions: number; readonly durationMs: number }
  /** Runs each of these sequentially, a number of times. Every session is checked up to its exit code. */
  | { readonly kind: 'many'; readonly times: number; readonly works: readonly ExecWork[] }
  /** Keys pressed one after the other, each waiting for its echo. */
  | { readonly kind: 'echo'; readonly keys: number; readonly pauseMs: number }
  /** The same in many shells at once, a key every so often in each. */
  | {
      readonly kind: 'echoes';
      readonly sessions: number;
      readonly everyMs: number;
      readonly durationMs: number;
    };

export interface LoadResult {
  /** Requests, bytes, lines, sessions, keys: what the case counts. */
  readonly units: number;
  readonly seconds: number;
  readonly p50Ms?: number;
  readonly p99Ms?: number;
  /** CPU time of the load generator. */
  readonly loadCpuSeconds: number;
}

/** Lines from the load generator. */
export type LoadMessage =
  /** Everything is open and under way: the moment to look at memory and CPU time. */
  { readonly steady: true } | { readonly result: LoadResult } | { readonly error: string };

/** Percentiles of latencies. */
export function percentiles(latencies: number[]): { readonly p50Ms: number; readonly p99Ms: number } {
  latencies.sort((left, right) => left - right);
  const at = (share: number): number =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? 0;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}

/** Messages to and from the load generator. */
import type { Content } from './content.ts';

/** Destination of the load. */
export interface Target {
  readonly port: number;
  /** CA of the server certificate; undefined for plain text. */
  readonly ca?: string;
  /** Bytes to send first, e.g. a PROXY header. */
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
      /** Maximum in-flight requests per HTTP/2 connection. */
      readonly streams?: number;
      /** Maximum read rate of each connection. */
      readonly bytesPerSecond?: number;
      /**
       * Time from the start of the load to the start of the measurement. If undefined, the measurement starts right
       * after the handshakes.
       */
      readonly rampMs?: number;
      /** Pause of a connection after each response. */
      readonly pauseMs?: number;
      readonly durationMs: number;
    }
  /** Short connections: a TLS handshake, three small requests, and the close of the connection. */
  | { readonly kind: 'handshakes'; readonly parallel: number; readonly durationMs: number }
  | { readonly kind: 'watches'; readonly watches: number; readonly durationMs: number }
  | {
      readonly kind: 'exec';
      readonly transport: Transport;
      readonly work: ExecWork;
    }
  /** Runs all of these plans at the same time. The state is steady when all loads that report it are steady. */
  | { readonly kind: 'together'; readonly plans: readonly LoadPlan[] };

/** Kind of request and response. */
export type Answer = 'small' | 'list-chunked' | 'list-length' | 'post' | KnownAnswer;

/** A request to a real API server, and the response that the API server sends without a proxy. */
export interface KnownAnswer {
  readonly path: string;
  /** File with the expected body. */
  readonly body: string;
}

export type Transport = 'spdy' | 'websocket';

export type ExecWork =
  /** A program without a terminal prints content. */
  | {
      readonly kind: 'cat';
      readonly content: Content;
      readonly bytes: number;
      /** Path of the file with the content on a real Kubernetes node. */
      readonly file?: string;
    }
  /** Short lines on a terminal, each in its own frame. */
  | { readonly kind: 'lines'; readonly lines: number }
  /** Keystrokes in sequence, each after the echo of the previous one. */
  | { readonly kind: 'echo'; readonly keys: number; readonly pauseMs: number }
  /** Sends keystrokes in many shells at the same time, at a fixed rate. */
  | {
      readonly kind: 'echoes';
      readonly sessions: number;
      readonly everyMs: number;
      readonly durationMs: number;
    };

export interface LoadResult {
  /** Number of requests, bytes, lines, sessions or keystrokes. */
  readonly units: number;
  readonly seconds: number;
  readonly p50Ms?: number;
  readonly p90Ms?: number;
  readonly p99Ms?: number;
  /** CPU time of the load generator. */
  readonly loadCpuSeconds: number;
}

/** Lines from the load generator. */
export type LoadMessage =
  /** Sent when all connections are open and in use. */
  { readonly steady: true } | { readonly result: LoadResult } | { readonly error: string };

/** Median and 99th percentile of latencies. */
export function percentiles(latencies: readonly number[]): {
  readonly p50Ms: number;
  readonly p99Ms: number;
} {
  return { p50Ms: percentile(latencies, 0.5), p99Ms: percentile(latencies, 0.99) };
}

/** @param share for example 0.9 for the 90th percentile */
export function percentile(latencies: readonly number[], share: number): number {
  const sorted = latencies.toSorted((left, right) => left - right);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

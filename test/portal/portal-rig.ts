/** A portal on loopback, and behind it a recorder that the test controls. */
import { EventEmitter, once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createEvents } from '../../src/observe/events.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { createPortal, type PortalLimits } from '../../src/portal/portal.ts';
import { createRecorderCalls } from '../../src/portal/recorder-call.ts';
import { createGate } from '../../src/proxy/gate/gate.ts';
import { createClient, openRig, person, type Client, type Rig } from '../proxy/rig.ts';
import { startRecorderSpy, type RecorderSpy } from '../support/recorder-spy.ts';

export const LIST = '/-/recordings/api/v1/recordings';
export const ID = 'nGATE1CNTRL_2026-07-29T11%3A50%3A50.000000001Z';
export const CAST = `${LIST}/${ID}/cast`;
/** Errors with which the test clients report an incomplete response, over HTTP/1.1 and HTTP/2. */
export const CUT = /aborted|NGHTTP2_INTERNAL_ERROR|stream reset: [28]$/;
const PAGES: readonly (readonly [name: string, text: string])[] = [
  ['index.html', '<!doctype html>'],
  ['secret.pem', 'secret'],
  ['assets/index-x.js', '1;'],
  ['assets/index-x.js.br', 'packed'],
  ['assets/notes.txt', 'secret'],
];

/** Writes the files of a built player. Returns their folder. */
async function writePages(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-pages-'));
  stack.push(() => rm(directory, { recursive: true, force: true }));
  await mkdir(join(directory, 'assets'));
  for (const [name, text] of PAGES) await writeFile(join(directory, name), text);
  return directory;
}

export interface PortalRig {
  readonly rig: Rig;
  readonly recorder: RecorderSpy;
  client(name: 'h1' | 'h2'): Client;
  /** Ends the access of all viewers. */
  revoke(): void;
  /** Stops the portal as an exiting gateway does. */
  shutDown(): void;
  readonly watched: () => number;
  readonly log: readonly unknown[];
  /** Resolves when the access log has this number of finished requests. */
  accounted(lines: number): Promise<void>;
  /** Connections to recorders, in order. */
  readonly dialled: readonly Socket[];
}

/** Resources in the order in which they were opened. They are closed in reverse order after the test. */
export const stack: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of stack.splice(0).toReversed()) await end();
});

/** Opens a portal with these recorders. `recorder` stands for the recorder that the test controls. */
export async function openPortalRig(
  recorders: readonly string[] = ['recorder'],
  limits: Partial<PortalLimits> = {},
  options: { readonly playerDirectory?: string } = {},
): Promise<PortalRig> {
  const recorder = await startRecorderSpy();
  stack.push(() => recorder.close());
  const watchers = new Set<(error: TailcastError) => void>();
  const over = new AbortController();
  const metrics = createMetrics();
  const log: unknown[] = [];
  const written = new EventEmitter();
  const dialled: Socket[] = [];
  const own = createPortal({
    gate: createGate({
      mode: 'auth',
      identities: { whois: () => Promise.resolve(person()) },
      upstreamHost: 'kubernetes.test',
      authorization: () => Promise.resolve(undefined),
      nowMs: () => performance.now(),
      createId: () => 'request-id',
    }),
    calls: createRecorderCalls({
      async dial(address, signal) {
        const [host = '', port = ''] = address.split(':');
        const socket = connect({ host, port: Number(port) });
        socket.on('error', () => undefined);
        dialled.push(socket);
        await once(socket, 'connect', { signal });
        return socket;
      },
      nodeOf: (address) => address,
      nowMs: () => performance.now(),
      limits: { answerTimeoutMs: 500, suspectTimeoutMs: 400 },
    }),
    recordersFor: async () => recorders.map((name) => (name === 'recorder' ? recorder.address : name)),
    playerDirectory: options.playerDirectory ?? (await writePages()),
    rechecks: {
      watch(_caller, _peer, end) {
        watchers.add(end);
        return () => watchers.delete(end);
      },
    },
    metrics,
    accessLog: { write: (entry) => void (log.push(entry), written.emit('line')) },
    events: createEvents(metrics, createSilentLogger()),
    monotonicMs: () => performance.now(),
    signal: over.signal,
    limits,
  });
  const rig = await openRig({ upstream: () => undefined, server: { own: [own] } });
  stack.push(async () => {
    over.abort(new Error('the test is over'));
    await rig.close();
  });
  return {
    rig,
    recorder,
    client(name) {
      const client = createClient(name, rig);
      stack.push(() => client.close());
      return client;
    },
    revoke: () => watchers.forEach((end) => end(new TailcastError('ACCESS_ENDED'))),
    shutDown: () => over.abort(new Error('the gateway is shutting down')),
    watched: () => watchers.size,
    log,
    async accounted(lines) {
      while (log.length < lines) await once(written, 'line');
    },
    dialled,
  };
}

export function field(rawHeaders: readonly string[], name: string): string | undefined {
  const index = rawHeaders.findIndex((text, at) => at % 2 === 0 && text.toLowerCase() === name);
  return index === -1 ? undefined : rawHeaders[index + 1];
}

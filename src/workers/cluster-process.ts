/**
 * Workers as processes of `node:cluster` that accept from one listening socket, which the primary keeps. Measured on Linux
 * with 2 and 4 workers, connections that come one after another are spread within some 10 % of evenly; of 32 that come at
 * the same moment one of two workers had 18 to 30. The alternatives lose some:
 *
 * - handed out by the primary in turn (`SCHED_RR`): one that is on its way to a worker that crashes waits for ever;
 * - a listening socket per worker (`SO_REUSEPORT`): those that nobody has accepted yet are reset when a worker ends.
 */
import cluster from 'node:cluster';
import process from 'node:process';
import type { LineForwarder } from './forward-lines.ts';
import { asFromWorker } from './messages.ts';
import type { WorkerExit, WorkerProcess } from './supervisor.ts';
import type { PrimaryChannel } from './worker-link.ts';

/** How long the channel of a process that has ended is read. */
const LAST_WORDS_MS = 1000;

/** Whether this process was forked to be a worker. */
export function isWorker(): boolean {
  return cluster.isWorker;
}

/** @returns what starts this program once more, with the same arguments, as a worker. */
export function createClusterFork(output: {
  readonly stdout: LineForwarder;
  readonly stderr: LineForwarder;
}): () => WorkerProcess {
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({ args: process.argv.slice(2), silent: true, serialization: 'advanced' });
  return () => {
    const worker = cluster.fork();
    const { stdout, stderr } = worker.process;
    if (stdout !== null) output.stdout.take(stdout);
    if (stderr !== null) output.stderr.take(stderr);
    const exited = Promise.withResolvers<WorkerExit>();
    worker.once('exit', (code: number | null, signal: string | null) => {
      const exit = { code, signal };
      if (!worker.isConnected()) return exited.resolve(exit);
      // what it said last may still be in the channel
      worker.once('disconnect', () => exited.resolve(exit));
      setTimeout(() => exited.resolve(exit), LAST_WORDS_MS);
    });
    // a process that could not be started, or a message to one that has just ended
    worker.on('error', () => {
      if (worker.process.pid === undefined) exited.resolve({ code: 1, signal: null });
    });
    return {
      pid: worker.process.pid,
      exited: exited.promise,
      send(message) {
        if (worker.isConnected()) worker.send(message, () => undefined);
      },
      onMessage(listener) {
        worker.on('message', (raw: unknown) => {
          const message = asFromWorker(raw);
          if (message !== undefined) listener(message);
        });
      },
      kill: (signal) => worker.process.kill(signal),
    };
  };
}

/** The channel of this worker. A hang-up of the terminal is for the primary to answer. */
export function openPrimaryChannel(): PrimaryChannel {
  process.on('SIGHUP', () => undefined);
  return {
    send(message, done) {
      if (process.send === undefined || !process.connected) done();
      else process.send(message, undefined, undefined, () => done());
    },
    onMessage: (listener) => process.on('message', listener),
    onGone: (listener) => process.once('disconnect', listener),
    release: () => process.channel?.unref(),
  };
}

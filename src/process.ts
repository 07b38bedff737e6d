/** The process: arguments → role; signals → one AbortController; what was thrown → one sentence and an exit code. */
import cluster from 'node:cluster';
import { basename } from 'node:path';
import { readEnvironment } from './config/environment.ts';
import { runProgram } from './cli/program.ts';

const abort = new AbortController();
const stop = (why: string): void => abort.abort(new Error(why));
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop(`stopped by ${signal}`));
process.on('SIGHUP', () => {
  // over workers it means a restart of them, and for those it is nothing
  if (process.listenerCount('SIGHUP') === 1 && !cluster.isWorker) stop('stopped by SIGHUP');
});
// whoever started this process with a channel, as `scripts/tailcast.mjs` does, is gone
if (process.channel !== undefined && !cluster.isWorker) {
  process.on('disconnect', () => stop('its parent is gone'));
  process.channel.unref();
}
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') abort.abort(error);
  else throw error;
});

process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: process.stdin,
  environment: readEnvironment(),
  signal: abort.signal,
  // As a plugin of kubectl it has that program's name.
  ...(/^kubectl[-_]/.test(basename(process.argv[1] ?? '')) ? { programName: 'kubectl tailcast' } : {}),
});

/**
 * Runs the process: selects the role from the arguments, aborts an AbortController on signals, prints errors, and sets
 * the exit code.
 */
import { basename } from 'node:path';
import { readEnvironment } from './config/environment.ts';
import { showInPager } from './pager.ts';
import { runProgram } from './cli/program.ts';

const abort = new AbortController();
const stop = (why: string): void => abort.abort(new Error(why));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => stop(`stopped by ${signal}`));
// A parent such as `scripts/tailcast.mjs` starts this process with an IPC channel. The process stops when the parent
// exits.
if (process.channel !== undefined) {
  process.on('disconnect', () => stop('its parent is gone'));
  process.channel.unref();
}
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') abort.abort(error);
  else throw error;
});

/** Maximum time from the end of an aborted program to the exit of the process, in milliseconds. */
const EXIT_MS = 1000;

const environment = readEnvironment();
process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: process.stdin,
  environment,
  page: (text) => showInPager(text, environment),
  signal: abort.signal,
  // Help of the kubectl plugin shows the command that the user typed.
  ...(/^kubectl[-_]/.test(basename(process.argv[1] ?? '')) ? { programName: 'kubectl tailcast' } : {}),
});
// after a signal during the start of a role, open sockets and timers would keep the process alive
// oxlint-disable-next-line unicorn/no-process-exit -- open sockets and timers keep the process alive
if (abort.signal.aborted) setTimeout(() => process.exit(), EXIT_MS).unref();

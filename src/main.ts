/** Entry of the process: arguments → role; signals → one AbortController; what was thrown → one sentence and an exit code. */
import { readEnvironment } from './config/environment.ts';
import { runProgram } from './cli/program.ts';

const abort = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // The second signal means now: sessions that are still draining are cut.
    if (abort.signal.aborted) process.exitCode = 130;
    abort.abort(new Error(`stopped by ${signal}`));
  });
}
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') abort.abort(error);
  else throw error;
});

process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  environment: readEnvironment(),
  signal: abort.signal,
});

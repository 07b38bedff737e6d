import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { runProgram } from '../../src/cli/program.ts';

/** Runs a `tailcast` command in this process, without environment variables. */
export async function runCommand(
  ...args: readonly string[]
): Promise<{ code: number; out: string; err: string }> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const read = Promise.all([text(stdout), text(stderr)]);
  const signal = new AbortController().signal;
  const code = await runProgram(args, { environment: new Map(), stdout, stderr, signal });
  stdout.end();
  stderr.end();
  const [out, err] = await read;
  return { code, out, err };
}

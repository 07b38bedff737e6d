/** Sends inputs to the Go oracle (`test/real/peers/oracle`), which parses them with the code of the peer. */
import { spawn } from 'node:child_process';
import { ensurePeer } from '../rig/build.ts';

export type OracleMode =
  | 'request-info'
  | 'exec-options'
  | 'spdy-decode'
  | 'spdy-encode'
  | 'ws-decode'
  | 'ws-encode'
  | 'proxy-header'
  | 'grants'
  | 'resize-decode';

/**
 * Returns one response per query, in order, as text, because text is cheaper to compare.
 * @throws Error if the oracle fails or the number of responses is wrong
 */
export async function askOracleText(
  mode: OracleMode,
  questions: readonly unknown[],
): Promise<readonly string[]> {
  if (questions.length === 0) return [];
  const { oracle = '' } = await ensurePeer('oracle');
  const child = spawn(oracle, [mode], { stdio: ['pipe', 'pipe', 'pipe'] });
  const chunks: Buffer[] = [];
  let complaint = '';
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => (complaint += chunk.toString()));
  const closed = new Promise<number | null>((done, fail) => {
    child.once('error', fail);
    child.once('close', done);
  });
  // An error needs no handling here: after a broken pipe, responses are missing, which the check below reports.
  child.stdin.on('error', () => undefined);
  child.stdin.end(questions.map((question) => JSON.stringify(question)).join('\n') + '\n');
  const code = await closed;
  const lines = Buffer.concat(chunks).toString().split('\n').slice(0, -1);
  if (code !== 0 || lines.length !== questions.length) {
    throw new Error(
      `oracle ${mode}: code ${code}, ${lines.length} answers of ${questions.length}\n${complaint.slice(0, 2000)}`,
    );
  }
  return lines;
}

/** Like {@link askOracleText}, but returns parsed responses. */
export async function askOracle<Answer>(
  mode: OracleMode,
  questions: readonly unknown[],
): Promise<readonly Answer[]> {
  const lines = await askOracleText(mode, questions);
  return lines.map((line) => JSON.parse(line) as Answer);
}

/** Encoding of bytes for the oracle. */
export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64');
}

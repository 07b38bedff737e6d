/** Runs the commands that `npm run demo:real -- operator` prints. */
import { execFileSync, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { enterNetwork } from '../rig/network.ts';

const { command, env } = enterNetwork();
const isPossible = command.length > 0;
if (!isPossible) process.stderr.write(`operator-demo: skipped: ${Object.values(env).join()}\n`);
const DEMO = fileURLToPath(new URL('../demo.ts', import.meta.url));

it.skipIf(!isPossible)('shows the operator, and leaves nothing behind', { timeout: 600_000 }, async () => {
  const demo = spawn(process.execPath, [DEMO, 'operator'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise<number | null>((done) => demo.once('exit', done));
  let said = '';
  for (const stream of [demo.stdout, demo.stderr])
    stream.on('data', (chunk: Buffer) => (said += chunk.toString()));
  try {
    await expect
      .poll(() => (demo.exitCode === null ? said : `it has ended: ${said}`), { timeout: 400_000 })
      .toMatch(/Ctrl-C ends everything|it has ended/);
    const lines = said.split('\n').filter((line) => line.startsWith('nsenter '));
    expect(lines.length, said).toBeGreaterThan(5);
    for (const line of lines)
      expect(execFileSync('sh', ['-c', line], { encoding: 'utf8', timeout: 30_000 })).not.toBe('');
    expect(said).toContain('0 failed');
    demo.kill('SIGINT');
    expect(await ended).toBe(0);
    const [, holder = ''] = /nsenter --target (\d+) /.exec(said) ?? [];
    expect(() => process.kill(Number(holder), 0)).toThrow('ESRCH');
  } finally {
    // The reaper stops all other processes.
    demo.kill('SIGKILL');
  }
});

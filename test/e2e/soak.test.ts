/** Runs the test of `npm run soak` for a short time, to check that its comparisons still work. */
import { spawn } from 'node:child_process';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SOAK = fileURLToPath(new URL('../../bench/soak/main.ts', import.meta.url));

it('passes in small, without a fault, and leaves nothing with the user', async () => {
  const load = ['--shells', '6', '--watches', '10', '--requests', '10', '--connections', '2'];
  const home = await mkdtemp(join(tmpdir(), 'soak-home-'));
  const soak = spawn(process.execPath, [SOAK, '--minutes', '0.1', ...load], {
    env: { ...process.env, HOME: home, XDG_STATE_HOME: join(home, 'state') },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  expect(await text(soak.stdout)).toMatch(/\n[6-9] shells, .* [6-9] recordings compared\nPASSED\n$/);
  expect(await readdir(home)).toEqual([]);
});

import { execFile } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { listenOn } from '../support/listen.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

it('a recorder whose port for health is taken says so and ends', async () => {
  const taken = createServer();
  const port = await listenOn(taken);
  const store = join(mkdtempSync(join(tmpdir(), 'tcstart-')), 'recordings');
  const flags = ['--identity=loopback', '--listen=127.0.0.1:0', `--store=${store}`];
  const args = [MAIN, 'recorder', ...flags, `--ops-listen=127.0.0.1:${port}`];
  const ended = promisify(execFile)(process.execPath, args);
  await expect(ended).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^tailcast: .*cannot listen on 127\.0\.0\.1:\d+: the address is in use/m),
  });
  taken.close();
});

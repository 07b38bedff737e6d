/** An uncaught exception in a process: its effect on users of running sessions and on later users. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/until.ts';
import { startSite, type Site } from './site.ts';

let site: Site;
let environment: Readonly<Record<string, string>>;
beforeAll(async () => {
  site = await startSite();
  const trap = join(site.directory, 'trap.mjs');
  // throws an uncaught exception on a signal
  await writeFile(
    trap,
    `process.on('SIGUSR2', () => setImmediate(() => { throw new Error('a defect'); }));
     process.on('SIGWINCH', () => void Promise.reject(new Error('a defect that nobody waits for')));\n`,
  );
  environment = { NODE_OPTIONS: `--import ${pathToFileURL(trap).href}` };
});
afterAll(() => site.close());

async function isReady(ops: string): Promise<boolean> {
  return (await fetch(`${ops}/readyz`)).ok;
}

describe('an exception at the top of a gateway', () => {
  it.each(['SIGUSR2', 'SIGWINCH'] as const)(
    'drains it: sessions go on, nobody new comes, and it ends with an error (%s)',
    async (signal) => {
      await using stack = new AsyncDisposableStack();
      const gateway = await site.startGateway([], {}, environment);
      stack.defer(async () => void (await gateway.stop()));
      const session = await site.exec(gateway, ['cat']);
      session.write('before\n');
      await session.until('before\n');
      expect(await isReady(gateway.ops)).toBe(true);
      gateway.signal(signal);
      const line = await gateway.line(({ msg }) => msg?.startsWith('unexpected exception') === true);
      expect(line).toMatchObject({ level: 'error', error: expect.stringContaining('a defect') });
      expect(String(line['stack'])).toContain('trap.mjs');
      await eventually('not ready', async () => ((await isReady(gateway.ops)) ? undefined : true));
      expect(await gateway.metric('tailcast_unexpected_exceptions_total')).toBe(1);
      await expect(site.exec(gateway, ['cat'])).rejects.toBeInstanceOf(Error);
      session.write('after\n');
      await session.until('after\n');
      session.close();
      await session.over;
      expect(await gateway.stop()).toBe(1);
    },
  );
});

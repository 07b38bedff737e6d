import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { createIndexThreads } from '../../../src/tsrecorder/playback/index-threads.ts';

const CAST = '{"version":2,"width":80,"height":24}\n[1,"o","x"]\n';

afterEach(() => vi.useRealTimers());

it('a build does not use an idle thread that is being stopped', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'tailcast-threads-'));
  const threads = createIndexThreads();
  const build = (name: string): Promise<void> => {
    async function* cast(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode(CAST);
    }
    const path = join(folder.path, name);
    const task = {
      indexPath: path,
      framesPath: `${path}.frames`,
      transcriptPath: `${path}.text`,
      places: [],
    };
    return threads.build(cast(), task, () => undefined);
  };
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  await build('first');
  vi.advanceTimersByTime(5000);
  await expect(build('second')).resolves.toBeUndefined();
  await threads.close();
});

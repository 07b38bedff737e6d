import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { CleanUp } from '../../src/compose/clean-up.ts';

it('runs what was deferred in reverse, once, past one that fails', async () => {
  const done: string[] = [];
  const cleanUp = new CleanUp();
  cleanUp.defer(() => done.push('first'));
  cleanUp.defer(() => Promise.reject(new Error('broken')));
  cleanUp.defer(async () => void done.push('last'));
  await expect(cleanUp.disposeAsync()).rejects.toThrow('broken');
  expect(done).toEqual(['last', 'first']);
  await cleanUp.disposeAsync();
  expect(done).toHaveLength(2);
});

it('is what is used instead of globals that Node 22 has not', () => {
  const src = fileURLToPath(new URL('../../src', import.meta.url));
  const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && !file.startsWith('player') && !file.endsWith('clean-up.ts'),
  );
  expect(files.length).toBeGreaterThan(100);
  const newer =
    /\b(AsyncDisposableStack|DisposableStack|SuppressedError|Promise\.try|RegExp\.escape|Error\.isError)\b/;
  expect(files.filter((file) => newer.test(readFileSync(join(src, file), 'utf8')))).toEqual([]);
});

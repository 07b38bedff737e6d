import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { createSealKeys, loadSealKeys } from '../../../src/tsrecorder/store/seal-keys.ts';
import { parseSeal } from '../../../src/wire/archive/seek-table.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tsrecorder-seal-'));
});

const [OLD, NEW] = [Buffer.alloc(32, 7), Buffer.alloc(32, 8)];

async function fileOf(text: string): Promise<string> {
  const path = join(folder, 'keys');
  await writeFile(path, text);
  return path;
}

describe('a file of keys', () => {
  it('seals with the first and opens with all', async () => {
    const text = `# of this year\n${NEW.toString('base64')}  # for new ones\n\n${OLD.toString('base64')}\n`;
    const keys = await loadSealKeys(await fileOf(text));
    const ours = createSealKeys([OLD]).seal('a');
    const opened = keys.open(parseSeal(ours.head)!, 'a')!;
    expect(Buffer.from(opened.open(3, ours.cipher.seal(3, Buffer.from('frame')))).toString()).toBe('frame');
    const head = parseSeal(keys.seal('a').head)!;
    expect(createSealKeys([OLD]).open(head, 'a')).toBeUndefined();
    expect(createSealKeys([NEW]).open(head, 'a')).toBeDefined();
    expect(() => createSealKeys([NEW]).open(head, 'b')).toThrow('not of this recording');
  });

  it.each([
    ['', 'has no key'],
    ['# nothing\n', 'has no key'],
    [`${NEW.toString('base64')}\nabc=\n`, 'line 2 is no key of 32 bytes'],
    [Buffer.alloc(31).toString('base64'), 'line 1 is no key of 32 bytes'],
    [Buffer.alloc(33).toString('base64'), 'line 1 is no key of 32 bytes'],
    [NEW.toString('base64url'), 'line 1 is no key of 32 bytes'],
    [`${NEW.toString('base64')}\n`.repeat(1001), 'more than 1000 keys'],
  ])('is refused by name if it is invalid: %j', async (text, problem) => {
    await expect(loadSealKeys(await fileOf(text))).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(new RegExp(`sealKeys: .*keys.*${problem}`)),
    });
  });

  it('is refused if it is missing', async () => {
    await expect(loadSealKeys(join(folder, 'none'))).rejects.toThrow(
      /sealKeys: .*none cannot be read: there is no such file/,
    );
  });
});

import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { searchServer, type SearchSettings } from '../../src/compose/search-settings.ts';

const SETTINGS: SearchSettings = {
  search: true,
  searchUrl: new URL('https://search.example.com:9200'),
  searchName: 'tailcast',
  searchCa: undefined,
  searchCredentials: undefined,
};

describe('the settings of an index at a server', () => {
  it('name it, and its files, and nothing of what is in them', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'search-settings-'));
    const searchCredentials = join(folder, 'credentials');
    await writeFile(searchCredentials, 'alice:canaryword\n');
    expect(await searchServer({ ...SETTINGS, searchUrl: undefined })).toBe(undefined);
    expect(await searchServer({ ...SETTINGS, searchCredentials })).toEqual({
      url: 'https://search.example.com:9200/',
      name: 'tailcast',
      shards: 1,
      credentialsFile: searchCredentials,
    });
    for (const host of ['localhost', '127.0.0.1', '[::1]'])
      expect(
        await searchServer({ ...SETTINGS, searchCredentials, searchUrl: new URL(`http://${host}:9200`) }),
        host,
      ).toMatchObject({ credentialsFile: searchCredentials });
  });

  it.each<[Partial<SearchSettings>, string]>([
    [{ search: false }, 'searchUrl needs search'],
    [{ searchUrl: new URL('https://alice:canaryword@host') }, 'name that as searchCredentials'],
    [{ searchUrl: new URL('https://host/?canaryword') }, 'a server is expected'],
    [{ searchName: 'Tail*' }, 'searchName is "Tail*"'],
    [{ searchName: '_all' }, 'searchName is'],
    [{ searchName: 'a,b' }, 'searchName is'],
    [
      { searchUrl: new URL('http://host:9200'), searchCredentials: '/absent' },
      'searchUrl must begin with https://',
    ],
    [{ searchCredentials: '/absent/credentials' }, '/absent/credentials cannot be read'],
  ])('refuse %o', async (wrong, sentence) => {
    const refused = await searchServer({ ...SETTINGS, ...wrong }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringContaining(sentence) });
    expect(String(refused)).not.toContain('canaryword');
  });
});

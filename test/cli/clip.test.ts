import { mkdir, mkdtemp, readFile, readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { runCommand } from '../support/run-command.ts';

const HEADER = {
  version: 2,
  width: 40,
  height: 6,
  timestamp: 1_767_323_045,
  command: 'sh',
  srcNode: 'a',
  srcNodeID: 'b',
};
const EVENTS = [
  [60, 'o', 'before\r\n'],
  [95, 'o', 'within\r\n'],
  [110, 'o', 'after\r\n'],
];

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tailcast-clip-test-'));
  await mkdir(join(folder, 'nTEST1CNTRL'));
  const cast = [HEADER, ...EVENTS].map((line) => `${JSON.stringify(line)}\n`).join('');
  await writeFile(join(folder, 'nTEST1CNTRL', '2026-01-02T03:04:05.000000000Z.cast'), cast);
});

describe('tailcast clip', () => {
  it('writes a range as an SVG, and never overwrites a file', async () => {
    const target = join(folder, 'clip.svg');
    const place = ['--store', folder, '--output', target];
    const range = ['clip', 'latest', '--from', '1:30', '--to', '1:45'];
    expect(await runCommand(...range, ...place)).toMatchObject({ code: 0, err: `${target}\n` });
    const svg = await readFile(target, 'utf8');
    expect(svg).toMatch(/^<svg [^]*<\/svg>\n$/);
    expect(svg).toContain('>before<');
    expect(svg).toContain('>within<');
    expect(svg).not.toContain('after');
    expect(svg).toContain('animation:clip 15.00s');
    const again = await runCommand(...range, ...place);
    expect([again.code, again.err]).toEqual([2, expect.stringContaining('exists already')]);
  });

  it('writes a cast file to standard output', async () => {
    const cast = join(folder, 'nTEST1CNTRL', '2026-01-02T03:04:05.000000000Z.cast');
    const { code, out } = await runCommand('clip', cast, '--from', '50', '--output', '-');
    expect([code, out]).toEqual([0, expect.stringContaining('>before<')]);
  });

  it('rejects invalid ranges without a file', async () => {
    const before = await readdir(folder);
    for (const range of [
      ['--from', 'soon'],
      ['--from', '20', '--to', '10'],
      ['--to', '1h'],
    ]) {
      const { code } = await runCommand(
        'clip',
        'latest',
        '--store',
        folder,
        '--output',
        join(folder, 'x'),
        ...range,
      );
      expect([range, code]).toEqual([range, 2]);
    }
    expect(await readdir(folder)).toEqual(before);
  });
});

import { describe, expect, it } from 'vitest';
import { parseHead } from '../../../src/tsrecorder/library/cast-head.ts';
import { presentCast, type Presentation } from '../../../src/tsrecorder/library/replay.ts';
import { HEADER } from '../recorder-rig.ts';

async function presented(cast: string, presentation: Presentation): Promise<string> {
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(cast);
  }
  return Buffer.concat(await Array.fromAsync(presentCast(chunks(), presentation))).toString();
}

const ODD = 'no event at all\n["o",1,"x"]\n\n';

describe('a cast for a player', () => {
  it('has sizes as columns and rows, and keeps lines that are not events', async () => {
    const cast = `{"version":2}\n[1,"r","24x80"]\n${ODD}[2,"o","a\\nb"]\n`;
    expect(await presented(cast, { rowsFirst: true, withoutTerminal: false })).toBe(
      `{"version":2}\n[1,"r","80x24"]\n${ODD}[2,"o","a\\nb"]\n`,
    );
  });

  it('of a session without a terminal has a size and complete line ends', async () => {
    const cast = `{"version":2,"width":0,"height":0}\n${ODD}[2,"o","a\\nb"]\n[3,"r","24x80"]\n[4,"o",7]\n`;
    expect(await presented(cast, { rowsFirst: false, withoutTerminal: true })).toBe(
      `{"version":2,"width":80,"height":24}\n${ODD}[2,"o","a\\r\\nb"]\n[3,"r","24x80"]\n[4,"o",7]\n`,
    );
  });
});

describe('the kind of a recording', () => {
  const header = JSON.parse(HEADER) as Record<string, unknown>;
  const kindWith = (more: Record<string, unknown>): string | undefined =>
    parseHead(JSON.stringify({ ...header, kubernetes: undefined, sshUser: '', connectionID: '', ...more }))
      ?.kind;

  it.each([
    [{ kubernetes: header['kubernetes'] }, 'exec'],
    [{ sshUser: 'root' }, 'ssh'],
    [{ connectionID: 'c' }, 'ssh'],
    [{}, 'unknown'],
  ])('of %j is %s', (more, kind) => {
    expect(kindWith(more)).toBe(kind);
  });
});

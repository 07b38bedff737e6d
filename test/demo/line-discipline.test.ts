import { describe, expect, it } from 'vitest';
import { createLineDiscipline } from '../../demo/line-discipline.ts';

function type(text: string): { deliver: string; echo: string; interrupt: boolean; end: boolean } {
  const { deliver, echo, ...rest } = createLineDiscipline().typed(Buffer.from(text));
  return { deliver: Buffer.from(deliver).toString(), echo: Buffer.from(echo).toString(), ...rest };
}

describe('the line discipline of a shell on pipes', () => {
  it('echoes and delivers whole lines', () => {
    expect(type('ls\r')).toEqual({ deliver: 'ls\n', echo: 'ls\r\n', interrupt: false, end: false });
    expect(type('ls')).toMatchObject({ deliver: '', echo: 'ls' });
  });

  it('erases, interrupts and ends', () => {
    expect(type('lx\u007fs\r')).toMatchObject({ deliver: 'ls\n', echo: 'lx\b \bs\r\n' });
    expect(type('\u007f')).toMatchObject({ echo: '' });
    expect(type('abc\u0003')).toMatchObject({ deliver: '', echo: 'abc^C\r\n', interrupt: true });
    expect(type('\u0004')).toMatchObject({ end: true });
    expect(type('abc\u0004')).toMatchObject({ deliver: 'abc', end: false });
  });

  it('holds 4096 bytes of a line and no more', () => {
    expect(type(`${'x'.repeat(4096)}\r`).deliver).toHaveLength(4097);
    const { deliver, echo } = type(`${'x'.repeat(4097)}\r`);
    expect(deliver).toHaveLength(4097);
    expect(echo).toContain('\u0007');
  });

  it('prints newlines as a terminal needs them', () => {
    const { printed } = createLineDiscipline();
    expect(Buffer.from(printed(Buffer.from('a\nb\n'))).toString()).toBe('a\r\nb\r\n');
  });
});

import { describe, expect, it } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseExecOptions, type ExecOptions } from '../../src/kube/exec-options.ts';

function optionsOf(query: string): ExecOptions {
  return parseExecOptions(parseTarget(`/api/v1/namespaces/n/pods/p/exec?${query}`));
}

describe('parseExecOptions', () => {
  it('reads what kubectl sends', () => {
    expect(
      optionsOf('command=sh&command=-c&command=echo+%22a+b%22&container=c&stdin=true&stdout=true&tty=true'),
    ).toEqual({
      container: 'c',
      command: ['sh', '-c', 'echo "a b"'],
      stdin: true,
      stdout: true,
      stderr: false,
      tty: true,
    });
  });

  it('reads nothing as nothing', () => {
    expect(optionsOf('')).toEqual({
      container: undefined,
      command: [],
      stdin: false,
      stdout: false,
      stderr: false,
      tty: false,
    });
  });

  it.each<[query: string, tty: boolean]>([
    ['tty', true],
    ['tty=', true],
    ['tty=1', true],
    ['tty=TRUE', true],
    ['tty=no', true],
    ['tty=true&tty=false', true],
    ['tty=false&tty=true', false],
    ['tty=0', false],
    ['tty=False', false],
    ['TTY=true', false],
    ['%74%74%79=1', true],
    ['tty=1;x', false],
  ])('D9 %s means %s', (query, tty) => {
    expect(optionsOf(query).tty).toBe(tty);
    expect(
      optionsOf(query.replaceAll(/tty/g, 'stdin').replaceAll('TTY', 'STDIN').replace('%74%74%79', 'stdin'))
        .stdin,
    ).toBe(tty);
  });

  it('gives stderr up for a terminal', () => {
    expect(optionsOf('stderr=1').stderr).toBe(true);
    expect(optionsOf('stderr=1&tty=1').stderr).toBe(false);
  });

  it('D10 takes the first container and keeps argument boundaries', () => {
    expect(optionsOf('container=a&container=b').container).toBe('a');
    expect(optionsOf('container=').container).toBeUndefined();
    expect(optionsOf('command=a%0Ab&command=&command=c').command).toEqual(['a\nb', '', 'c']);
    expect(optionsOf('command=x&'.repeat(4000)).command).toHaveLength(4000);
    expect(() => optionsOf('command=x&'.repeat(5000))).toThrow(
      expect.objectContaining({ code: 'REQUEST_NOT_CANONICAL' }),
    );
    expect(() => optionsOf(`command=${'x'.repeat(1 << 20)}`)).toThrow(
      expect.objectContaining({ code: 'TARGET_TOO_LONG' }),
    );
  });
});

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { completionScript, completions } from '../../src/cli/completion.ts';
import { createProgram, runProgram } from '../../src/cli/program.ts';

const context = {
  stdout: new PassThrough(),
  stderr: new PassThrough(),
  environment: new Map<string, string>(),
  signal: new AbortController().signal,
};
const program = createProgram(context);

const words = (...typed: readonly string[]): readonly string[] =>
  completions(program, typed).map((line) => line.split('\t', 1)[0] ?? '');

describe('completions', () => {
  it('offers the commands that begin with the word', () => {
    expect(words('rec')).toEqual(['recorder', ':4']);
    expect(words('req')).toEqual(['request', 'requests', ':4']);
    expect(words('')).toContain('gateway');
    expect(words('')).not.toContain('__complete');
  });

  it('offers the commands of a command, past its options', () => {
    expect(words('doctor', '')).toEqual(['gateway', 'recorder', 'operator', 'help', ':4']);
  });

  it('offers options with their descriptions', () => {
    expect(words('gateway', '--proxy-')).toEqual(['--proxy-protocol', ':4']);
    expect(completions(program, ['ls', '--lim'])[0]).toBe('--limit\tmaximum number of recordings');
  });

  it('offers the values that a setting lists', () => {
    expect(words('gateway', '--proxy-protocol', '')).toEqual(['off', 'require', ':4']);
    expect(words('gateway', '--proxy-protocol', 'r')).toEqual(['require', ':4']);
    expect(words('completion', '')).toEqual(['bash', 'zsh', 'fish', ':4']);
  });

  it('offers the contexts of the kubeconfig, except names that would be several lines', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tailcast-contexts-'));
    const file = join(folder, 'config');
    const names = ['prod@gate', 'dev@gate', 'x\nevil', 'a b', '\u001b[2J'];
    writeFileSync(
      file,
      JSON.stringify({
        clusters: [{ name: 'k', cluster: { server: 'https://gate' } }],
        contexts: names.map((name) => ({ name, context: { cluster: 'k', user: 'u' } })),
        users: [{ name: 'u', user: {} }],
      }),
    );
    const offered = async (kubeconfig: string, ...typed: readonly string[]): Promise<string> => {
      const stdout = new PassThrough();
      const environment = new Map([['KUBECONFIG', kubeconfig]]);
      await runProgram(['__complete', ...typed], { ...context, stdout, environment });
      return String(stdout.read());
    };
    expect(await offered(file, 'ls', '--context', '')).toBe('prod@gate\ndev@gate\n:4\n');
    expect(await offered(file, 'gateway', '--context', 'p')).toBe('prod@gate\n:4\n');
    expect(await offered(join(folder, 'absent'), 'ls', '--context', '')).toBe(':4\n');
    expect(await offered(file, 'ls', '--user', '')).toBe(':4\n');
    rmSync(folder, { recursive: true });
  });

  it('leaves files to the shell where files belong, and nowhere else', () => {
    expect(words('gateway', '--config', '')).toEqual([':0']);
    expect(words('verify', '')).toEqual([':0']);
    expect(words('ls', '--user', '')).toEqual([':4']);
    expect(words('nonsense', '')).toContain('gateway');
  });
});

describe('the scripts', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tailcast-completion-'));

  it('make bash ask the program, and offer files when it says so', () => {
    const script = join(folder, 'completion');
    writeFileSync(script, completionScript('bash'));
    const fake = join(folder, 'tailcast');
    writeFileSync(fake, '#!/bin/sh\nprintf "asked-%s\\tmeaning\\n:4\\n" "$(echo "$@" | tr " " ,)"\n');
    chmodSync(fake, 0o755);
    const typed = `source ${script}; COMP_WORDS=(${fake} ls --us); COMP_CWORD=2; _tailcast; echo "\${COMPREPLY[@]}"`;
    const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', typed], { encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(stdout).toBe('asked-__complete,ls,--us\n');
  });

  it('are for shells that are known', () => {
    expect(completionScript('zsh')).toMatch(/^#compdef tailcast\n/);
    expect(completionScript('fish')).toContain('complete -c tailcast');
    expect(() => completionScript('csh')).toThrow(/there is no completion for csh; known: bash, zsh, fish/);
  });
});

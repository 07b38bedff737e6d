/**
 * On an unsupported Node, every recording of a recorder would fail: the recorder must not start, and must not report
 * recordings as damaged.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { findOldNode } from './support/old-node.ts';

const MAIN = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const SENTENCE = /^tailcast: Node \d+\.\d+\.\d+ is too old; 22\.19 or newer is needed\n$/;

/** Checks that the process prints only the error sentence, and exits before it parses the options of the role. */
function expectRefusal(command: string, args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(command, [...args, MAIN, 'recorder', '--no-such-option'], {
    encoding: 'utf8',
    env: {},
    timeout: 60_000,
  });
  expect(stderr).toMatch(SENTENCE);
  expect(stdout).toBe('');
  expect(status).toBe(1);
}

it('is named by package.json and the README', () => {
  const read = (name: string): string => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
  expect(JSON.parse(read('package.json'))).toMatchObject({ engines: { node: '>=22.19' } });
  expect(read('README.md')).toContain('Node 22.19 or newer');
  expect(read('README.md')).not.toMatch(/npx tailcast (gateway|recorder|kubeconfig)/);
});

describe('on a Node that is too old', () => {
  it.each(['20.20.2', '22.18.0'])('the process ends with a sentence: told that it is %s', (version) => {
    const preload = `Object.defineProperty(process.versions, 'node', { value: '${version}' })`;
    expectRefusal(process.execPath, ['--import', `data:text/javascript,${encodeURIComponent(preload)}`]);
  });

  const old = findOldNode();
  it.skipIf(old === undefined)('the process ends with a sentence: a real one', () => {
    expectRefusal(String(old), []);
  });

  it('nothing else is loaded: neither what it lacks nor what it cannot read keeps it from saying so', () => {
    const preload = `import { registerHooks } from 'node:module';
      Object.defineProperty(process.versions, 'node', { value: '20.1.0' });
      registerHooks({ load(url, context, next) {
        if (url.endsWith('/main.js') || url.endsWith('/node-version.js')) return next(url, context);
        throw new SyntaxError('an old Node cannot read this');
      } });`;
    expectRefusal(process.execPath, ['--import', `data:text/javascript,${encodeURIComponent(preload)}`]);
  });
});

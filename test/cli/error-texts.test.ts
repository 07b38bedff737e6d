/**
 * Error messages of commands. Each message contains what happened, the value that caused it, what to do, and the code.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatFinding } from '../../src/cli/doctor-report.ts';
import { formatFailure } from '../../src/cli/failure-text.ts';
import { errorReason, errorText, TailcastError } from '../../src/errors.ts';
import { createRig, HEADER, uploadWhole } from '../tsrecorder/recorder-rig.ts';
import { runCommand } from '../support/run-command.ts';

const folder = mkdtempSync(join(tmpdir(), 'tailcast-texts-'));

/** Text that messages must not contain: names of errno values, JSON, stacks, and texts of libraries. */
const RAW = /\bE[A-Z]{4,}\b|[{}]|^ +at |ZodError|SDK|fetch failed/m;

describe('an error of a command', () => {
  it('is a sentence of the recorder, not its JSON', async () => {
    await using rig = await createRig();
    const { code, err } = await runCommand('ls', '--recorder', rig.recorder.url, '--user', 'x'.repeat(2000));
    expect(code).toBe(2);
    expect(err).toMatch(/^tailcast: wrong usage: .*user/);
    expect(err).not.toMatch(RAW);
  });

  it('says of a bucket that it cannot be read, and what is missing', async () => {
    const { code, err } = await runCommand('ls', '--store', 's3://nobucket');
    expect(code).toBe(1);
    expect(err).toMatch(/^tailcast: the store of recordings failed: /);
    expect(err).not.toMatch(/could not store/);
    expect(err).not.toMatch(RAW);
  });

  it('names the folder that an export cannot be written to', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const output = join(folder, 'none', 'x.txt');
    const args = ['--recorder', rig.recorder.url, '--format', 'cast', '--output', output];
    const { code, err } = await runCommand('export', 'latest', ...args);
    expect(code).toBe(2);
    expect(err).toContain(
      `--output ${output} cannot be written: the folder ${join(folder, 'none')} does not exist\n`,
    );
    expect(err).not.toMatch(/\.part|ENOENT/);
  });

  it('leaves the draft of another export alone', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const output = join(folder, 'busy.cast');
    writeFileSync(`${output}.part`, 'half');
    const args = ['--recorder', rig.recorder.url, '--format', 'cast', '--output', output];
    const { code, err } = await runCommand('export', 'latest', ...args);
    expect(code).toBe(2);
    expect(err).toContain('another export may be running');
    expect((await runCommand('export', 'latest', ...args)).code).toBe(2);
  });

  it.each([
    [['help', 'nosuch'], /nosuch/],
    [['help', 'index', 'nosuch'], /nosuch/],
    [['nosuch'], /: there is no command nosuch\n/],
    [['ls', '--nosuch'], /: there is no option --nosuch\n/],
    [['ls', '--stat'], /: there is no option --stat; did you mean --state\?\n/],
    [['ls', '--state', 'opne'], /: --state: not opne, but one of: running, completed, /],
    [['ls', '--state'], /: --state <state>: a value is missing\n/],
    [['ls', 'a', 'b'], /: 2 arguments instead of 0: a, b\n/],
    [['play', 'latest', '--speed', 'fast'], /: --speed: .*fast/],
    [['play'], /: <id> is missing\n/],
    [['index'], /Usage: tailcast index/],
  ])('is about the word that is wrong: %j', async (args, message) => {
    const { code, out, err } = await runCommand(...args);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(message);
    if (!err.startsWith('Usage: ')) expect(err).toMatch(/^tailcast: wrong usage: [^]*\n {2}.* \[USAGE\]\n$/);
  });

  it.each([[['help']], [['help', 'ls']], [['help', 'index', 'verify']]])('%j shows help', async (args) => {
    const { code, out } = await runCommand(...args);
    expect(code).toBe(0);
    expect(out).toContain('Usage: tailcast');
  });

  it('does not repeat its sentence', () => {
    expect(new TailcastError('SHUTTING_DOWN', 'the gateway is shutting down').message).toBe(
      'the gateway is shutting down',
    );
    const inner = new TailcastError('STORE_FAILED', 'the disk is full');
    expect(new TailcastError('STORE_FAILED', inner.message).message).toBe(inner.message);
  });

  it('has the code last, and the advice before it', () => {
    expect(formatFailure(new TailcastError('RECORDING_UNKNOWN', 'x'))).toMatch(
      /^tailcast: there is no such recording: x\n {2}[A-Z].*\. \[RECORDING_UNKNOWN\]\n$/,
    );
  });
});

describe('errors of the system', () => {
  const made = (fields: object): Error => Object.assign(new Error('raw'), fields);

  it.each([
    [{ code: 'ENOENT', path: '/x' }, '/x: there is no such file or folder'],
    [{ code: 'ECONNREFUSED', address: '::1', port: 80 }, '[::1]:80: connection refused'],
    [{ code: 'EADDRINUSE', address: '127.0.0.1', port: 80 }, '127.0.0.1:80: the address is in use'],
    [{ code: 'ENOTFOUND', hostname: 'gw' }, 'gw: the host name does not exist'],
    [{ code: 'CERT_HAS_EXPIRED' }, 'the certificate has expired'],
    [{ code: 'EUNKNOWN' }, 'raw'],
  ])('%j', (fields, text) => {
    expect(errorText(made(fields))).toBe(text);
    expect(text.endsWith(errorReason(made(fields)))).toBe(true);
  });
});

it('separates a long title of the doctor from the text', () => {
  const title = 'output that no recorder has acknowledged';
  const line = formatFinding({ id: 'x', title, status: 'ok', summary: 'nothing' });
  expect(line).toBe(`ok    ${title}  nothing\n`);
});

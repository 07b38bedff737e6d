import { describe, expect, it } from 'vitest';
import { createLogBuffer, writeLog, type LogBuffer, type LogQuery } from '../../demo/logs.ts';

const EVERYTHING: LogQuery = {
  follow: false,
  timestamps: false,
  tailLines: undefined,
  sinceMs: undefined,
  limitBytes: undefined,
};

async function read(log: LogBuffer, query: Partial<LogQuery> = {}): Promise<string> {
  let text = '';
  const write = (bytes: Uint8Array): Promise<void> => {
    text += Buffer.from(bytes).toString('latin1');
    return Promise.resolve();
  };
  await writeLog(log, { ...EVERYTHING, ...query }, write, new AbortController().signal);
  return text;
}

function append(log: LogBuffer, text: string, source: 'stdout' | 'stderr' = 'stdout'): void {
  log.append(source, Buffer.from(text));
}

describe('a log', () => {
  it('makes lines of chunks, each stream for itself', async () => {
    const log = createLogBuffer(() => 0);
    append(log, 'on');
    append(log, 'err', 'stderr');
    append(log, 'e\ntwo\nthr');
    append(log, 'or\n', 'stderr');
    expect(await read(log)).toBe('one\ntwo\nerror\n');
    log.end();
    expect(await read(log)).toBe('one\ntwo\nerror\nthr');
  });

  it('cuts lines at 16 KiB and keeps every byte', async () => {
    const log = createLogBuffer(() => 0);
    append(log, 'x'.repeat(40_000));
    expect(log.since(0).map(({ bytes }) => bytes.byteLength)).toEqual([16_384, 16_384]);
    append(log, '\n');
    expect(await read(log)).toBe(`${'x'.repeat(40_000)}\n`);
  });

  it('drops the oldest lines when it is full', async () => {
    const log = createLogBuffer(() => 0, 12);
    for (const line of ['aaaa\n', 'bbbb\n', 'cc\n']) append(log, line);
    expect(await read(log)).toBe('bbbb\ncc\n');
    append(log, 'd\n');
    expect(await read(log)).toBe('bbbb\ncc\nd\n');
    append(log, 'ee\n');
    expect(await read(log)).toBe('cc\nd\nee\n');
  });

  it('gives the tail, since a time, with timestamps, up to a size', async () => {
    let time = 0;
    const log = createLogBuffer(() => time);
    for (const line of ['a\n', 'b\n', 'c\n']) {
      time += 1000;
      append(log, line);
    }
    expect(await read(log, { tailLines: 2 })).toBe('b\nc\n');
    expect(await read(log, { tailLines: 0 })).toBe('');
    expect(await read(log, { tailLines: 9 })).toBe('a\nb\nc\n');
    expect(await read(log, { sinceMs: 3000 })).toBe('c\n');
    expect(await read(log, { limitBytes: 3 })).toBe('a\nb');
    expect(await read(log, { tailLines: 1, timestamps: true })).toBe('1970-01-01T00:00:03.000000000Z c\n');
  });

  it('follows until the log ends, without repeating or losing a line', async () => {
    const log = createLogBuffer(() => 0);
    append(log, 'a\nb\n');
    const following = read(log, { follow: true, tailLines: 1 });
    for (let line = 0; line < 100; line += 1) {
      append(log, `${String(line)}\n`);
      if (line % 7 === 0) await Promise.resolve();
    }
    log.end();
    expect(await following).toBe(
      `b\n${Array.from({ length: 100 }, (_, line) => `${String(line)}\n`).join('')}`,
    );
  });

  it('stops following when the reader leaves', async () => {
    const log = createLogBuffer(() => 0);
    const leaving = new AbortController();
    const following = writeLog(log, { ...EVERYTHING, follow: true }, () => Promise.resolve(), leaving.signal);
    leaving.abort();
    await expect(following).resolves.toBeUndefined();
  });
});

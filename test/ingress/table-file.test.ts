import { mkdir, mkdtemp, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MAX_TABLE_BYTES } from '../../src/ingress/routes.ts';
import { openTableFile, type TableFile } from '../../src/ingress/table-file.ts';
import { createLogger } from '../../src/observe/logger.ts';
import type { IngressTable } from '../../src/wire/ingress-table.ts';

const textOf = (host: string): string =>
  JSON.stringify({
    version: 1,
    certificates: [],
    secure: [host],
    hosts: [],
    redirect: false,
  } satisfies IngressTable);

let folder: string;
let path: string;
let lines: string[];
let end: AbortController;
let followed: Promise<void>;
let file: TableFile;
let refused: string | undefined;
let tries: number;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ingress-table-'));
  path = join(folder, 'table.json');
  lines = [];
  refused = undefined;
  tries = 0;
  end = new AbortController();
  followed = Promise.resolve();
});
afterEach(async () => {
  end.abort();
  await followed;
});

async function open(): Promise<void> {
  const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } });
  file = await openTableFile({
    path,
    log,
    checkEveryMs: 5,
    use({ secure }) {
      tries += 1;
      if (secure[0] === refused) throw new Error('its certificate is none');
    },
  });
  followed = file.follow(end.signal);
}
const host = (): string | undefined => file.current?.secure[0];
const errors = (): string[] => lines.filter((line) => line.includes('"level":"error"'));
/** Replaces the table atomically, as a kubelet updates a mounted Secret. */
async function put(text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await rename(`${path}.new`, path);
}

describe('the table file', () => {
  it('is read again when it changes', async () => {
    await put(textOf('one.example.org'));
    await open();
    expect(host()).toBe('one.example.org');
    await put(textOf('two.example.org'));
    await expect.poll(host).toBe('two.example.org');
    expect(errors()).toEqual([]);
  });

  it('may come later', async () => {
    await open();
    expect(host()).toBeUndefined();
    expect(errors().join()).toContain('there is no such file');
    await put(textOf('one.example.org'));
    await expect.poll(host).toBe('one.example.org');
  });

  it.each<[string, () => Promise<unknown>, string]>([
    ['half-written', () => writeFile(path, textOf('two.example.org').slice(0, -9)), 'not understood'],
    ['empty', () => truncate(path), 'not understood'],
    ['gone', () => rm(path), 'there is no such file'],
    ['too large', () => truncate(path, MAX_TABLE_BYTES + 1), 'too large'],
    [
      'not to be read',
      async () => {
        await rm(path);
        await mkdir(path);
      },
      'it is a folder',
    ],
    [
      'not to be used',
      () => {
        refused = 'two.example.org';
        return put(textOf(refused));
      },
      'its certificate is none',
    ],
  ])('that is %s leaves the last good one in place, and that is said', async (_what, spoil, said) => {
    await put(textOf('one.example.org'));
    await open();
    await spoil();
    await expect.poll(errors).toHaveLength(1);
    expect(errors()[0]).toContain(said);
    expect(errors()[0]).toContain('the last valid one stays');
    expect(host()).toBe('one.example.org');
    refused = undefined;
    await rm(path, { recursive: true, force: true });
    await put(textOf('three.example.org'));
    await expect.poll(host).toBe('three.example.org');
  });

  it('that cannot be used is tried again, and that is said once', async () => {
    refused = 'one.example.org';
    await put(textOf(refused));
    await open();
    await expect.poll(() => tries).toBeGreaterThan(4);
    expect(errors()).toHaveLength(1);
    expect(host()).toBeUndefined();
  });

  it('of the largest size is read, and says nothing of keys when it is not understood', async () => {
    const text = textOf('one.example.org');
    await put(text.padEnd(MAX_TABLE_BYTES));
    await open();
    expect(host()).toBe('one.example.org');
    await put(JSON.stringify({ certificates: [{ hosts: [], certificatePem: 'pem', keyPem: ['hidden'] }] }));
    await expect.poll(errors).toHaveLength(1);
    expect(errors()[0]).toContain('certificates.0.keyPem');
    expect(errors()[0]).not.toContain('hidden');
  });
});

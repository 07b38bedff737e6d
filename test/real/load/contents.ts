/** Commands for the container, their output, and the part of the output that must arrive. */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cell } from './cells.ts';

const MB = 1_000_000;
const TTY_LINES = 100_000;
const SMALL_WRITES = 3_000;

export interface Expected {
  readonly bytes: number;
  readonly sha256: string;
  /** Exit code of the command. */
  readonly code: number;
}

export interface Script {
  readonly tty: boolean;
  /** Returns arguments of `sh` that contain `token`, which identifies the recording. */
  command(token: string): readonly string[];
  readonly expected: Expected;
}

/**
 * Creates a function that returns the command for a cell. Each file that a command prints is created only once. Pods
 * can read the files, because they use the file system of this machine.
 */
export function createContents(folder: string): (cell: Cell) => Promise<Script> {
  const known = new Map<string, Promise<Script>>();
  return (cell) => {
    const key = `${cell.content}-${cell.megabytes}`;
    const script = known.get(key) ?? makeScript(cell, join(folder, key));
    known.set(key, script);
    return script;
  };
}

async function makeScript({ content, megabytes }: Cell, path: string): Promise<Script> {
  switch (content) {
    case 'text':
    case 'random': {
      if (!existsSync(path))
        writeFileSync(path, content === 'text' ? textOf(megabytes * MB) : randomBytes(megabytes * MB));
      const hash = createHash('sha256');
      let bytes = 0;
      for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) {
        if (!(chunk instanceof Uint8Array)) continue;
        hash.update(chunk);
        bytes += chunk.length;
      }
      return {
        tty: false,
        command: (token) => ['-c', `cat ${path}`, token],
        expected: { bytes, sha256: hash.digest('hex'), code: 0 },
      };
    }
    case 'tty-lines': {
      const text = Array.from({ length: TTY_LINES }, (_, index) => `${index + 1}\r\n`).join('');
      return {
        tty: true,
        command: (token) => ['-c', `seq ${TTY_LINES}`, token],
        expected: { ...digestOf(text), code: 0 },
      };
    }
    case 'small-writes': {
      const text = Array.from({ length: SMALL_WRITES }, (_, index) => `line ${index}\n`).join('');
      const loop = `i=0; while [ $i -lt ${SMALL_WRITES} ]; do echo "line $i"; i=$((i+1)); done; exit 7`;
      return {
        tty: false,
        command: (token) => ['-c', loop, token],
        expected: { ...digestOf(text), code: 7 },
      };
    }
  }
}

function textOf(bytes: number): Buffer {
  const lines: string[] = [];
  let length = 0;
  for (let number = 0; length < bytes; number += 1) {
    const line =
      `${String(number).padStart(9, '0')} the quick brown fox jumps over the lazy dog and comes ` +
      'back again\n';
    lines.push(line);
    length += line.length;
  }
  return Buffer.from(lines.join('')).subarray(0, bytes);
}

function digestOf(text: string): { readonly bytes: number; readonly sha256: string } {
  return { bytes: Buffer.byteLength(text), sha256: createHash('sha256').update(text).digest('hex') };
}

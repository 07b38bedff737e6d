import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import {
  encodeEntry,
  encodeSegment,
  hashLine,
  LOG_FORMAT,
  logSegmentName,
  NO_HASH,
  type LogEvent,
} from '../../src/tsrecorder/evidence/log-entry.ts';
import { signBatch } from '../../src/tsrecorder/evidence/signed-batch.ts';
import { generateSigningKey, type SigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { buildArchive, type Objects } from './archive.ts';
import { createMutant, createRandom } from './mutants.ts';

const run = promisify(execFile);
const KINDS = [
  'flipInFile',
  'dropLine',
  'flipInLog',
  'dropLogLine',
  'deleteSession',
  'swapSessions',
  'copySession',
  'relinkLog',
  'rollBackLog',
  'deleteEverythingOfALog',
] as const;

/** Python program that runs a script, and adds staged files to the store when the script reads its first file. */
const WITH_LATE_FILES = `
import pathlib, runpy, shutil, sys
script, staged, *sys.argv[1:] = sys.argv[1:]
read = pathlib.Path.read_bytes
def read_late(path):
    pathlib.Path.read_bytes = read
    shutil.copytree(staged, sys.argv[1], dirs_exist_ok=True)
    return read(path)
pathlib.Path.read_bytes = read_late
runpy.run_path(script, run_name='__main__')
`;

/** Returns the segments of a new log, one for each entry, and the head of each segment. */
function segmentsOf(log: string, signer: SigningKey) {
  let [prev, n] = [NO_HASH, 0];
  return (event: LogEvent) => {
    const line = encodeEntry({ n, prev, time: '2026-07-29T12:00:00.000Z', event });
    const head = { log, n, hash: hashLine(line) };
    [prev, n] = [head.hash, n + 1];
    return {
      head,
      file: [logSegmentName(log, head.n), Buffer.from(encodeSegment([line], head, signer))] as const,
    };
  };
}

/** Returns the segment of a new log with these entries. */
function logOf(events: readonly LogEvent[], signer: SigningKey): readonly [string, Buffer] {
  const log = 'f'.repeat(32);
  const open = { kind: 'open', format: LOG_FORMAT, log, key: signer.public.raw } as const;
  let prev = NO_HASH;
  const lines = [open, ...events].map((event, n) => {
    const line = encodeEntry({ n, prev, time: '2026-07-29T12:00:00.000Z', event });
    prev = hashLine(line);
    return line;
  });
  const segment = encodeSegment(lines, { log, n: events.length, hash: prev }, signer);
  return [logSegmentName(log, 0), Buffer.from(segment)];
}

describe('docs/verify.py', () => {
  it('agrees with ours', async (context) => {
    if (!(await run('python3', ['-c', 'pow(3, -1, 7)']).then(Boolean, () => false))) {
      context.skip('there is no python3 here');
      return;
    }
    const root = await mkdtemp(join(tmpdir(), 'tailcast-python-'));
    const script = fileURLToPath(new URL('../../docs/verify.py', import.meta.url));
    const archive = await buildArchive();
    const keys = archive.keys.map(({ raw }) => raw);
    const verify = async (name: string, objects: Objects, given: readonly string[]): Promise<string> => {
      const store = join(root, name);
      for (const [object, content] of objects) {
        await mkdir(dirname(join(store, object)), { recursive: true });
        await writeFile(join(store, object), content);
      }
      return run('python3', [script, store, ...given]).then(
        ({ stdout }) => stdout,
        (error: { stdout: string; stderr: string }) => `FAILED ${error.stdout}${error.stderr}`,
      );
    };
    const noFaults = /^no faults\nnot checked: /;
    expect(await verify('intact', archive.objects, keys)).toMatch(noFaults);
    expect(await verify('intact', archive.objects, [])).toMatch(/^FAILED unverified: /);
    expect(await verify('empty', new Map([['x', Buffer.from('')]]), keys)).toMatch(/^FAILED unverified: /);
    expect(await verify('intact', archive.objects, keys.slice(1))).toMatch('is not signed');
    const random = createRandom(5);
    for (const kind of KINDS) {
      const mutant = createMutant(archive, kind, random) ?? createMutant(archive, kind, random)!;
      expect(await verify(kind, mutant.objects, keys), mutant.name).toMatch(/^FAILED/);
    }
    const signer = generateSigningKey();
    const grow = (name: string, events: readonly LogEvent[], more: Objects = new Map()): Promise<string> =>
      verify(name, new Map([logOf(events, signer), ...more]), [signer.public.raw]);
    const present = 'nGATE1CNTRL_2026-07-29T11:50:50.000000000Z';
    const seal = { bytes: 1, blockBytes: 4096, chain: NO_HASH };
    const session = 'a'.repeat(32);
    const end = { kind: 'end', start: 0, recording: present, session, cast: seal } as const;
    const hold = {
      kind: 'held',
      recording: present,
      at: '2026-07-29T11:50:50.000Z',
      reason: 'case 17',
    } as const;
    const removal = { kind: 'removed', recording: present, reason: 'age', bytes: 1 } as const;
    const batch = Buffer.from('{"a":1}\n');
    const file = 'events/2026-07-29/2026-07-29T10:44:41.000000001Z_0123.ndjson';
    const document = {
      kind: 'document',
      name: file,
      bytes: batch.length,
      sha256: hash('sha256', batch),
    } as const;
    expect(await grow('document', [document], new Map([[file, batch]]))).toMatch(noFaults);
    expect(await grow('changed', [document], new Map([[file, Buffer.from('{"a":2}\n')]]))).toMatch(
      'is missing or',
    );
    expect(await grow('lost', [document])).toMatch('is missing or changed');
    const gone = { kind: 'documentRemoved', name: file, reason: 'age' } as const;
    expect(await grow('removed', [document, gone])).toMatch(noFaults);
    const signed = Buffer.from(signBatch(file, batch, signer));
    expect(await grow('unlogged', [], new Map([[file, signed]]))).toMatch(noFaults);
    expect(
      await grow('forged', [], new Map([[file, Buffer.from(signBatch(file, batch, generateSigningKey()))]])),
    ).toMatch('is not signed');
    expect(await grow('held', [hold, removal])).toMatch('was removed while it was held');
    const kept: Objects = new Map([['nGATE1CNTRL/2026-07-29T11:50:50.000000000Z.cast', Buffer.from('x')]]);
    expect(await grow('kept', [hold, removal], kept)).toMatch(noFaults);
    const unverified = `'${present}' is unverified: it has no sidecar`;
    expect(await grow('planted', [], kept)).toMatch(unverified);
    expect(await grow('plantedAgain', [end, removal], kept)).toMatch(unverified);
    expect(await grow('plantedBesideAFault', [document], kept)).toMatch(unverified);
    expect(await grow('keptChanged', [end, hold, removal], kept)).toMatch('was removed while it was held');
    const release = { ...hold, kind: 'released', at: '2026-07-29T11:50:51.000Z' } as const;
    expect(await grow('again', [end, hold, removal, hold, release, removal])).toMatch(noFaults);
    for (const [name, events, expected] of [
      ['excused', [removal], noFaults],
      ['unverified', [{ ...removal, reason: 'unverified' }], 'is missing'],
      ['cancelled', [removal, hold], 'is missing'],
    ] as const) {
      expect(await grow(name, [end, ...events]), name).toMatch(expected);
    }
    const [one, two] = ['1', '2'].map((name) => segmentsOf(name.repeat(32), signer));
    const [first, second] = [one!, two!].map((append, at) =>
      append({ kind: 'open', format: LOG_FORMAT, log: String(at + 1).repeat(32), key: signer.public.raw }),
    );
    const [third, fourth] = [one!, two!].map((append) => append(gone));
    const witnesses = [
      one!({ kind: 'witness', head: fourth!.head }),
      two!({ kind: 'witness', head: third!.head }),
    ];
    await verify('staged', new Map([third!, fourth!, ...witnesses].map(({ file }) => file)), []);
    await verify('live', new Map([first!, second!].map(({ file }) => file)), []);
    const argv = ['-c', WITH_LATE_FILES, script, join(root, 'staged'), join(root, 'live'), signer.public.raw];
    const { stdout } = await run('python3', argv).catch((error: { stdout: string }) => error);
    expect(stdout).toMatch(noFaults);
    await rm(root, { recursive: true });
  });
});

/** Evidence logs with an untrusted key, and stores with forged content. */
import { beforeAll, describe, expect, it } from 'vitest';
import {
  encodeEntry,
  encodeSegment,
  hashLine,
  keyName,
  NO_HASH,
  logSegmentName,
  type LogEvent,
} from '../../src/tsrecorder/evidence/log-entry.ts';
import { generateSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import type { Finding } from '../../src/tsrecorder/evidence/finding.ts';
import { buildArchive, verifyObjects, type Archive, type Objects } from './archive.ts';

const LOG = 'ab'.repeat(16);

/** Returns an evidence log that an untrusted key has signed, and this key. */
function strangersLog(...events: readonly LogEvent[]): Objects {
  return logOf(LOG, ...events);
}

function logOf(log: string, ...events: readonly LogEvent[]): Objects {
  const key = generateSigningKey();
  const all: readonly LogEvent[] = [{ kind: 'open', format: 1, log, key: key.public.raw }, ...events];
  let hash = NO_HASH;
  const lines = all.map((event, n) => {
    const line = encodeEntry({ n, prev: hash, time: '2026-01-01T00:00:00.000Z', event });
    hash = hashLine(line);
    return line;
  });
  const segment = encodeSegment(lines, { log, n: lines.length - 1, hash }, key);
  return new Map([
    [logSegmentName(log, 0), Buffer.from(segment)],
    [keyName(key.public.id), Buffer.from(key.public.pem)],
  ]);
}

let archive: Archive;
let casts: readonly string[];
beforeAll(async () => {
  archive = await buildArchive();
  casts = [...archive.objects.keys()].filter((name) => /^nGATE.CNTRL\/20(?!20).*\.cast$/.test(name));
});

const idOf = (cast: string): string => cast.replace('/', '_').replace(/\.cast$/, '');
function without(objects: Objects, ...prefixes: readonly string[]): Objects {
  return new Map([...objects].filter(([name]) => !prefixes.some((prefix) => name.startsWith(prefix))));
}
async function faultsOf(objects: Objects, keys = archive.keys): Promise<readonly Finding[]> {
  const { findings, verdict } = await verifyObjects(objects, { ...archive, keys });
  const faults = findings.filter(({ severity }) => severity === 'fault');
  expect(verdict === 'failed' || verdict === 'lost').toBe(faults.length > 0);
  return faults;
}

describe('a log under another key', () => {
  it('removes no recording', async () => {
    for (const cast of casts) {
      const objects = new Map([
        ...without(archive.objects, cast.replace(/cast$/, '')),
        ...strangersLog({ kind: 'removed', recording: idOf(cast), reason: 'age', bytes: 1 }),
      ]);
      expect(await faultsOf(objects)).toContainEqual(
        expect.objectContaining({ code: 'recording-missing', recording: idOf(cast) }),
      );
    }
  });

  it('removes none either for somebody who named no key', async () => {
    const [cast = ''] = casts;
    const objects = new Map([
      ...without(archive.objects, cast.replace(/cast$/, '')),
      ...strangersLog({ kind: 'removed', recording: idOf(cast), reason: 'age', bytes: 1 }),
    ]);
    expect(await faultsOf(objects, [])).toContainEqual(
      expect.objectContaining({ code: 'removal-untrusted', recording: idOf(cast) }),
    );
  });

  it('removes no document of another log for somebody who named no key, but its own', async () => {
    const name = 'events/2026-01-01/x.ndjson';
    const stored: LogEvent = { kind: 'document', name, bytes: 1, sha256: '0'.repeat(64) };
    const gone: LogEvent = { kind: 'documentRemoved', name, reason: 'age' };
    const byAnother = new Map([...archive.objects, ...logOf('cd'.repeat(16), stored), ...strangersLog(gone)]);
    expect(await faultsOf(byAnother, [])).toEqual([
      expect.objectContaining({ code: 'removal-untrusted', object: name }),
    ]);
    expect(await faultsOf(new Map([...archive.objects, ...strangersLog(stored, gone)]), [])).toEqual([]);
    expect(await faultsOf(new Map([...archive.objects, ...strangersLog(stored)]), [])).toEqual([
      expect.objectContaining({ code: 'document-missing', object: name }),
    ]);
  });

  it('says nothing about the beginning, the end, or the loss of what is ours', async () => {
    const [cast = ''] = casts;
    const seal = { bytes: 1, blockBytes: 4096, chain: '0'.repeat(64) };
    const recording = idOf(cast);
    const about = { nodeId: 'n', nodeName: 'n', address: '1.1.1.1', header: '0'.repeat(64) };
    const objects = new Map([
      ...archive.objects,
      ...strangersLog(
        { kind: 'start', recording, ...about, durable: 1e9 },
        { kind: 'end', start: 1, recording, session: '0'.repeat(32), cast: seal },
        { kind: 'lost', start: 1, recording, durable: 1e9, found: 0, reason: 'none' },
        { kind: 'start', recording: 'nGATEaCNTRL_2026-01-01T00:00:00Z', ...about },
        { kind: 'document', name: 'events/x.ndjson', bytes: 1, sha256: '0'.repeat(64) },
        { kind: 'witness', head: { ...archive.checkpoint[0]!, hash: 'f'.repeat(64) } },
      ),
    ]);
    // the only fault is the existence of an evidence log with an unknown key
    expect((await faultsOf(objects)).map(({ code, log }) => [code, log])).toEqual([['log-key-unknown', LOG]]);
  });
});

describe('a sidecar that is signed', () => {
  it('names its recording: as that of another one it is one that was moved', async () => {
    const [from = '', ...rest] = casts;
    for (const to of [...rest, 'nGATEaCNTRL/2026-01-01T00:00:00Z.cast']) {
      const objects = new Map(archive.objects);
      for (const suffix of ['cast', 'json', 'notes']) {
        const content = objects.get(from.replace(/cast$/, suffix));
        if (content === undefined) objects.delete(to.replace(/cast$/, suffix));
        else objects.set(to.replace(/cast$/, suffix), content);
      }
      expect(await faultsOf(objects)).toContainEqual(
        expect.objectContaining({ code: 'recording-moved', recording: idOf(to) }),
      );
    }
  });
});

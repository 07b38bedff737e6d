/** A recorder and a gateway of now go on with what earlier versions left, and leave alone what a newer one did. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { filesBelow, sha256 } from '../../scripts/release/tree.ts';
import { createDescriber } from '../../src/tsrecorder/library/describe-stored.ts';
import { createArchiveStore } from '../../src/tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { parseRecordingKey } from '../../src/tsrecorder/store/key.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { eventually, type RoleProcess } from '../support/role-process.ts';
import { RECORDER_LISTEN, earlierVersions, unpackEarlierFiles, type Said } from './earlier-files.ts';
import { castOf, dataOf, recordings, startSite, type Site } from './site.ts';

let site: Site;

beforeEach(async () => {
  site = await startSite();
});
afterEach(() => site.close());

/** The journal names this port; another run on this machine may have it for a moment. */
function startRecorder(): Promise<RoleProcess> {
  return eventually('the port is free', () =>
    site.startRecorder('one', { listen: RECORDER_LISTEN, 'drain-seconds': '1' }).catch((error: unknown) => {
      if (String(error).includes('EADDRINUSE')) return undefined;
      throw error;
    }),
  );
}

async function outputs(recorder: RoleProcess): Promise<readonly string[]> {
  const casts = (await recordings(recorder)).map((each) => castOf(recorder, each));
  return (await Promise.all(casts)).map(dataOf).toSorted();
}

async function verify(): ReturnType<typeof verifyStore> {
  const store = await createDiskStore(join(site.directory, 'recordings'), { readOnly: true });
  const key = await loadSigningKey(join(site.directory, 'spool-one', 'evidence', 'key.pem'), false);
  return verifyStore({
    store: createArchiveStore(store, 'plain'),
    keys: [key.public],
    checkpoint: [],
    nowMs: Date.now(),
  });
}

const read = (...path: readonly string[]): string => readFileSync(join(site.directory, ...path), 'utf8');

describe.each(earlierVersions())('the files of %s', (version) => {
  it('are shown, finished, delivered and proved', async () => {
    unpackEarlierFiles(version, site.directory);
    const said = JSON.parse(read('said.json')) as Said;
    const authority = read('gateway', 'ca', 'ca.crt');
    const recorder = await startRecorder();
    const stored = [said.plain, said.archived];
    expect(await outputs(recorder)).toEqual([...stored, said.spooled].toSorted());
    const gateway = await site.startGateway([recorder]);
    expect(read('gateway', 'ca', 'ca.crt')).toBe(authority);
    await gateway.line(({ msg }) => msg === 'end of a recording was delivered late');
    const whole = [...stored, said.spooled + said.late].toSorted();
    await eventually('nothing is missing', async () => {
      const all = await recordings(recorder);
      if (all.some(({ state }) => state !== 'closed' && state !== 'interrupted')) return undefined;
      return JSON.stringify(await outputs(recorder)) === JSON.stringify(whole) ? true : undefined;
    });
    for (const role of [gateway, recorder]) expect(await role.stop()).toBe(0);
    const report = await verify();
    expect(report.ok, JSON.stringify(report.findings)).toBe(true);
    for (const folder of ['spool-one', 'gateway'])
      expect(JSON.parse(read(folder, 'format.json'))).toMatchObject({ format: 1 });
  }, 120_000);
});

describe('the files of a newer version', () => {
  const digests = (folder: string): readonly string[] =>
    filesBelow(folder).map((name) => `${name} ${sha256(join(folder, name))}`);

  it.each([
    ['spool-one', 'spool', () => site.startRecorder('one')],
    ['gateway', 'gateway state', () => site.startGateway([])],
  ])('in %s are left as they are, and a sentence says so', async (name, kind, start) => {
    const [version = ''] = earlierVersions();
    unpackEarlierFiles(version, site.directory);
    const folder = join(site.directory, name);
    writeFileSync(join(folder, 'format.json'), JSON.stringify({ kind, format: 2, version: '7.0.0' }));
    const before = digests(folder);
    await expect(start()).rejects.toThrow(
      new RegExp(
        `${folder} was written by tailcast 7\\.0\\.0 \\(${kind} format 2\\), and this is .*: start tailcast 7\\.0\\.0 or newer`,
      ),
    );
    expect(digests(folder)).toEqual(before);
  });

  it('are in a store named for what they are: to those who list, and to those who verify', async () => {
    const [version = ''] = earlierVersions();
    unpackEarlierFiles(version, site.directory);
    const store = join(site.directory, 'recordings');
    const change = (name: string, from: string, to: string): void => {
      const text = read('recordings', name);
      expect(text).toContain(from);
      writeFileSync(join(store, name), text.replace(from, to));
    };
    const names = filesBelow(store);
    const [sidecar = ''] = names.filter((name) => /^local\/.*\.json$/.test(name));
    const [opening = ''] = names.filter((name) => name.endsWith('/000000000000.ndjson'));
    change(sidecar, '"tailcast": 1,', '"tailcast": 2,');
    change(opening, '"kind":"open","format":1', '"kind":"open","format":2');
    const described = await createDescriber(
      createArchiveStore(await createDiskStore(store), 'plain'),
      1,
    )({
      key: parseRecordingKey(sidecar.replace('.json', '.cast'))!,
      hasSidecar: true,
    });
    const upgrade =
      'a newer recorder wrote its sidecar (version 2; this one reads 1): upgrade to see all of it';
    expect(described?.entry.recording.problem).toBe(upgrade);
    const messages = (await verify()).findings.map(({ message }) => message);
    expect(messages).toContain(
      'a newer recorder began this log (format 2; this version reads 1): verify with that version',
    );
  });
});

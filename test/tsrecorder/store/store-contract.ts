/** Tests that every store must pass. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import type { FinishedUpload, RecordingStore } from '../../../src/tsrecorder/store/store.ts';

export const NODE = 'nGATE1CNTRL';

/** @param open returns an empty store; `bigBytes`: size of a cast that the store uploads in parts */
export function describeStore(
  name: string,
  open: () => Promise<RecordingStore>,
  { bigBytes }: { readonly bigBytes: number },
): void {
  describe(`the store in ${name}`, () => {
    let folder = '';
    let files = 0;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'tsrecorder-contract-'));
    });

    async function finished(
      key: RecordingKey,
      cast: string | Buffer,
      more: Partial<FinishedUpload> & { readonly notes?: string } = {},
    ): Promise<FinishedUpload> {
      files += 1;
      const castPath = join(folder, `${files}.cast`);
      await writeFile(castPath, cast);
      const { notes, ...rest } = more;
      const notesPath = notes === undefined ? undefined : join(folder, `${files}.notes`);
      if (notesPath !== undefined) await writeFile(notesPath, notes!);
      return {
        key,
        castPath,
        castBytes: Buffer.byteLength(cast),
        notesPath,
        notesBytes: notes?.length ?? 0,
        sidecar: '{}\n',
        sessionMark: undefined,
        ...rest,
      };
    }

    it('keeps cast, sidecar and notes byte for byte, and lists them', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:50.033425744Z' };
      expect(await store.list()).toEqual([]);
      expect(await store.stat(key, 'cast')).toBeUndefined();
      await store.finish(await finished(key, 'cast ä\n', { notes: 'notes\n', sidecar: '{"a":1}\n' }));
      expect(await text(store, key, 'cast')).toBe('cast ä\n');
      expect(await text(store, key, 'sidecar')).toBe('{"a":1}\n');
      expect(await text(store, key, 'notes')).toBe('notes\n');
      expect(await store.list()).toMatchObject([{ key, hasSidecar: true }]);
      const stat = await store.stat(key, 'cast');
      expect(stat?.bytes).toBe(8);
      expect(Math.abs(stat!.modifiedAtMs - Date.now())).toBeLessThan(60_000);
    });

    it('accepts a repeated finish', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:51.000000000Z' };
      const upload = await finished(key, 'cast\n', { notes: 'notes\n' });
      await store.finish(upload);
      await store.finish(upload);
      // finishes the upload again from another file with the same content, as after a copy of the file
      await store.finish(await finished(key, 'cast\n', { notes: 'notes\n' }));
      expect(await store.list()).toHaveLength(1);
    });

    it('never overwrites a recording', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:52.000000000Z' };
      await store.finish(await finished(key, 'first\n', { sidecar: '{"n":1}\n' }));
      for (const other of ['other\n', 'longer than the first\n']) {
        const upload = await finished(key, other, { sidecar: '{"n":2}\n' });
        await expect(store.finish(upload)).rejects.toMatchObject({ code: 'UPLOAD_CONFLICT' });
      }
      expect(await text(store, key, 'cast')).toBe('first\n');
      expect(await text(store, key, 'sidecar')).toBe('{"n":1}\n');
    });

    it('rejects an upload if another program has stored its cast with other notes or another sidecar', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:52.500000000Z' };
      await store.finish(await finished(key, 'cast\n', { notes: 'foreign\n', sidecar: '{"n":1}\n' }));
      for (const more of [
        { notes: 'foreign\n', sidecar: '{"n":2}\n' },
        { notes: 'our own\n', sidecar: '{"n":1}\n' },
      ]) {
        const upload = await finished(key, 'cast\n', more);
        await expect(store.finish(upload)).rejects.toMatchObject({ code: 'UPLOAD_CONFLICT' });
      }
      expect(await text(store, key, 'sidecar')).toBe('{"n":1}\n');
      expect(await text(store, key, 'notes')).toBe('foreign\n');
      const isOwnSidecar = (stored: string): boolean => stored === '{"n":1}\n';
      const again = { notes: 'foreign\n', sidecar: '{"n":2}\n', isOwnSidecar };
      await store.finish(await finished(key, 'cast\n', again));
    });

    it('keeps large casts, and reads any range of them', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:53.000000000Z' };
      const cast = Buffer.alloc(bigBytes);
      for (let at = 0; at + 4 <= cast.length; at += 4) cast.writeUInt32LE(at, at);
      const upload = await finished(key, cast);
      await store.finish(upload);
      await store.finish(upload);
      expect((await store.stat(key, 'cast'))?.bytes).toBe(bigBytes);
      const all = Buffer.concat(await Array.fromAsync(store.read(key, 'cast')));
      expect(all.equals(cast)).toBe(true);
      for (const [start, end] of [
        [0, 1],
        [5, 5],
        [bigBytes - 3, bigBytes],
        [bigBytes - 3, bigBytes + 100],
        [1_000_001, 1_000_123],
      ] as const) {
        const part = Buffer.concat(await Array.fromAsync(store.read(key, 'cast', { start, end })));
        expect(part.equals(cast.subarray(start, end))).toBe(true);
      }
    });

    it('remembers which recordings may be parts of one session', async () => {
      const store = await open();
      const sessionMark = '0123456789abcdef0123456789abcdef';
      const keys = ['2026-07-29T11:50:54.000000001Z', '2026-07-29T11:50:54.000000002Z'].map((time) => ({
        nodeId: NODE,
        time,
      }));
      await store.finish(await finished(keys[0]!, 'one\n', { sessionMark }));
      await store.finish(await finished(keys[1]!, 'two\n'));
      const listed = (await store.list()).toSorted((left, right) =>
        left.key.time < right.key.time ? -1 : 1,
      );
      expect(listed).toMatchObject([{ key: keys[0], sessionMark }, { key: keys[1] }]);
      expect(listed[1]).not.toHaveProperty('sessionMark');
    });

    it('separates nodes with any name, and omits events from the list', async () => {
      const store = await open();
      const time = '2026-07-29T11:50:55.000000000Z';
      const nodes = ['nA', 'na', '../nA', 'a/b', 'a b+ä%', '.hidden'];
      for (const nodeId of nodes) await store.finish(await finished({ nodeId, time }, `${nodeId}\n`));
      await store.putEvent({ nodeId: 'nA', time }, '{"event":1}\n');
      const listed = (await store.list()).map(({ key }) => key.nodeId);
      expect(listed.toSorted()).toEqual(nodes.toSorted());
      for (const nodeId of nodes) expect(await text(store, { nodeId, time }, 'cast')).toBe(`${nodeId}\n`);
    });

    it('reports missing objects as missing', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:56.000000000Z' };
      await expect(text(store, key, 'cast')).rejects.toMatchObject({ code: 'RECORDING_UNKNOWN' });
      await store.remove(key);
    });

    it('removes a recording with all of its objects', async () => {
      const store = await open();
      const key = { nodeId: NODE, time: '2026-07-29T11:50:57.000000000Z' };
      const sessionMark = '0123456789abcdef0123456789abcdef';
      await store.finish(await finished(key, 'cast\n', { notes: 'notes\n', sessionMark }));
      await store.remove(key);
      expect(await store.list()).toEqual([]);
      for (const kind of ['cast', 'sidecar', 'notes'] as const) {
        expect(await store.stat(key, kind)).toBeUndefined();
      }
      // the session mark is removed, too, so a new recording with this key has no mark
      await store.finish(await finished(key, 'cast\n'));
      expect((await store.list())[0]).not.toHaveProperty('sessionMark');
    });

    it('stores documents under names that can be used only once', async () => {
      const store = await open();
      expect(await store.readDocument('log/2026/1.json')).toBeUndefined();
      await store.putDocument('log/2026/1.json', Buffer.from('one'));
      await store.putDocument('log/2026/2.json', Buffer.from('two'));
      await expect(store.putDocument('log/2026/1.json', Buffer.from('x'))).rejects.toMatchObject({
        code: 'UPLOAD_CONFLICT',
      });
      expect(await store.listDocuments('log/')).toEqual(['log/2026/1.json', 'log/2026/2.json']);
      expect(await store.listDocuments('log/', 2)).toEqual(['log/2026/1.json', 'log/2026/2.json']);
      expect(await store.listDocuments('log/', 1)).toHaveLength(1);
      expect(Buffer.from((await store.readDocument('log/2026/1.json'))!).toString()).toBe('one');
      await store.removeDocument('log/2026/1.json');
      expect(await store.listDocuments('log/')).toEqual(['log/2026/2.json']);
    });

    it('refuses to read a document that no recorder can have written', async () => {
      const store = await open();
      await store.putDocument('log/large.json', Buffer.alloc(64 * 1024 ** 2 + 1));
      await expect(store.readDocument('log/large.json')).rejects.toMatchObject({ code: 'STORE_FAILED' });
      expect(await store.readDocument('log/large.json', 3)).toHaveLength(3);
    });

    it('gives a claim to one of several concurrent callers, and to the next after its removal', async () => {
      const store = await open();
      for (let round = 0; round < 3; round += 1) {
        const contents = Array.from({ length: 8 }, (_, at) => `${round} ${at}`);
        const won = await Promise.all(
          contents.map((content) => store.claimDocument('.alerts/a.claim-0', Buffer.from(content))),
        );
        expect(won.filter(Boolean)).toHaveLength(1);
        const kept = await store.readDocument('.alerts/a.claim-0');
        expect(Buffer.from(kept!).toString()).toBe(contents[won.indexOf(true)]);
        expect(await store.claimDocument('.alerts/a.claim-0', Buffer.from('late'))).toBe(false);
        await store.removeDocument('.alerts/a.claim-0');
      }
      expect(await store.list()).toEqual([]);
    });
  });
}

async function text(
  store: RecordingStore,
  key: RecordingKey,
  kind: 'cast' | 'sidecar' | 'notes',
): Promise<string> {
  return Buffer.concat(await Array.fromAsync(store.read(key, kind))).toString();
}

import { appendFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { signBatch } from '../../../src/tsrecorder/evidence/signed-batch.ts';
import { generateSigningKey, loadSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { Trust } from '../../../src/wire/recorder-api/recording-status.ts';
import { createRig, HEADER, request, until, uploadWhole, type Rig } from '../recorder-rig.ts';

const EVENT = (name: string, namespace = 'prod'): string =>
  '{"type":"kubernetes-api-request","id":"","timestamp":1785321882,\n ' +
  '"kubernetes":{"Verb":"delete","Resource":"pods",' +
  `"Namespace":"${namespace}","Name":"${name}"},"source":{"node":"laptop","nodeID":"nA1","nodeUser":"a@example.com",` +
  `"nodeUserID":16793133573424021},"destination":{"node":"","nodeID":""}}\n`;

interface Wrapped {
  readonly event: {
    readonly action?: string;
    readonly recording?: string;
    readonly kubernetes: { readonly Name: string };
  };
}

async function post(rig: Rig, body: string): Promise<void> {
  const { status } = await request(rig.recorder, { method: 'POST', path: '/v2/event', body });
  expect(status).toBe(200);
}

async function names(rig: Rig, query = ''): Promise<readonly string[]> {
  const { body } = await rig.get(`/api/v1/events?type=kubernetes-api-request${query}`);
  return JSON.parse(body).events.map(({ event }: Wrapped) => event.kubernetes.Name);
}

// the events are from 29 July 2026
const clock = { now: () => 1_785_321_882_000 + performance.now(), monotonic: () => performance.now() };

describe('events of a recorder', () => {
  it('are found before and after they are stored, newest first', async () => {
    await using rig = await createRig({ clock });
    for (const name of ['web-0', 'web-1', 'web-2']) await post(rig, EVENT(name));
    expect(await names(rig)).toEqual(['web-2', 'web-1', 'web-0']);
    await using again = await rig.restart();
    await post(again, EVENT('web-3'));
    expect(await names(again)).toEqual(['web-3', 'web-2', 'web-1', 'web-0']);
    const { body } = await again.get('/api/v1/events?name=web-0');
    expect(body).toContain('"nodeUserID":16793133573424021');
  });

  it('are joined in one document, which the log contains', async () => {
    await using rig = await createRig({ clock });
    for (let count = 0; count < 20; count++) await post(rig, EVENT(`web-${count}`));
    await rig.recorder.close();
    const store = await createDiskStore(rig.directory);
    const [batch, ...others] = await store.listDocuments('events/');
    expect(others).toEqual([]);
    expect(
      Buffer.from((await store.readDocument(batch!))!)
        .toString()
        .split('\n'),
    ).toHaveLength(22);
    const key = await loadSigningKey(join(rig.spool, 'evidence', 'key.pem'), false);
    const check = () =>
      verifyStore({ store, keys: [key.public], checkpoint: [], nowMs: Date.now() + 86_400_000 });
    expect((await check()).ok).toBe(true);
    await appendFile(join(rig.directory, batch!), '{}\n');
    expect((await check()).findings).toContainEqual(
      expect.objectContaining({ code: 'document-changed', object: batch }),
    );
    await store.removeDocument(batch!);
    expect((await check()).findings).toContainEqual(
      expect.objectContaining({ code: 'document-missing', object: batch }),
    );
  });

  it('are verified only if a trusted key signed their batch under its name', async () => {
    await using rig = await createRig({ clock });
    await post(rig, EVENT('genuine'));
    const trustOf = async (of: Rig): Promise<unknown> => {
      const { body } = await of.get('/api/v1/events?type=kubernetes-api-request');
      return JSON.parse(body).events.map(({ event, trust, trustReason }: Wrapped & Partial<Trust>) => [
        event.kubernetes.Name,
        trust,
        trustReason,
      ]);
    };
    expect(await trustOf(rig)).toEqual([['genuine', undefined, undefined]]);
    await rig.recorder.close();
    const store = await createDiskStore(rig.directory);
    const [batch = ''] = await store.listDocuments('events/');
    const signed = Buffer.from((await store.readDocument(batch))!).toString();
    const put = (name: string, text: string): Promise<void> =>
      store.putDocument(`events/2026-07-29/2026-07-29T10:40:0${name}_0123.ndjson`, Buffer.from(text));
    const forged = signed.split('\n')[0]!.replace('genuine', 'forged');
    await put('1.1Z', `${forged}\n`);
    await put('2.1Z', `${forged.slice(0, -1)},"trust":"verified"}\n`);
    await put('3.1Z', signed);
    const another = signBatch('events/x', Buffer.from(`${forged}\n`), generateSigningKey());
    await put('4.1Z', Buffer.from(another).toString());
    await using again = await rig.restart();
    const unknown = expect.stringMatching(/^its batch is signed by the key [0-9a-f]{32}, which/) as unknown;
    expect(await trustOf(again)).toEqual([
      ['genuine', 'verified', undefined],
      ['forged', 'unverified', unknown],
      ['genuine', 'failed', 'its batch was changed after it was signed'],
      ['forged', 'unverified', 'its batch has no signature'],
      ['forged', 'unverified', 'its batch has no signature'],
    ]);
    await store.removeDocument(batch);
    await store.putDocument(batch, Buffer.from(signed.replace('genuine', 'changed')));
    expect(await trustOf(again)).toContainEqual([
      'changed',
      'failed',
      'its batch was changed after it was signed',
    ]);
  });

  it('are paged and filtered', async () => {
    await using rig = await createRig({ clock });
    for (let count = 0; count < 7; count++)
      await post(rig, EVENT(`web-${count}`, count % 2 === 0 ? 'prod' : 'test'));
    expect(await names(rig, '&namespace=test')).toEqual(['web-5', 'web-3', 'web-1']);
    expect(await names(rig, '&user=b@example.com')).toEqual([]);
    expect(await names(rig, '&verb=delete&resource=pods&text=WEB-4')).toEqual(['web-4']);
    expect(await names(rig, '&to=2026-07-29T00:00:00Z')).toEqual([]);
    const seen: string[] = [];
    for (let cursor = '', first = true; first || cursor !== ''; first = false) {
      const query = `?type=kubernetes-api-request&limit=2${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
      const page = JSON.parse((await rig.get(`/api/v1/events${query}`)).body);
      seen.push(...page.events.map(({ event }: Wrapped) => event.kubernetes.Name));
      cursor = page.next ?? '';
    }
    expect(seen).toEqual(['web-6', 'web-5', 'web-4', 'web-3', 'web-2', 'web-1', 'web-0']);
  });

  it('are all found after unsigned batches with long names, and an invalid cursor gets 400', async () => {
    await using rig = await createRig({ clock });
    await post(rig, EVENT('web-0'));
    await using again = await rig.restart();
    const store = await createDiskStore(again.directory);
    for (let count = 0; count <= 200; count++) {
      const began = `2026-07-29T23:59:59.${String(999_999_999 - count)}Z`;
      await store.putDocument(`events/2026-07-29/${began}_${'z'.repeat(190)}.ndjson`, Buffer.from('{}\n'));
    }
    expect(await names(again)).toEqual(['web-0']);
    expect((await again.get('/api/v1/events?cursor=x')).status).toBe(400);
  });

  it('survive a crash: the complete lines of the spool are stored', async () => {
    await using rig = await createRig({ clock });
    await rig.recorder.close();
    const left = join(rig.spool, 'events', '2026-07-29T10:44:42.000000001Z_0123.ndjson');
    await writeFile(left, `{"event":${EVENT('kept').replaceAll('\n', ' ')}}\n{"event":{"type":"bro`);
    await using again = await rig.restart();
    await until(async () => ((await readdir(join(again.spool, 'events'))).length === 0 ? true : undefined));
    expect(await names(again)).toEqual(['kept']);
  });

  it('stay in the spool while the store is down, and are found meanwhile', async () => {
    await using outer = await createRig();
    const disk = await createDiskStore(outer.directory);
    let down = true;
    const putDocument: typeof disk.putDocument = async (name, content) => {
      if (down && name.startsWith('events/')) throw new TailcastError('STORE_FAILED', 'EIO');
      await disk.putDocument(name, content);
    };
    const freeBytes: typeof disk.freeBytes = () => Promise.reject(new TailcastError('STORE_FAILED', 'EIO'));
    const store = { ...disk, putDocument, freeBytes };
    const spoolDirectory = join(outer.directory, 'other-spool');
    const timing = { eventBatchMs: 5, storeRetryMs: 5 };
    await using rig = await createRig({ clock, timing, spoolDirectory, store });
    await post(rig, EVENT('web-0'));
    await until(async () => ((await readdir(join(spoolDirectory, 'events'))).length > 0 ? true : undefined));
    expect(await names(rig)).toEqual(['web-0']);
    down = false;
    await until(async () => ((await disk.listDocuments('events/')).length > 0 ? true : undefined));
    expect(await names(rig)).toEqual(['web-0']);
  });
});

describe('viewers', () => {
  const alice = { node: 'alice-laptop', nodeId: 'nA', user: 'alice@example.com' };
  const OTHER = HEADER.replace('"Namespace":"prod"', '"Namespace":"test"');

  it('see only what the rules allow', async () => {
    await using rig = await createRig({
      identifyViewer: async () => alice,
      viewers: [{ viewer: alice.user, scope: { kind: 'namespace', value: 'test' } }],
    });
    await uploadWhole(rig.recorder, HEADER);
    await uploadWhole(rig.recorder, OTHER);
    const visible = await rig.list();
    expect(visible.map(({ kubernetes }) => kubernetes?.namespace)).toEqual(['test']);
    const hidden = (await readdir(join(rig.directory, 'nGATE1CNTRL')))
      .filter((name) => name.endsWith('.cast'))
      .map((name) => `nGATE1CNTRL_${name.slice(0, -'.cast'.length)}`)
      .find((id) => id !== visible[0]!.id)!;
    for (const path of ['', '/cast', '/sidecar', '/notes']) {
      expect((await rig.get(`/api/v1/recordings/${hidden}${path}`)).status).toBe(404);
    }
    expect((await rig.get(`/api/v1/recordings/${visible[0]!.id}/cast`)).status).toBe(200);
    expect((await rig.get('/api/v1/events')).status).toBe(403);
  });

  it('who cannot be identified see nothing', async () => {
    await using rig = await createRig({ identifyViewer: async () => undefined });
    expect((await rig.get('/api/v1/recordings')).status).toBe(403);
    expect((await rig.get('/api/v1/events')).status).toBe(403);
  });

  it('cause an event for every list, play and download', async () => {
    await using rig = await createRig({ identifyViewer: async () => alice });
    await uploadWhole(rig.recorder, HEADER);
    const [recording] = await rig.list();
    await rig.get(`/api/v1/recordings/${recording!.id}/cast?normalise=1`);
    await rig.get(`/api/v1/recordings/${recording!.id}/cast`);
    const { body } = await rig.get('/api/v1/events?type=tailcast-recording-access&user=alice@example.com');
    const found = JSON.parse(body).events.map(({ event }: Wrapped) => [event.action, event.recording]);
    expect(found).toEqual([
      ['download', recording!.id],
      ['play', recording!.id],
      ['list', undefined],
    ]);
  });
});

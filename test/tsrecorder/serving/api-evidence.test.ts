import { appendFile, mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { createRig, HEADER, openUpload, request, until, type Rig } from '../recorder-rig.ts';

interface Answer {
  readonly evidence: {
    readonly verdict: string;
    readonly findings: readonly { readonly code: string }[];
    readonly signedBy?: { readonly key: string; readonly owner: string };
  };
  readonly session?: { readonly groups?: readonly string[] };
  readonly parts: number;
  readonly related: { readonly caller: readonly { readonly id: string }[] };
  readonly accesses?: readonly { readonly event: { readonly action: string } }[];
  readonly accessesIncomplete?: boolean;
  readonly events?: readonly unknown[];
}

const SESSION = {
  kind: 'session',
  id: 's-1',
  user: 'alice@example.com',
  groups: ['sre'],
  tty: true,
  stdin: true,
  protocol: 'websocket',
  path: '/api/v1/namespaces/prod/pods/web-0/exec',
};

/** Stores a recording from a simulated gateway. @returns its id */
async function record(rig: Rig): Promise<string> {
  const upload = openUpload(rig.recorder);
  upload.write(HEADER);
  upload.write(`${JSON.stringify(SESSION)}\n`);
  upload.write('[1,"o","hello"]\n');
  upload.write(`${JSON.stringify({ kind: 'end', outcome: 'completed', outputBytes: 5, outputLines: 1 })}\n`);
  upload.end();
  await upload.over;
  upload.close();
  const [newest] = await rig.list();
  expect(newest?.state).toBe('completed');
  return newest?.id ?? '';
}

async function evidenceOf(rig: Rig, id: string): Promise<Answer> {
  return JSON.parse((await rig.get(`/api/v1/recordings/${id}/evidence`)).body) as Answer;
}

describe('the evidence of a recording', () => {
  it('is verified immediately, and names the key, the grant and the viewers', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    const other = await record(rig);
    const found = await evidenceOf(rig, id);
    expect(found.evidence).toMatchObject({
      verdict: 'verified',
      findings: [],
      signedBy: { owner: 'this recorder' },
    });
    expect(found.session?.groups).toEqual(['sre']);
    expect(found.parts).toBe(1);
    expect(found.related.caller.map((recording) => recording.id)).toEqual(
      id === other ? [] : expect.any(Array),
    );
    await rig.get(`/api/v1/recordings/${id}?view=1`);
    expect((await evidenceOf(rig, id)).accesses?.map(({ event }) => event.action)).toContain('play');
  });

  it.each([1, 2, 3, 4])(
    'shows the verified session although read %d of the sidecar is forged',
    async (forged) => {
      const directory = await mkdtemp(join(tmpdir(), 'evidence-'));
      const disk = await createDiskStore(directory);
      let reads = -Infinity;
      const read: RecordingStore['read'] = async function* (key, kind, range) {
        const content = Buffer.concat(await Array.fromAsync(disk.read(key, kind, range)));
        if (kind === 'sidecar') reads += 1;
        yield kind === 'sidecar' && reads === forged
          ? Buffer.from(content.toString().replace('"sre"', '"dev"'))
          : content;
      };
      await using rig = await createRig({ store: { ...disk, read } }, directory);
      const id = await record(rig);
      reads = 0;
      const found = await evidenceOf(rig, id);
      const groups = found.session?.groups;
      expect([found.evidence.verdict, groups]).toEqual(
        groups?.[0] === 'dev' ? ['failed', ['dev']] : ['verified', ['sre']],
      );
    },
  );

  it('is failed for a sidecar with an invalid time', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    const [{ key } = { key: '' }] = await rig.list();
    const path = join(rig.directory, key.replace(/cast$/, 'json'));
    const sidecar = await readFile(path, 'utf8');
    await writeFile(path, sidecar.replace(/"startedAt":"[^"]*"/, '"startedAt":"never"'));
    // Another recorder has no cached description.
    await using other = await rig.restart();
    const found = await evidenceOf(other, id);
    expect(found.evidence.verdict).toBe('failed');
  });

  it('ignores a sidecar whose session is nested too deep', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    const [{ key } = { key: '' }] = await rig.list();
    const path = join(rig.directory, key.replace(/cast$/, 'json'));
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    const sidecar = await readFile(path, 'utf8');
    await writeFile(path, sidecar.replace('"groups":["sre"]', `"groups":${deep}`));
    const found = await evidenceOf(rig, id);
    expect(found.evidence.verdict).toBe('failed');
    expect(found).not.toHaveProperty('session');
  });

  it('contains API requests and accesses that imitate other events', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    await rig.get(`/api/v1/recordings/${id}/cast`);
    for (let limit = 1; limit <= 60; limit += 1) await rig.list(`?text=${id}&limit=${limit}`);
    const body = JSON.stringify({
      type: 'kubernetes-api-request',
      timestamp: Math.floor(Date.now() / 1000),
      userAgent: 'tailcast-recording-access',
      source: { node: 'laptop.tail1.ts.net', nodeID: 'nA1CNTRL', nodeUser: 'a@example.com' },
    });
    await request(rig.recorder, { path: '/v2/event', method: 'POST', body });
    const found = await evidenceOf(rig, id);
    expect(found.accesses?.map(({ event }) => event.action)).toContain('download');
    expect(found.events).toHaveLength(1);
  });

  it('contains accesses although anyone else added newer batches and events to the store', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    await rig.get(`/api/v1/recordings/${id}/cast`);
    const day = new Date(Date.now() + 20 * 3_600_000).toISOString().slice(0, 10);
    const folder = join(rig.directory, 'events', day);
    await mkdir(folder, { recursive: true });
    const forged = { event: { type: 'tailcast-recording-access', recording: id, action: 'forged' } };
    const timestamp = Math.floor(Date.now() / 1000);
    const line = `${JSON.stringify({ ...forged, event: { ...forged.event, timestamp } })}\n`;
    for (let index = 0; index < 201; index += 1) {
      const name = `${day}T23:59:59.${String(index).padStart(9, '0')}Z_x.ndjson`;
      await writeFile(join(folder, name), index === 0 ? line.repeat(60) : '{}\n');
    }
    const found = await evidenceOf(rig, id);
    const actions = found.accesses?.map(({ event }) => event.action) ?? [];
    expect(actions).toContain('download');
    expect(actions.filter((action) => action === 'forged')).toHaveLength(50);
    expect(found.accessesIncomplete).toBe(true);
  });

  it('states that the list of accesses is incomplete only if accesses are missing', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    await rig.get(`/api/v1/recordings/${id}/cast`);
    expect(await evidenceOf(rig, id)).not.toHaveProperty('accessesIncomplete');
    for (let count = 0; count < 50; count += 1) await rig.get(`/api/v1/recordings/${id}/cast`);
    const found = await evidenceOf(rig, id);
    expect(found.accesses).toHaveLength(50);
    expect(found.accessesIncomplete).toBe(true);
  });

  it('is verified for a limited number of concurrent requests of one viewer', async () => {
    const users: string[] = [];
    await using rig = await createRig({
      // The first 100 connections are from one viewer, and later connections from another.
      identifyViewer: async () => {
        const user = users.length < 100 ? 'carol@example.com' : 'dave@example.com';
        users.push(user);
        return { node: 'desk', nodeId: 'nDESK', user };
      },
    });
    const path = `/api/v1/recordings/${await record(rig)}/evidence`;
    const asked = Array.from({ length: 100 - users.length }, () => rig.get(path));
    await until(async () => (users.length === 100 ? true : undefined));
    expect((await rig.get(path)).status).toBe(200);
    expect(users.at(-1)).toBe('dave@example.com');
    const answers = await Promise.all(asked);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
    const refused = answers.find(({ status }) => status === 429);
    expect(JSON.parse(refused?.body ?? '')).toMatchObject({ code: 'SEARCH_BUSY' });
  });

  it('reports that a byte was changed, and where', async () => {
    await using rig = await createRig();
    const id = await record(rig);
    const { body } = await rig.get(`/api/v1/recordings/${id}`);
    const { key } = JSON.parse(body) as { key: string };
    await appendFile(join(rig.directory, key), '[2,"o","forged"]\n');
    const { evidence } = await evidenceOf(rig, id);
    expect(evidence.verdict).toBe('failed');
    expect(evidence.findings.map(({ code }) => code)).toEqual(['cast-changed']);
  });

  it('reveals nothing about other viewers to a restricted viewer', async () => {
    await using rig = await createRig({
      identifyViewer: async () => ({ node: 'n', nodeId: 'nV', user: 'carol@example.com' }),
      viewers: [parseViewRule('*=namespace:prod')],
    });
    const id = await record(rig);
    const found = await evidenceOf(rig, id);
    expect(found.evidence.verdict).toBe('verified');
    expect(found.accesses).toBeUndefined();
    expect(found.events).toBeUndefined();
  });
});

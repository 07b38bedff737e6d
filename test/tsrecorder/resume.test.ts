import { describe, expect, it } from 'vitest';
import { createRig, HEADER, openUpload, STORED_HEADER, until, UPLOADER, type Rig } from './recorder-rig.ts';

const SESSION = { 'tailcast-session': 's-1' };
const line = (count: number): string => `[${count},"o","line ${count}\\r\\n"]\n`;

/** Uploads the header and two lines, then loses the connection during the third line. */
async function cutUpload(rig: Rig): Promise<number> {
  const upload = openUpload(rig.recorder, SESSION);
  upload.write(HEADER + line(1) + line(2) + line(3).slice(0, 7));
  const durable = (HEADER + line(1) + line(2)).length;
  await upload.ack(({ ack }) => ack === durable);
  upload.close();
  await upload.over;
  return durable;
}

async function stored(rig: Rig): Promise<string> {
  const recordings = await rig.list();
  expect(recordings).toHaveLength(1);
  return (await rig.get(`/api/v1/recordings/${recordings[0]!.id}/cast`)).body;
}

describe('an upload that names its session', () => {
  it('continues after an interruption as one recording, from any offset of the uploader', async () => {
    for (const offset of [(HEADER + line(1) + line(2)).length, HEADER.length, 0]) {
      await using rig = await createRig();
      const durable = await cutUpload(rig);
      expect((await rig.list())[0]?.state).toBe('running');
      const body = HEADER + line(1) + line(2) + line(3);
      const upload = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(offset) });
      expect((await upload.headers)['tailcast-offset']).toBe(String(durable));
      expect(await upload.ack(() => true)).toEqual({ ack: offset });
      upload.write(body.slice(offset));
      upload.end();
      await upload.over;
      expect(upload.acks.at(-1)).toEqual({ ack: body.length });
      expect((await rig.list())[0]?.state).toBe('completed');
      expect(await stored(rig)).toBe(STORED_HEADER + line(1) + line(2) + line(3));
    }
  });

  it('continues after a restart of the recorder', async () => {
    await using first = await createRig();
    const durable = await cutUpload(first);
    await using rig = await first.restart();
    expect((await rig.list())[0]?.state).toBe('running');
    const upload = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(durable) });
    upload.write(line(3));
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)).toEqual({ ack: durable + line(3).length });
    expect(await stored(rig)).toBe(STORED_HEADER + line(1) + line(2) + line(3));
  });

  it('takes the session over from a connection that is still open', async () => {
    await using rig = await createRig();
    const first = openUpload(rig.recorder, SESSION);
    first.write(HEADER + line(1));
    const durable = (HEADER + line(1)).length;
    await first.ack(({ ack }) => ack === durable);
    const second = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(durable) });
    await second.ack(({ ack }) => ack === durable);
    await first.over;
    expect(first.acks.at(-1)?.error).toMatch('continues over another connection');
    second.write(line(2));
    second.end();
    await second.over;
    expect(await stored(rig)).toBe(STORED_HEADER + line(1) + line(2));
  });

  it('belongs to one of many concurrent connections, and loses nothing', async () => {
    await using rig = await createRig();
    const body = HEADER + line(1) + line(2) + line(3);
    const uploads = Array.from({ length: 8 }, () => {
      const upload = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': '0' });
      upload.write(body);
      return upload;
    });
    for (const upload of uploads) upload.end();
    await Promise.all(uploads.map(({ over }) => over));
    const kept = uploads.filter(({ acks }) => acks.at(-1)?.ack === body.length);
    expect(kept.length).toBeGreaterThan(0);
    expect((await rig.list())[0]?.state).toBe('completed');
    expect(await stored(rig)).toBe(STORED_HEADER + line(1) + line(2) + line(3));
  });

  it('is refused if bytes in between would be missing, and can still continue', async () => {
    await using rig = await createRig();
    const durable = await cutUpload(rig);
    const wrong = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(durable + 1) });
    expect((await wrong.headers)[':status']).toBe(409);
    await wrong.over;
    const right = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(durable) });
    expect((await right.headers)[':status']).toBe(101);
    right.end();
    await right.over;
    expect((await rig.list())[0]?.state).toBe('completed');
  });

  it('is refused in the middle of an unknown session, and with an invalid name', async () => {
    await using rig = await createRig();
    for (const [headers, status] of [
      [{ ...SESSION, 'tailcast-offset': '5' }, 409],
      [{ ...SESSION, 'tailcast-offset': '-1' }, 400],
      [{ 'tailcast-session': 'x'.repeat(129) }, 400],
    ] as const) {
      const upload = openUpload(rig.recorder, headers);
      expect((await upload.headers)[':status']).toBe(status);
      upload.close();
    }
  });

  it('belongs to its uploader: the same name from another node is another session', async () => {
    let nodeId: string = UPLOADER.nodeId;
    await using rig = await createRig({ identify: async () => ({ ...UPLOADER, nodeId }) });
    const durable = await cutUpload(rig);
    nodeId = 'nOTHERCNTRL';
    const rogue = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': String(durable) });
    expect((await rogue.headers)[':status']).toBe(409);
    rogue.close();
  });

  it('gets the last acknowledgement again if it missed that', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder, SESSION);
    upload.write(HEADER);
    upload.end();
    await upload.over;
    const again = openUpload(rig.recorder, { ...SESSION, 'tailcast-offset': '10' });
    again.write(HEADER.slice(10));
    again.end();
    await again.over;
    expect(again.acks.at(-1)).toEqual({ ack: HEADER.length });
    expect(await rig.list()).toHaveLength(1);
  });

  it('is finished as interrupted if nobody continues it', async () => {
    await using rig = await createRig({ timing: { resumeGraceMs: 50 } });
    await cutUpload(rig);
    await until(async () => ((await rig.list('?state=interrupted')).length === 1 ? true : undefined));
    expect(await stored(rig)).toBe(STORED_HEADER + line(1) + line(2));
  });
});

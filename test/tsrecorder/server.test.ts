import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createRig, HEADER, openUpload, STORED_HEADER, uploadWhole } from './recorder-rig.ts';

describe('a v2 upload', () => {
  it('is acknowledged, stored with its destination, and listed', async () => {
    await using rig = await createRig();
    const lines = '[0.1,"o","hello\\r\\n"]\n[0.2,"r","24x80"]\n';
    const upload = await uploadWhole(rig.recorder, HEADER + lines);
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + lines.length });
    const [recording, ...others] = await rig.list();
    expect(others).toEqual([]);
    expect(recording).toMatchObject({
      state: 'completed',
      durationSeconds: 0.2,
      width: 80,
      height: 24,
      command: 'sh -i',
      kind: 'exec',
      source: { node: 'laptop.tail1.ts.net', nodeId: 'nA1CNTRL', user: 'a@example.com' },
      destination: { node: 'gateway.tail1.ts.net', nodeId: 'nGATE1CNTRL' },
      kubernetes: { namespace: 'prod', pod: 'web-0', container: 'app' },
    });
    const stored = await readFile(join(rig.directory, recording!.key), 'utf8');
    expect(stored).toBe(STORED_HEADER + lines);
  });
});
void openUpload;

/**
 * Secrets on the screen of a session appear only in its recording, and in no other file or response of the recorder.
 */
import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createLogger } from '../../../src/observe/logger.ts';
import { CANARY, canaryEvents } from '../../support/canaries.ts';
import { createRig, HEADER, openUpload, until } from '../recorder-rig.ts';
import { alertsFor, openReceiver } from './alerts/webhook-receiver.ts';

/** Returns the contents of all files below a folder, by name. */
async function filesOf(folder: string): Promise<ReadonlyMap<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  // a file may be removed after it was listed
  const contents = await Promise.all(files.map((file) => readFile(file, 'latin1').catch(() => '')));
  return new Map(files.map((file, at) => [file, contents[at]!]));
}

it('secrets are in no file of an index, not in its WAL, and in no response, alert, log or event', async () => {
  await using receiver = await openReceiver();
  receiver.answer = 503;
  const logged: string[] = [];
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-canaries-'));
  await using rig = await createRig(
    {
      searchText: 'all',
      alerts: alertsFor(receiver.url, 'needle', { text: true }),
      log: createLogger({ level: 'trace', destination: { write: (line) => void logged.push(line) } }),
    },
    directory,
  );
  const expectNone = (where: string, text: string): void => {
    // if a check fails, the test prints the surrounding text, which identifies the case
    const at = text.search(CANARY);
    expect(at < 0 ? '' : text.slice(Math.max(0, at - 60), at + 40), where).toBe('');
  };
  const search = async (
    query: string,
  ): Promise<readonly { readonly recording: { readonly id: string } }[]> => {
    const { status, body } = await rig.get(`/api/v1/search?q=${encodeURIComponent(query)}`);
    if (status !== 200) return [];
    expectNone(query, body);
    return (JSON.parse(body) as { sessions: { recording: { id: string } }[] }).sessions;
  };

  async function look(): Promise<void> {
    const files = await filesOf(join(rig.spool, 'search'));
    for (const [file, content] of files) expectNone(file, content);
    const kinds = [...files.keys()].map((file) => /\.db(?:-wal)?$/.exec(file)?.[0]);
    expect(kinds).toContain('.db');
    for (const [file, content] of await filesOf(join(rig.spool, 'alerts'))) expectNone(file, content);
    for (const { raw } of receiver.received) expectNone('webhook', raw);
    for (const line of logged) expectNone('log', line);
    const [session] = await search('needle');
    const id = encodeURIComponent(session!.recording.id);
    for (const path of [
      `recordings/${id}/search?q=needle&limit=1000`,
      `recordings/${id}/search?q=cmd:mysql`,
      'search/facets?q=needle',
      'recordings',
      'events?type=tailcast-recording-access',
    ])
      expectNone(path, (await rig.get(`/api/v1/${path}`)).body);
    expect((await rig.get('/api/v1/events?text=search')).body).toContain('"action":"search"');
    // the events of searches contain these queries, so the queries must not contain the complete secret
    for (const query of ['cana*', 'akiacana*', 'cmd:cana*', 'text:cana*'])
      expect(await search(query), query).toEqual([]);
    // queries must find the words next to the secrets
    for (const query of ['needle', 'cmd:sshpass', 'cmd:vault', 'cmd:mysql', 'bearer', 'db_password'])
      expect(await search(query), query).toHaveLength(1);
  }

  const upload = openUpload(rig.recorder);
  const cast = `${HEADER}${canaryEvents()}`;
  upload.write(cast);
  await until(async () => ((await search('needle state:running')).length === 1 ? true : undefined));
  const written = await filesOf(join(rig.spool, 'search'));
  expect([...written.keys()].some((file) => file.endsWith('-wal'))).toBe(true);
  await until(async () => (receiver.received.length > 0 ? true : undefined));
  await look();
  upload.end();
  await upload.over;
  await until(async () => ((await search('needle state:completed')).length === 1 ? true : undefined));
  await look();
  expect(receiver.received[0]!.data.hit?.text).toContain('[secret]');
  // only the recording contains the secrets
  const stored = [...(await filesOf(rig.directory))].filter(([file]) => /\.cast/.test(file));
  if (process.env['TEST_ARCHIVE'] === undefined)
    expect(stored.some(([, content]) => CANARY.test(content))).toBe(true);
  // reads the complete index again after a merge and a restart
  await rig.recorder.close();
  for (const [file, content] of await filesOf(join(rig.spool, 'search'))) expectNone(file, content);
});

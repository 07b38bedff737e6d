/**
 * Files that an earlier version left, as a later one finds them: `test/fixtures/earlier/<version>.tar` holds
 *
 * ```
 * recordings/…   a store: a session kept plain, one kept as an archive, and the evidence of both
 * spool-one/…    a recorder that was killed in a session: what was said before it is durable
 * gateway/…      a gateway that ended before it could deliver the end of that session
 * said.json      what each of the sessions showed
 * ```
 *
 *   node test/e2e/earlier-files.ts <checkout> <version>
 *
 * makes one with the sources of a checkout: that of a release, before the next one is made.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CHECKOUT, eventually, type RoleProcess } from '../support/role-process.ts';
import { castOf, dataOf, recordings, startSite, type Site } from './site.ts';

const FOLDER = join(CHECKOUT, 'test', 'fixtures', 'earlier');
const PARTS = ['recordings', 'spool-one', 'gateway', 'said.json'];
/** The journal names the recorder, which has to be there again: below the ports that systems hand out. */
export const RECORDER_LISTEN = '127.0.0.1:17719';

/** What the sessions showed. */
export interface Said {
  readonly plain: string;
  readonly archived: string;
  /** Of the session in which the recorder was killed: before that, and after. */
  readonly spooled: string;
  readonly late: string;
}

const SAID: Said = {
  plain: 'stored as it came\n',
  archived: 'stored as an archive\n',
  spooled: 'in the spool\n',
  late: 'in the journal\n',
};

/** The versions that files are kept of. */
export function earlierVersions(): readonly string[] {
  return readdirSync(FOLDER).map((name) => name.replace(/\.tar$/, ''));
}

/** Unpacks what is kept of a version as if it had been written now: a gateway gives up after a day what nobody takes. */
export function unpackEarlierFiles(version: string, directory: string): void {
  execFileSync('tar', ['-xpmf', join(FOLDER, `${version}.tar`), '-C', directory]);
}

/** A session that says something and ends, and is stored. */
async function record(site: Site, gateway: RoleProcess, recorder: RoleProcess, text: string): Promise<void> {
  const before = (await recordings(recorder)).length;
  const shell = await site.exec(gateway, ['cat']);
  shell.write(text);
  await shell.until(text);
  shell.close();
  await shell.over;
  await eventually('it is stored', async () => {
    const all = await recordings(recorder);
    return all.length > before && all.every(({ state }) => state === 'closed') ? true : undefined;
  });
}

async function make(checkout: string, version: string): Promise<void> {
  const site = await startSite();
  const startRecorder = (archive: string): Promise<RoleProcess> => {
    const flags = { listen: RECORDER_LISTEN, archive, search: 'false', 'drain-seconds': '1' };
    return site.startRecorder('one', flags, checkout);
  };
  let recorder = await startRecorder('plain');
  const gateway = await site.startGateway([recorder], { 'drain-seconds': '1' }, {}, checkout);
  await record(site, gateway, recorder, SAID.plain);
  await recorder.stop();
  recorder = await startRecorder('zstd');
  await record(site, gateway, recorder, SAID.archived);
  const shell = await site.exec(gateway, ['cat']);
  shell.write(SAID.spooled);
  await shell.until(SAID.spooled);
  await eventually('it is durable', async () => {
    const live = (await recordings(recorder)).find(({ state }) => state !== 'closed');
    if (live === undefined) return undefined;
    return dataOf(await castOf(recorder, live)) === SAID.spooled ? true : undefined;
  });
  recorder.signal('SIGKILL');
  await recorder.stop();
  shell.write(SAID.late);
  await shell.until(SAID.late);
  await shell.over;
  await gateway.line(({ msg }) => msg === 'end of a recording was not acknowledged');
  await gateway.stop();
  writeFileSync(join(site.directory, 'said.json'), `${JSON.stringify(SAID)}\n`);
  mkdirSync(FOLDER, { recursive: true });
  const options = ['--sort=name', '--format=gnu', '--owner=0', '--group=0', '--numeric-owner'];
  const file = join(FOLDER, `${version}.tar`);
  execFileSync('tar', ['-cf', file, ...options, '-C', site.directory, ...PARTS]);
  await site.close();
  process.stdout.write(`${file}\n`);
}

if (import.meta.main) {
  const [checkout, version] = process.argv.slice(2);
  if (checkout === undefined || version === undefined) throw new Error('name a checkout and a version');
  await make(resolve(checkout), version);
}

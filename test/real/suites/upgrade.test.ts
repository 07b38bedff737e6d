/**
 * Gateways and recorders one version apart, replaced one after another while shells run: recorders first, gateways first, and
 * back. The version before is a checkout of its own (`support/checkout.ts`).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { castOf, dataOf, recordings, startSite, type Site } from '../../e2e/site.ts';
import type { ExecClient } from '../../support/exec-client.ts';
import { CHECKOUT, type RoleProcess } from '../../support/role-process.ts';
import { layOutVersion, previousVersion, problemOfVersion } from '../support/checkout.ts';

const VERSIONS = ['previous', 'this'] as const;
type Version = (typeof VERSIONS)[number];

/** What is named is wanted, and the next best is not. */
const problem = process.env['UPGRADE_FROM'] === undefined ? problemOfVersion(previousVersion()) : undefined;
if (problem !== undefined) process.stderr.write(`upgrade: skipped: ${problem}\n`);

let scratch: string;
let site: Site;

beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'tailcast-upgrade-'));
  if (problem === undefined) layOutVersion(previousVersion(), join(scratch, 'previous'));
}, 300_000);
afterAll(() => rmSync(scratch, { recursive: true }));
beforeEach(async () => {
  site = await startSite();
});
afterEach(() => site.close());

const checkoutOf = (version: Version): string => (version === 'this' ? CHECKOUT : join(scratch, 'previous'));

function startRecorder(name: string, version: Version, port = 0): Promise<RoleProcess> {
  const flags = { listen: `127.0.0.1:${port}`, 'drain-seconds': '1' };
  return site.startRecorder(name, flags, checkoutOf(version));
}

function startGateway(recorders: readonly RoleProcess[], version: Version): Promise<RoleProcess> {
  return site.startGateway(recorders, { 'drain-seconds': '60' }, {}, checkoutOf(version));
}

/** A shell, and all that was said in it. */
interface Talk {
  say(text: string): Promise<void>;
  end(): void;
  readonly said: string;
  readonly shell: ExecClient;
}

async function talk(gateway: RoleProcess): Promise<Talk> {
  const shell = await site.exec(gateway, ['cat']);
  let said = '';
  return {
    shell,
    get said() {
      return said;
    },
    async say(text) {
      said += `${text}\n`;
      shell.write(`${text}\n`);
      await shell.until(`${text}\n`);
    },
    end: () => shell.close(),
  };
}

/** Every byte of every shell is in a recording of its own. */
async function expectRecorded(recorder: RoleProcess, talks: readonly Talk[]): Promise<void> {
  const expected = talks.map(({ said }) => ({ state: 'closed', output: said }));
  await vi.waitFor(
    async () => {
      const all = await Promise.all(
        (await recordings(recorder)).map(async (each) => ({
          ...each,
          output: dataOf(await castOf(recorder, each)),
        })),
      );
      const byOutput = (left: { output: string }, right: { output: string }): number =>
        left.output < right.output ? -1 : 1;
      const seen = all.map(({ state, output, problem }) =>
        problem === undefined ? { state, output } : { state, output, problem },
      );
      expect(seen.toSorted(byOutput)).toEqual(expected.toSorted(byOutput));
    },
    { timeout: 60_000, interval: 100 },
  );
}

describe.skipIf(problem !== undefined).each([
  ['up', 'previous', 'this'],
  ['back', 'this', 'previous'],
] as const)('a site on its way %s', (_, before, after) => {
  it('with its recorders first loses nothing of the shells that run', async () => {
    let one = await startRecorder('one', before);
    let two = await startRecorder('two', before);
    const gateway = await startGateway([one, two], before);
    const long = await talk(gateway);
    await long.say('both recorders are of the version before');
    expect(await one.stop()).toBe(0);
    one = await startRecorder('one', after, one.port);
    await long.say('one is of the version after');
    expect(await two.stop()).toBe(0);
    two = await startRecorder('two', after, two.port);
    await long.say('both are');
    const next = await startGateway([one, two], after);
    const stopped = gateway.stop();
    await gateway.line(({ msg }) => msg === 'draining');
    const late = await talk(next);
    await late.say('at the gateway of the version after');
    await long.say('still at that of the version before');
    for (const each of [long, late]) each.end();
    expect(await stopped).toBe(0);
    await expectRecorded(one, [long, late]);
    for (const role of [next, one, two]) expect(await role.stop()).toBe(0);
  }, 240_000);

  it('with its gateways first loses nothing of the shells that run', async () => {
    let one = await startRecorder('one', before);
    let two = await startRecorder('two', before);
    const gateway = await startGateway([one, two], before);
    const long = await talk(gateway);
    await long.say('at the gateway of the version before');
    const next = await startGateway([one, two], after);
    const stopped = gateway.stop();
    await gateway.line(({ msg }) => msg === 'draining');
    const late = await talk(next);
    await late.say('at the gateway of the version after, recorders of the version before');
    await long.say('still there');
    long.end();
    expect(await stopped).toBe(0);
    expect(await one.stop()).toBe(0);
    one = await startRecorder('one', after, one.port);
    await late.say('one recorder is of the version after');
    expect(await two.stop()).toBe(0);
    two = await startRecorder('two', after, two.port);
    await late.say('both are');
    late.end();
    await expectRecorded(one, [long, late]);
    for (const role of [next, one, two]) expect(await role.stop()).toBe(0);
  }, 240_000);
});

import { spawn, type ChildProcess } from 'node:child_process';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const RECORDS = { version: 'v1alpha1', ip4: { 'db.lab.ts.net': ['10.0.0.1'] } };

interface Ready {
  readonly listen: { readonly port: number };
  readonly ops: { readonly port: number };
}

let folder: string;
let child: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tcnames-'));
});
afterEach(() => {
  child?.kill('SIGKILL');
});

async function start(): Promise<Ready> {
  const records = join(folder, 'records.json');
  writeFileSync(records, JSON.stringify(RECORDS));
  const flags = ['--listen', '127.0.0.1:0', '--ops-listen', '127.0.0.1:0', '--records', records];
  const started = spawn(process.execPath, [MAIN, 'nameserver', ...flags], {
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  child = started;
  for await (const line of createInterface({ input: started.stderr })) {
    const said = JSON.parse(line) as Ready & { readonly msg: string };
    if (said.msg === 'nameserver is ready') return said;
  }
  throw new Error('it is not ready');
}

it('a nameserver answers, counts its answers by transport and code, and ends in good order', async () => {
  const { listen, ops } = await start();
  const resolver = new Resolver({ timeout: 5000, tries: 1 });
  resolver.setServers([`127.0.0.1:${listen.port}`]);
  expect(await resolver.resolve4('db.lab.ts.net')).toEqual(['10.0.0.1']);
  await expect(resolver.resolve4('no.lab.ts.net')).rejects.toMatchObject({ code: 'ENOTFOUND' });
  const metrics = await (await fetch(`http://127.0.0.1:${ops.port}/metrics`)).text();
  const counted = metrics.split('\n').filter((line) => /^tailcast_nameserver_\w+\{.*\} [1-9]/.test(line));
  expect(counted).toEqual([
    expect.stringMatching(/code="NOERROR".*transport="udp"|transport="udp".*code="NOERROR"/),
    expect.stringMatching(/code="NXDOMAIN".*transport="udp"|transport="udp".*code="NXDOMAIN"/),
  ]);
  child?.kill('SIGTERM');
  expect(await once(child!, 'exit')).toEqual([0, null]);
});

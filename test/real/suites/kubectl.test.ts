/**
 * Every kubectl of this machine, over both transports, through each kind of gateway, in front of two API servers. The
 * output of each kubectl must equal its output without a gateway, and the recording must contain this output.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Kubectl, findKubectls, speaks } from '../rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { publish, replaceTable } from '../support/compatibility.ts';
import { type Gateways, startGateways } from '../support/gateways.ts';
import { ALL_CASES, type Client, type MatrixCase, casesFor, runJob } from '../support/matrix.ts';
import { checkAbsentApi } from '../support/absent-api.ts';

const found = await findKubectls();
/** `REAL_MATRIX=ends` uses only the oldest and the newest version, and not each of them with each API server. */
const isSample = process.env['REAL_MATRIX'] === 'ends';
const kubectls = isSample ? found.filter((one) => one === found[0] || one === found.at(-1)) : found;
const clients: readonly Client[] = kubectls.flatMap((kubectl) =>
  (['spdy', 'websocket'] as const)
    .filter((transport) => speaks(kubectl, transport))
    .map((transport) => ({ kubectl, transport })),
);
const jobs = clients.flatMap((client) =>
  casesFor(client).map((item) => ({
    name: `kubectl ${client.kubectl.minor} over ${client.transport}: ${item.name}`,
    client,
    item,
  })),
);

/** With 1.36, the node accepts WebSocket. With 1.34, the API server translates WebSocket to SPDY. */
const versions: readonly KubernetesVersion[] = ['1.36', '1.34'];
/**
 * Returns true if the client runs with this API server. In a sample, each API server gets both transports, and 1.34,
 * which translates WebSocket, gets all tests of the newest kubectl.
 */
function isPlanned({ kubectl, transport }: Client, version: KubernetesVersion): boolean {
  if (!isSample) return true;
  if (version === '1.34') return kubectl === found.at(-1);
  return kubectl === found[0] || transport === 'websocket';
}
/** API server versions with which each test passed, by the name of the test. */
const passed = new Map<string, KubernetesVersion[]>();

describe.each(versions)('Kubernetes %s', (version) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateways: Gateways;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    gateways = await startGateways(rig, cluster);
  });

  afterAll(() => rig.stop());

  const planned = jobs.filter(({ client }) => isPlanned(client, version));
  it.concurrent.each(planned)('$name', { timeout: 180_000 }, async ({ name, client, item }) => {
    const { problems } = await runJob({ client, item, cluster, gateways });
    // the message repeats the problems, because the report of a retried test keeps only one line
    expect(problems, problems.join('\n')).toEqual([]);
    passed.set(name, [...(passed.get(name) ?? []), version]);
  });

  // Runs last and separately, because the registered API disturbs discovery of other tests.
  it('an API whose server is away answers as at the API server', async () => {
    const { control, seen } = await checkAbsentApi(cluster, gateways, kubectls.at(-1)!);
    expect(control).toMatchObject({ code: 1, stderr: expect.stringContaining('ServiceUnavailable') });
    for (const observation of seen) expect(observation).toEqual(control);
  });
});

describe('test/real/compatibility.md', () => {
  it('gets the new rows, keeps those of clients that are not here, and drops all when the columns change', () => {
    const page = [
      '# A',
      '## B',
      'text',
      '',
      '| client | x |',
      '| --- | --- |',
      '| k 1.9 | old |',
      '',
      '## C',
      '',
    ];
    const table = { heading: 'B', columns: ['x'], rows: new Map([['k 1.10', ['new']]]) };
    const rows = (text: string): string[] => text.split('\n').filter((line) => line.startsWith('| k'));
    const updated = replaceTable(page.join('\n'), table);
    expect(rows(updated)).toEqual(['| k 1.9 | old |', '| k 1.10 | new |']);
    expect(replaceTable(updated, table)).toBe(updated);
    expect(rows(replaceTable(updated, { ...table, columns: ['y'] }))).toEqual(['| k 1.10 | new |']);
    expect(() => replaceTable(updated, { ...table, heading: 'C' })).toThrow('no table');
  });

  it('says what was seen', ({ skip }) => {
    const complete = versions.every((version) =>
      jobs.every(
        ({ name, client }) => !isPlanned(client, version) || passed.get(name)?.includes(version) === true,
      ),
    );
    if (!complete) skip('not everything was run');
    const rows = kubectls.map((kubectl) => [`kubectl ${kubectl.minor}`, cells(kubectl)] as const);
    expect(
      publish({ heading: 'kubectl', columns: ALL_CASES.map(({ name }) => name), rows: new Map(rows) }),
    ).toBeUndefined();
  });
});

function cells(kubectl: Kubectl): string[] {
  return ALL_CASES.map((item) => cell(kubectl, item));
}

function cell(kubectl: Kubectl, item: MatrixCase): string {
  const ran = jobs.filter((job) => job.client.kubectl === kubectl && job.item === item);
  if (ran.length > 0 && item.streams === 'none') return '✓';
  return ran.map(({ client }) => (client.transport === 'spdy' ? 'SPDY' : 'WS')).join(', ');
}

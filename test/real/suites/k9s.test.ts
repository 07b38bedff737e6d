/**
 * k9s through a recording gateway, controlled by keys and checked by its screen. k9s uses client-go for reads and port
 * forwarding, and kubectl for shells.
 */
import { createHash, randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPod, deletePod } from '../cases/case.ts';
import { ensurePeer } from '../rig/build.ts';
import type { Transport } from '../rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Screen, render } from '../rig/screen.ts';
import { CLIENT_COLUMNS, publish } from '../support/compatibility.ts';
import { startDigestServer } from '../support/digest-server.ts';
import { type Gateways, startGateways } from '../support/gateways.ts';
import { K9S_SIZE, openK9s } from '../support/k9s.ts';
import { identityOf, startTestGateway } from '../support/product.ts';

const versions: readonly KubernetesVersion[] = ['1.36', '1.34'];
const transports: readonly (readonly [Transport, string])[] = [
  ['spdy', 'SPDY'],
  ['websocket', 'WS'],
];
const ESCAPE = '\x1b';
const TAB = '\t';
const ERASE_LINE = '\x15';
/** Versions with which each operation worked, by column of the table. */
const seen = new Map<string, KubernetesVersion[]>();
let counter = 0;

describe.each(versions)('Kubernetes %s', (version) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateways: Gateways;
  let pod: string;
  let open: Screen | undefined;

  beforeAll(async () => {
    await ensurePeer('k9s');
    rig = createRig();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    gateways = await startGateways(rig, cluster, [{ mode: 'auth', recorded: true }]);
  });

  afterAll(() => rig.stop());

  beforeEach(async () => {
    counter += 1;
    pod = `k9s-${counter}`;
    await createPod(cluster, pod, { command: ['sh', '-c', 'echo said-in-the-log; exec sleep infinity'] });
  });

  afterEach(async () => {
    open?.terminal.kill();
    open = undefined;
    await deletePod(cluster, pod);
  });

  function works(column: (typeof CLIENT_COLUMNS)[number], what = '✓'): void {
    const key = `${column}: ${what}`;
    seen.set(key, [...(seen.get(key) ?? []), version]);
  }

  /** Starts k9s and waits until its list contains the pod of this test. */
  async function start(transport: Transport, kubeconfig = gateways.all[0]!.kubeconfig): Promise<Screen> {
    const screen = await openK9s({ kubeconfig, transport, folder: join(rig.folder, `k9s-${counter}`) });
    open = screen;
    await list(screen);
    return screen;
  }

  const list = (screen: Screen): Promise<readonly string[]> =>
    screen.shows(new RegExp(`pods\\(default\\)\\[\\d+\\][^]*${pod} .* Running`));

  /** Returns the verb in the audit log: `create` for an upgrade to SPDY, `get` for an upgrade to WebSocket. */
  const verbOf = (subresource: string): string | undefined =>
    cluster
      .audit()
      .findLast(({ objectRef }) => objectRef?.name === pod && objectRef.subresource === subresource)?.verb;

  async function leave(screen: Screen): Promise<void> {
    screen.type(':q\r');
    expect(await screen.terminal.ended).toBe(0);
  }

  it('lists pods, follows what becomes of them, shows a log', async () => {
    const screen = await start('websocket');
    await screen.shows('pods(default)[1]');
    const other = `${pod}-other`;
    await createPod(cluster, other, { command: ['sleep', 'infinity'] });
    await screen.shows(new RegExp(`\\[2\\][^]*${other} .* Running`));
    await deletePod(cluster, other);
    await screen.shows('pods(default)[1]');

    screen.type('l');
    await screen.shows(new RegExp(`Logs\\(default/${pod}:main\\)[^]*said-in-the-log`));
    screen.type(ESCAPE);
    await list(screen);
    await leave(screen);
    expect(await gateways.archive.of(pod)).toEqual([]);
    works('get');
    works('watch');
  });

  it.each(transports)(
    'opens a shell over %s, and its recording shows what the screen showed',
    async (transport, label) => {
      const screen = await start(transport);
      screen.type('s');
      await screen.shows(
        new RegExp(`<<K9s-Shell>> Pod: default/${pod} \\| Container: main *\\n.*[#$] *\\n*$`),
      );
      screen.type('echo from-a-$((40 + 2))-shell; stty size\r');
      const { columns, rows } = K9S_SIZE;
      const shown = await screen.shows(new RegExp(`from-a-42-shell\\n${rows} ${columns}\\n.*[#$] *\\n*$`));
      screen.type('exit 7\r');
      await list(screen);
      await leave(screen);

      const [recording, ...others] = await gateways.archive.whole([pod], 1);
      expect(others).toEqual([]);
      expect(recording).toMatchObject({
        state: 'completed',
        kind: 'exec',
        result: '7',
        width: columns,
        height: rows,
        source: { user: 'rig-admin' },
        kubernetes: { namespace: 'default', pod, container: 'main' },
      });
      const { text } = await gateways.archive.read(recording!.id);
      // The comparison omits the first row, which k9s draws, and the last row, which is the prompt.
      const said = shown.slice(
        1,
        shown.findLastIndex((row) => row !== ''),
      );
      expect(said).toContain('from-a-42-shell');
      expect((await render(text, K9S_SIZE)).slice(0, said.length)).toEqual(said);
      expect(screen.terminal.output()).toContain(text);
      expect(verbOf('exec')).toBe(transport === 'spdy' ? 'create' : 'get');
      works('exec', label);
    },
  );

  it.each(transports)('forwards a port over %s', async (transport, label) => {
    const server = await startDigestServer('half-close');
    const localPort = await freePort();
    try {
      const screen = await start(transport);
      screen.type('F');
      await screen.shows('<PortForward>');
      screen.type(`main::${server.port}`);
      await screen.shows(new RegExp(`Local Port: +${server.port} `));
      // The pod's ports are ports of this machine, so the forwarding needs a different local port.
      screen.type(`${TAB}${ERASE_LINE}${localPort}`);
      await screen.shows(new RegExp(`Local Port: +${localPort} `));
      screen.type(`${TAB}${TAB}\r`);
      await screen.shows(new RegExp(`${pod} +Ⓕ`));
      const body = randomBytes(1_000_000);
      const socket = connect({ host: '127.0.0.1', port: localPort, allowHalfOpen: true });
      socket.end(body);
      expect((await buffer(socket)).toString()).toBe(createHash('sha256').update(body).digest('hex'));
      await leave(screen);
    } finally {
      server.close();
    }
    expect(verbOf('portforward')).toBe(transport === 'spdy' ? 'create' : 'get');
    works('port-forward', label);
  });

  it('has the sentence of a refused shell printed, and goes on', async () => {
    const nobody = `127.0.0.1:${await freePort()}`;
    const refusing = await startTestGateway({
      mode: 'auth',
      upstream: cluster.kubeconfig('refusing-upstream', { token: cluster.tokens.impersonator }),
      stateDirectory: join(rig.folder, 'refusing'),
      identity: identityOf({ login: 'rig-admin' }, nobody),
    });
    rig.onStop(() => refusing.close(500));
    const server = `https://127.0.0.1:${refusing.port}`;
    const ca = refusing.caPem ?? '';
    const screen = await start('websocket', cluster.kubeconfig('refusing', { server, ca, token: 'unused' }));
    screen.type('s');
    // Checks the output instead of the screen, because k9s draws its list when kubectl exits.
    await screen.terminal.expect(`<<K9s-Shell>> Pod: default/${pod}`);
    const printed = await screen.terminal.expect(/recorder accepted it[^\r]*\r\n/);
    expect(printed).toContain(`this session must be recorded, but no recorder accepted it: ${nobody}`);
    await list(screen);
    await leave(screen);
    expect(await gateways.archive.of(pod)).toEqual([]);
  });
});

describe('test/real/compatibility.md', () => {
  it('says what was seen', ({ skip }) => {
    const everywhere = [...seen].filter(([, on]) => on.length === versions.length).map(([key]) => key);
    if (everywhere.length < 2 + 2 * transports.length) skip('not everything was run');
    const cells = CLIENT_COLUMNS.map((column) =>
      everywhere
        .filter((key) => key.startsWith(`${column}: `))
        .map((key) => key.slice(column.length + 2))
        .join(', '),
    );
    const rows = new Map([['k9s 0.50', cells]]);
    expect(publish({ heading: 'Other clients', columns: CLIENT_COLUMNS, rows })).toBeUndefined();
  });
});

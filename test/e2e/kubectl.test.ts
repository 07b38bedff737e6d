import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  execTransports,
  explainMissingKubectl,
  findKubectls,
  forwardTransports,
  hasTerminals,
  openKubectlTerminal,
  runKubectl,
  startKubectl,
} from '../support/kubectl.ts';
import { outputOf, startProduct, type Product } from './product.ts';

const found = findKubectls();
if (found.length === 0) explainMissingKubectl();
/**
 * True to test all kubectl versions instead of only the oldest and the newest. The real suites also test the versions
 * between them.
 */
const all = process.env['ALL_KUBECTLS'] === '1';
const kubectls = found.filter((_, index) => all || index === 0 || index === found.length - 1);
const cases = kubectls.flatMap((kubectl) =>
  execTransports(kubectl).map((transport) => ({
    name: `kubectl ${kubectl.version} over ${transport}`,
    kubectl,
    transport,
  })),
);

describe.skipIf(cases.length === 0)('kubectl through the gateway', () => {
  let product: Product;
  beforeAll(async () => {
    product = await startProduct();
  });
  afterAll(() => product.close());

  describe.each(cases)('$name', ({ kubectl, transport }) => {
    const options = (): Parameters<typeof runKubectl>[0] => ({
      kubectl,
      transport,
      kubeconfig: product.kubeconfig,
    });

    it('lists what the cluster lists', async () => {
      const through = await runKubectl(options(), ['get', 'pods', '-A', '-o', 'name']);
      const direct = await runKubectl({ ...options(), kubeconfig: product.directKubeconfig }, [
        'get',
        'pods',
        '-A',
        '-o',
        'name',
      ]);
      expect(through).toMatchObject({ code: 0, stderr: '' });
      expect(through.stdout.toString()).toContain('pod/shell');
      expect(through.stdout).toEqual(direct.stdout);
    });

    it('is the tailnet user and nobody else', async () => {
      const args = ['--as=eve', '--as-group=system:masters', 'get', 'pods'];
      const forged = await runKubectl(options(), args);
      expect(forged.stderr).toContain('refuses --as, --as-group and --as-uid for any other identity');
      expect(forged.code).toBe(1);
      expect(forged.stdout.toString()).toBe('');
    });

    it('runs a command with its exit code and keeps stdout and stderr apart, recorded', async () => {
      const script = 'printf "out\\n"; printf "err\\n" >&2; exit 37';
      const { result, recording } = await product.recorded({ kind: 'exec', command: 'exit 37' }, () =>
        runKubectl(options(), ['exec', 'shell', '--', 'sh', '-c', script]),
      );
      expect(result.code).toBe(37);
      expect(result.stdout.toString()).toBe('out\n');
      expect(result.stderr).toContain('err\n');
      expect(recording).toMatchObject({
        state: 'completed',
        kind: 'exec',
        result: '37',
        source: { user: 'alice@example.com' },
        kubernetes: { namespace: 'default', pod: 'shell' },
      });
      const shown = outputOf(await product.cast(recording.id));
      expect(shown.split('\n').toSorted()).toEqual(['', 'err', 'out']);
      expect(await product.notes(recording.id)).toContain('stderr');
      expect(await product.header(recording.id)).toMatchObject({
        srcNode: 'laptop.test',
        dstNode: 'gateway.test',
        kubernetes: { PodName: 'shell', SessionType: 'exec' },
      });
    });

    it('carries 4 MiB of any bytes both ways unchanged, and the recording holds the very bytes', async () => {
      const bytes = randomBytes(4 * 1024 * 1024);
      const { result, recording } = await product.recorded({ kind: 'exec', command: 'cat' }, () =>
        runKubectl(options(), ['exec', '-i', 'shell', '--', 'cat'], bytes),
      );
      expect(result.code, result.stderr).toBe(0);
      expect(result.stdout.equals(bytes)).toBe(true);
      expect((await product.bytes(recording.id)).equals(bytes)).toBe(true);
    });

    it.skipIf(!hasTerminals)(
      'gives a terminal its size, follows it, and records what was shown',
      async () => {
        const { result, recording } = await product.recorded(
          { kind: 'exec', command: 'TERMINAL=yes' },
          async () => {
            const command = ['exec', '-it', 'shell', '--', 'env', 'TERMINAL=yes', 'sh'];
            const terminal = (await openKubectlTerminal(options(), command, { columns: 91, rows: 33 }))!;
            terminal.type('stty size\r');
            // Wait for the prompt before the next input: otherwise the terminal would echo that input in the middle
            // of the output.
            await terminal.waitFor(/33 91\r\n[\s\S]*\$ $/);
            terminal.resize(120, 40);
            // Wait until `cat` has echoed a line, so that `cat` is in the foreground when Ctrl-C arrives.
            terminal.type('cat\r');
            terminal.type('mirror\r');
            await terminal.waitFor(/mirror\r\nmirror/);
            terminal.type('\x03');
            // The interrupt may discard earlier input, so wait for the prompt.
            await terminal.waitFor(/\^C[\s\S]*\$ $/);
            // repeats the resize: kubectl sends sizes independently of the input, and misses changes before it watches
            // the terminal
            const again = setInterval(() => {
              terminal.resize(119, 40);
              terminal.resize(120, 40);
            }, 1000);
            terminal.type('until stty size | grep "40 120"; do sleep 0.1; done; echo "rc=$?"\r');
            await terminal.waitFor(/\r\n40 120\r\nrc=0/).finally(() => clearInterval(again));
            terminal.type('exit 5\r');
            return terminal.exited;
          },
        );
        expect(result).toBe(5);
        const cast = await product.cast(recording.id);
        expect(await product.header(recording.id)).toMatchObject({ width: 91, height: 33 });
        expect(cast.filter(([, code]) => code === 'r').map(([, , size]) => size)).toContain('120x40');
        const shown = outputOf(cast);
        expect(recording.result).toBe('5');
        for (const text of ['33 91', '^C', '40 120']) expect(shown).toContain(text);
      },
    );

    it('copies a file there and back', async () => {
      const source = join(product.directory, `source-${kubectl.minor}-${transport}`);
      await writeFile(source, randomBytes(300_000));
      const there = `${source}-there`;
      const back = `${source}-back`;
      expect((await runKubectl(options(), ['cp', source, `shell:${there}`])).code).toBe(0);
      expect((await runKubectl(options(), ['cp', `shell:${there}`, back])).code).toBe(0);
      expect((await readFile(back)).equals(await readFile(source))).toBe(true);
    });

    it('follows logs', async () => {
      const following = startKubectl(options(), ['logs', '-f', '--tail=1', 'shell']);
      await following.waitFor(/.+\n.+\n/);
      following.kill('SIGINT');
      await following.exited;
      expect(following.stdout().toString().split('\n').length).toBeGreaterThan(2);
    });

    it('attaches to what it runs, recorded', async () => {
      const name = `run-${kubectl.minor}-${transport}`;
      const script = 'read line; echo "got $line"';
      const command = [
        'run',
        '-i',
        '--rm',
        '--restart=Never',
        '--image=none',
        name,
        '--',
        'sh',
        '-c',
        script,
      ];
      const { result, recording } = await product.recorded({ kind: 'attach', pod: name }, () =>
        runKubectl(options(), command, 'hello\n'),
      );
      expect(result.code, result.stderr).toBe(0);
      expect(result.stdout.toString()).toContain('got hello');
      expect(recording).toMatchObject({ state: 'completed', kind: 'attach', kubernetes: { pod: name } });
    });

    it.skipIf(!forwardTransports(kubectl).includes(transport))('forwards a port', async () => {
      const pods = await runKubectl(options(), ['get', 'pods', '-n', 'web', '-o', 'name']);
      const pod = pods.stdout.toString().trim().split('\n')[0] ?? '';
      const forward = startKubectl(options(), ['port-forward', '-n', 'web', pod, ':80']);
      const [, port] = await forward.waitFor(/Forwarding from 127\.0\.0\.1:(\d+)/);
      const pages = await Promise.all(
        Array.from({ length: 4 }, async () => (await fetch(`http://127.0.0.1:${port ?? ''}/`)).text()),
      );
      expect(new Set(pages).size).toBe(1);
      expect(pages[0]?.length).toBeGreaterThan(0);
      forward.kill('SIGINT');
      await forward.exited;
    });
  });
});

describe.skipIf(kubectls.length === 0)('kubectl that the API server refuses', () => {
  it('is told why, and the process has nothing to warn of', async () => {
    const product = await startProduct();
    const warnings: string[] = [];
    const keep = (warning: Error): void => void warnings.push(warning.message);
    process.on('warning', keep);
    try {
      const options = { kubectl: kubectls.at(-1)!, kubeconfig: product.kubeconfig };
      const result = await runKubectl(options, ['exec', 'shell', '--container=absent', '--', 'true']);
      expect(result.stderr).toContain('container absent is not valid for pod shell');
      expect(await product.recordings()).toEqual([]);
    } finally {
      await product.close();
      process.off('warning', keep);
    }
    expect(warnings).toEqual([]);
  });
});

describe.skipIf(kubectls.length === 0)('kubectl when the recorder is gone', () => {
  it.each([
    { mode: 'enforced', rule: { enforceRecorder: true, recorderAddrs: ['127.0.0.1:1'] } },
    { mode: 'if possible', rule: { recorderAddrs: ['127.0.0.1:1'] } },
  ])('says so in a sentence, $mode', async ({ mode, rule }) => {
    const product = await startProduct({ rule });
    try {
      const options = { kubectl: kubectls.at(-1)!, kubeconfig: product.kubeconfig };
      const result = await runKubectl(options, ['exec', 'shell', '--', 'echo', 'ran']);
      if (mode === 'enforced') {
        expect(result.code).not.toBe(0);
        expect(result.stdout.toString()).toBe('');
        expect(result.stderr).toContain('must be recorded');
      } else {
        expect(result.stdout.toString()).toBe('ran\n');
      }
      expect(await product.recordings()).toEqual([]);
    } finally {
      await product.close();
    }
  });
});

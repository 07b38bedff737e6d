/** A smoke test of kubectl without real peers. The real suite `kubectl` compares every command with a direct run. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  execTransports,
  explainMissingKubectl,
  findKubectls,
  hasTerminals,
  openKubectlTerminal,
  runKubectl,
} from '../support/kubectl.ts';
import { outputOf, startProduct, type Product } from './product.ts';

const found = findKubectls();
if (found.length === 0) explainMissingKubectl();
/** The oldest and the newest kubectl. */
const kubectls = found.filter((_, index) => index === 0 || index === found.length - 1);
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

    it('runs a command with its exit code and keeps stdout and stderr apart, recorded', async () => {
      const script = 'printf "out\\n"; printf "err\\n" >&2; exit 37';
      const { result, recording } = await product.recorded('exit 37', () =>
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

    it.skipIf(!hasTerminals)(
      'gives a terminal its size, follows it, and records what was shown',
      async () => {
        const { result, recording } = await product.recorded('TERMINAL=yes', async () => {
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
        });
        expect(result).toBe(5);
        const cast = await product.cast(recording.id);
        expect(await product.header(recording.id)).toMatchObject({ width: 91, height: 33 });
        expect(cast.filter(([, code]) => code === 'r').map(([, , size]) => size)).toContain('120x40');
        const shown = outputOf(cast);
        expect(recording.result).toBe('5');
        for (const text of ['33 91', '^C', '40 120']) expect(shown).toContain(text);
      },
    );
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

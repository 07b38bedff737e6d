import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFailed, onTestFinished } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import {
  execTransports,
  explainMissingKubectl,
  findKubectls,
  forwardTransports,
  openKubectlTerminal,
  runKubectl,
  startKubectl,
  writeKubeconfig,
  type Kubectl,
  type KubectlResult,
  type KubectlTerminal,
  type RunningKubectl,
  type Transport,
} from '../support/kubectl.ts';

const kubectls = findKubectls();
if (kubectls.length === 0) explainMissingKubectl();

let directory: string;
let cluster: DemoCluster;
let kubeconfig: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-kubectl-test-'));
  cluster = await startDemoCluster({ log: createSilentLogger() });
  kubeconfig = await writeKubeconfig({
    directory,
    url: cluster.url,
    caPem: cluster.caPem,
    token: cluster.adminToken,
  });
});

afterAll(async () => {
  await cluster.close();
});

let names = 0;
/** A unique pod name. */
function freshName(prefix: string): string {
  names += 1;
  return `${prefix}-${String(names)}`;
}

interface Runner {
  run(args: readonly string[], input?: string | Uint8Array): Promise<KubectlResult>;
  /** Runs kubectl and returns its standard output as text; fails the test with standard error if kubectl fails. */
  text(args: readonly string[], input?: string): Promise<string>;
  start(args: readonly string[], stdin?: 'ignore' | 'pipe'): RunningKubectl;
  terminal(args: readonly string[]): Promise<KubectlTerminal>;
}

function runner(kubectl: Kubectl, transport: Transport = 'websocket'): Runner {
  const options = (): Parameters<typeof runKubectl>[0] => ({ kubectl, kubeconfig, transport });
  return {
    run: (args, input) => runKubectl(options(), args, input),
    async text(args, input) {
      const { code, stdout, stderr } = await runKubectl(options(), args, input);
      expect(`${String(code)} ${stderr}`).toMatch(/^0 /);
      return stdout.toString('utf8');
    },
    start(args, stdin) {
      const running = startKubectl(options(), args, stdin);
      onTestFinished(async () => {
        running.kill('SIGKILL');
        await running.exited;
      });
      return running;
    },
    async terminal(args) {
      const terminal = await openKubectlTerminal(options(), args);
      if (terminal === undefined) throw new Error('the tests need @lydell/node-pty');
      onTestFailed(() => {
        process.stderr.write(`the terminal showed ${JSON.stringify(terminal.screen())}\n`);
      });
      onTestFinished(async () => {
        terminal.kill();
        await terminal.exited;
      });
      return terminal;
    },
  };
}

const oldest = kubectls[0];
const newest = kubectls.at(-1);

describe.skipIf(kubectls.length === 0).each(kubectls)('kubectl $version', (kubectl) => {
  const k = runner(kubectl);
  const full = kubectl === oldest || kubectl === newest;

  it('lists the seeded pods as a table', async () => {
    const text = await k.text(['get', 'pods', '-A', '-o', 'wide']);
    expect(text).toMatch(/^NAMESPACE +NAME +READY +STATUS +RESTARTS +AGE +IP +NODE/);
    expect(text).toMatch(/default +shell +1\/1 +Running +0 .* 10\.42\.0\.\d+ +demo-node/);
    expect(text).toMatch(/web +nginx-\S+ +1\/1 +Running/);
  });

  it('applies, changes and deletes an object', async () => {
    const name = freshName('settings');
    const manifest = (value: string): string =>
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name },
        data: { a: value, [value]: 'x' },
      });
    expect(await k.text(['apply', '-f', '-'], manifest('one'))).toContain(`configmap/${name} created`);
    expect(await k.text(['apply', '-f', '-'], manifest('two'))).toContain(`configmap/${name} configured`);
    const data: unknown = JSON.parse(await k.text(['get', 'cm', name, '-o', 'jsonpath={.data}']));
    expect(data).toEqual({ a: 'two', two: 'x' });
    expect(await k.text(['delete', 'cm', name])).toContain(`"${name}" deleted`);
    const gone = await k.run(['get', 'cm', name]);
    expect(gone.stderr).toContain(`Error from server (NotFound): configmaps "${name}" not found`);
    expect(gone.code).toBe(1);
  });

  it('knows who calls, and who is impersonated', async () => {
    expect(await k.text(['auth', 'whoami'])).toMatch(/Username +kubernetes-admin/);
    const bob = await k.text(['auth', 'whoami', '--as=bob', '--as-group=dev', '--as-group=a, b']);
    expect(bob).toMatch(/Username +bob/);
    expect(bob).toMatch(/Groups +\[dev a, b system:authenticated\]/);
    expect(await k.text(['auth', 'can-i', 'create', 'pods'])).toBe('yes\n');
  });

  it.runIf(full)('shows objects in full and describes them', async () => {
    const pod: unknown = JSON.parse(await k.text(['get', 'pod', 'shell', '-o', 'json']));
    expect(pod).toMatchObject({ kind: 'Pod', apiVersion: 'v1', status: { phase: 'Running' } });
    expect(await k.text(['get', 'pods', '-o', 'yaml'])).toContain('kind: List');
    const described = await k.text(['describe', 'pod', 'shell']);
    expect(described).toMatch(/Status: +Running/);
    expect(described).toMatch(/Normal +Scheduled .*Successfully assigned default\/shell to demo-node/);
    expect(await k.text(['describe', 'node', 'demo-node'])).toContain('default                     shell');
  });

  it.runIf(full)('refuses in the words of an API server', async () => {
    const failures: readonly (readonly [readonly string[], string])[] = [
      [['get', 'pod', 'nobody'], 'Error from server (NotFound): pods "nobody" not found'],
      [['get', 'nothing'], `error: the server doesn't have a resource type "nothing"`],
      [['create', 'ns', 'web'], 'Error from server (AlreadyExists): namespaces "web" already exists'],
      [['get', 'pods', '-n', 'nowhere'], 'No resources found in nowhere namespace.'],
      [
        ['run', 'x', '--image=x', '-n', 'nowhere'],
        'Error from server (NotFound): namespaces "nowhere" not found',
      ],
      [['get', 'pods', '--field-selector=foo=bar'], 'field label not supported: foo'],
      [['top', 'pods'], 'error: Metrics API not available'],
      [['logs', 'shell', '-c', 'other'], 'container other is not valid for pod shell'],
      [['logs', 'shell', '--previous'], 'previous terminated container "shell" in pod "shell" not found'],
    ];
    for (const [args, message] of failures) expect((await k.run(args)).stderr).toContain(message);
  });

  it.runIf(full)('selects by label and field', async () => {
    expect(await k.text(['get', 'pods', '-A', '-l', 'app in (shell, other)', '-o', 'name'])).toBe(
      'pod/shell\n',
    );
    expect(
      await k.text(['get', 'pods', '-A', '-l', 'app,app!=shell,app notin (coredns)', '-o', 'name']),
    ).toMatch(/^pod\/nginx-\S+\n$/);
    expect(await k.text(['get', 'pods', '-A', '--field-selector=metadata.name=shell', '-o', 'name'])).toBe(
      'pod/shell\n',
    );
    const paged = await k.text(['get', 'cm', '-A', '--chunk-size=2', '-o', 'name']);
    expect(paged.match(/kube-root-ca/g)).toHaveLength(5);
  });

  it.runIf(full)('watches a pod from creation to deletion', async () => {
    const name = freshName('watched');
    const watch = k.start(['get', 'pods', '-w', '-n', 'web']);
    await watch.waitFor(/nginx-\S+ +1\/1 +Running/);
    await k.text(['run', name, '-n', 'web', '--image=x', '--restart=Never', '--', 'sleep', '1000']);
    await watch.waitFor(new RegExp(`${name} +1/1 +Running`));
    await k.text(['delete', 'pod', name, '-n', 'web']);
    await watch.waitFor(new RegExp(`${name} +1/1 +Terminating`));
    expect(
      watch
        .stdout()
        .toString()
        .match(/NAME +READY/g),
    ).toHaveLength(1);
  });

  it.runIf(full)('creates and rolls out workloads', async () => {
    const name = freshName('site');
    await k.text(['create', 'deployment', name, '--image=nginx', '--replicas=2']);
    expect(await k.text(['rollout', 'status', `deploy/${name}`, '--timeout=10s'])).toContain(
      'successfully rolled out',
    );
    await k.text(['scale', 'deploy', name, '--replicas=1']);
    expect(await k.text(['get', 'deploy', name])).toMatch(/1\/1/);
    expect(await k.text(['exec', `deploy/${name}`, '--', 'echo', 'hi'])).toBe('hi\n');
    await k.text(['delete', 'deploy', name]);
    await k.text(['wait', '--for=delete', 'pod', '-l', `app=${name}`, '--timeout=10s']);
  });

  it.runIf(full)('prints, follows and cuts logs', async () => {
    const name = freshName('talker');
    const script =
      'for i in 1 2 3; do echo line $i; done; echo oops >&2; trap "echo bye; exit" TERM; sleep 100 & wait';
    await k.text(['run', name, '--image=x', '--restart=Never', '--', 'sh', '-c', script]);
    const follow = k.start(['logs', '-f', name]);
    await follow.waitFor(/line 3\n[^]*oops|oops\n[^]*line 3/);
    expect(await k.text(['logs', name, '--tail=1', '--timestamps'])).toMatch(/^\d{4}-\d\d-\d\dT\S+Z \S+/);
    expect(await k.text(['logs', name, '--limit-bytes=5'])).toBe('line ');
    await k.text(['delete', 'pod', name]);
    await follow.waitFor(/bye/);
    expect(await follow.exited).toBe(0);
  });

  it.runIf(full)('restarts what fails and reports how it ended', async () => {
    const name = freshName('failing');
    await k.text(['run', name, '--image=x', '--restart=Never', '--', 'sh', '-c', 'echo first; exit 3']);
    await k.text(['wait', '--for=jsonpath={.status.phase}=Failed', `pod/${name}`, '--timeout=10s']);
    expect(await k.text(['get', 'pod', name])).toMatch(/0\/1 +Error +0/);
    const again = freshName('failing');
    await k.text(['run', again, '--image=x', '--', 'sh', '-c', 'echo run; exit 3']);
    await k.text([
      'wait',
      '--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff',
      `pod/${again}`,
      '--timeout=10s',
    ]);
    expect(await k.text(['logs', again, '--previous'])).toBe('run\n');
    await k.text(['delete', 'pod', name, again, '--now']);
  });

  describe.runIf(full).each(execTransports(kubectl))('sessions over %s', (transport) => {
    const x = runner(kubectl, transport);

    it('interrupts with Ctrl-C, resizes, and controls jobs', async () => {
      const terminal = await x.terminal(['exec', '-it', 'shell', '--', 'bash', '--norc']);
      await terminal.waitFor(/default\/shell \$ $/);
      // Waits until `cat` has read from the terminal. Before that, the shell would get Ctrl-C and Ctrl-Z.
      const runCat = async (): Promise<void> => {
        terminal.clear();
        terminal.type('echo re""ady; cat\r');
        await terminal.waitFor(/ready\r\n/);
        terminal.type('x\r');
        await terminal.waitFor(/x\r\nx\r\n/);
      };
      await runCat();
      terminal.type('\u0003');
      await terminal.waitFor(/\^C\r\n.*default\/shell \$ $/);
      terminal.resize(121, 43);
      terminal.type('while [ "$(stty size)" != "43 121" ]; do sleep 0.05; done; echo got $((40+3))\r');
      await terminal.waitFor(/got 43\r\n.*\$ $/);
      await runCat();
      terminal.type('\u001a');
      await terminal.waitFor(/Stopped +cat\r\n.*\$ $/);
      terminal.clear();
      terminal.type('fg\r');
      await terminal.waitFor(/fg\r\n[^]*cat\r\n/);
      terminal.type('y\r');
      await terminal.waitFor(/y\r\ny\r\n/);
      terminal.type('\u0004');
      await terminal.waitFor(/default\/shell \$ $/);
      terminal.type('exit 5\r');
      expect(await terminal.exited).toBe(5);
    });

    it('ends the command when the client goes', async () => {
      const file = join(directory, freshName('trap'));
      const script = `trap 'echo gone > ${file}; exit' HUP; echo ready; while :; do sleep 0.05; done`;
      const session = x.start(['exec', '-i', 'shell', '--', 'sh', '-c', script], 'pipe');
      await session.waitFor(/ready/);
      session.kill('SIGKILL');
      await expect.poll(() => readFile(file, 'utf8').catch(() => '')).toBe('gone\n');
    });

    it('runs a pod at the terminal and removes it', async () => {
      const name = freshName('visitor');
      const terminal = await x.terminal([
        'run',
        name,
        '-it',
        '--rm',
        '--image=x',
        '--restart=Never',
        '--',
        'bash',
        '--norc',
      ]);
      await terminal.waitFor(new RegExp(`default/${name} \\$ $`));
      terminal.type('stty size; exit 6\r');
      await terminal.waitFor(/30 100/);
      await terminal.waitFor(new RegExp(`pod "${name}" deleted`));
      expect(await terminal.exited).toBe(6);
      expect((await x.run(['get', 'pod', name])).stderr).toContain('NotFound');
    });

    it('attaches to a running pod', async () => {
      const name = freshName('echo');
      const overrides = { spec: { containers: [{ name, image: 'x', command: ['cat'], stdin: true }] } };
      await x.text(['run', name, '--image=x', '--restart=Never', `--overrides=${JSON.stringify(overrides)}`]);
      const attached = x.start(['attach', '-i', name], 'pipe');
      attached.write('over here\n');
      await attached.waitFor(/over here/);
      attached.kill('SIGKILL');
      await attached.exited;
      const again = x.start(['attach', '-i', name], 'pipe');
      again.write('and again\n');
      await again.waitFor(/and again/);
      expect(await x.text(['logs', name])).toBe('over here\nand again\n');
      await x.text(['delete', 'pod', name, '--now']);
      expect(await again.exited).toBe(0);
    });

    it('debugs with an ephemeral container', async () => {
      const name = freshName('patient');
      await x.text(['run', name, '--image=x']);
      await x.text(['wait', '--for=condition=Ready', `pod/${name}`, '--timeout=10s']);
      const terminal = await x.terminal(['debug', '-it', name, '--image=x', '--', 'bash', '--norc']);
      await terminal.waitFor(new RegExp(`default/${name} \\$ $`));
      terminal.type('echo in $((1+1)); exit\r');
      await terminal.waitFor(/in 2/);
      expect(await terminal.exited).toBe(0);
    });

    it('does not start what does not exist', async () => {
      const result = await x.run(['exec', 'shell', '--', 'no-such-program']);
      expect(result.stderr).toContain('exec: "no-such-program": executable file not found in $PATH');
      expect(result.code).not.toBe(0);
    });
  });

  describe.runIf(full).each(forwardTransports(kubectl))('port-forward over %s', (transport) => {
    const x = runner(kubectl, transport);

    it('says why a port cannot be reached', async () => {
      const forward = x.start(['port-forward', '-n', 'web', 'deploy/nginx', ':81']);
      const [, port = ''] = await forward.waitFor(/Forwarding from 127\.0\.0\.1:(\d+) -> 81/);
      await expect(fetch(`http://127.0.0.1:${port}/`)).rejects.toThrow(/fetch failed/);
      await forward.waitFor(/declares no container port 81/);
    });
  });
});

describe.skipIf(newest === undefined)('closing', () => {
  it('leaves no process, no file and no connection behind', async () => {
    const other = await startDemoCluster({ log: createSilentLogger() });
    const config = await writeKubeconfig({
      directory,
      url: other.url,
      caPem: other.caPem,
      token: other.adminToken,
    });
    const options = { kubectl: newest!, kubeconfig: config };
    const result = await runKubectl(options, [
      'exec',
      'shell',
      '--',
      'sh',
      '-c',
      'setsid sleep 4242 >/dev/null 2>&1 & echo $! $HOME',
    ]);
    const [pid = '', home = ''] = result.stdout.toString().trim().split(' ');
    expect(isAlive(Number(pid))).toBe(true);
    const session = startKubectl(
      options,
      ['exec', '-i', 'shell', '--', 'sh', '-c', 'echo ready $$; exec sleep 4242'],
      'pipe',
    );
    const [, sleeper = ''] = await session.waitFor(/ready (\d+)/);
    await other.close();
    await session.exited;
    expect(isAlive(Number(pid))).toBe(false);
    expect(isAlive(Number(sleeper))).toBe(false);
    await expect(readdir(home)).rejects.toThrow(/ENOENT/);
    expect((await runKubectl(options, ['get', 'pods'])).stderr).toContain('refused');
  });
});

/** Returns true if a process is running. A zombie process does not count. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  if (!existsSync(`/proc/${String(pid)}/stat`)) return process.platform !== 'linux';
  return !/\) Z /.test(readFileSync(`/proc/${String(pid)}/stat`, 'utf8'));
}

/** exec, attach, run, debug, logs and cp without a terminal. */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CaseContext, type KubectlCase, createPod, deletePod, kubectl, observe } from './case.ts';

const BODY_BYTES = 8 * 1024 * 1024;

export const STREAM_CASES: readonly KubectlCase[] = [
  {
    name: 'exec exit codes and streams',
    streams: 'exec',
    async run(context) {
      const script = 'echo to-stdout; echo to-stderr >&2; exit 7';
      const failing = await observe(context, ['exec', context.pod, '--', 'sh', '-c', script]);
      const passing = await observe(context, ['exec', context.pod, '--', 'true']);
      const killed = await observe(context, ['exec', context.pod, '--', 'sh', '-c', 'kill -9 $$']);
      const argument = await observe(context, [
        'exec',
        context.pod,
        '--',
        'printf',
        '%s|',
        'a b',
        '',
        '*',
        '"q"',
        'ä€😀',
      ]);
      return { failing, passing, killed: killed.code, argument };
    },
  },
  {
    name: 'exec refused',
    streams: 'exec',
    async run(context) {
      const pod = await observe(context, ['exec', 'there-is-no-such-pod', '--', 'true']);
      const container = await observe(context, ['exec', context.pod, '--container=absent', '--', 'true']);
      const command = await observe(context, ['exec', context.pod, '--', 'there-is-no-such-command']);
      return { pod, container, command: { code: command.code, stdout: command.stdout } };
    },
  },
  {
    name: 'exec stdin ends',
    streams: 'exec',
    async run(context) {
      const counted = await observe(context, ['exec', '-i', context.pod, '--', 'wc', '-c'], 'twelve bytes');
      const empty = await observe(context, ['exec', '-i', context.pod, '--', 'wc', '-c'], '');
      return {
        counted: counted.stdout.trim(),
        empty: empty.stdout.trim(),
        codes: [counted.code, empty.code],
      };
    },
  },
  {
    name: 'exec 8 MiB both ways',
    streams: 'exec',
    async run(context) {
      const body = randomBytes(BODY_BYTES);
      const { code, stdout } = await kubectl(context, ['exec', '-i', context.pod, '--', 'cat'], body);
      return { code, bytes: stdout.length, equal: stdout.equals(body) };
    },
  },
  { name: 'attach', streams: 'exec', run: attach },
  {
    name: 'run -i --rm',
    streams: 'exec',
    async run(context) {
      const args = [
        'run',
        context.unique,
        '-i',
        '--rm',
        '--restart=Never',
        '--image=local/shell',
        '--command',
        '--',
      ];
      // The command waits for input before it prints, so that kubectl is attached before the first output.
      const result = await observe(
        context,
        [...args, 'sh', '-c', 'read word; echo "got $word"; exit 5'],
        'a-word\n',
      );
      return { code: result.code, said: result.stdout.includes('got a-word') };
    },
  },
  {
    name: 'debug',
    streams: 'exec',
    async run(context) {
      const pod = `${context.unique}-d`;
      await createPod(context.cluster, pod, { command: ['sleep', 'infinity'] });
      try {
        const args = ['debug', pod, '-i', '--image=local/shell', '--container=probe', '--', 'sh', '-c'];
        const result = await observe(context, [...args, 'read word; echo "debug $word"'], 'a-word\n');
        return { code: result.code, said: result.stdout.includes('debug a-word') };
      } finally {
        await deletePod(context.cluster, pod);
      }
    },
  },
  { name: 'logs', streams: 'none', run: logs },
  { name: 'cp both ways', streams: 'exec', run: copy },
];

async function attach(context: CaseContext): Promise<Record<string, unknown>> {
  const pod = `${context.unique}-a`;
  const script = 'while read line; do echo "out $line"; echo "err $line" >&2; done; echo end';
  await createPod(context.cluster, pod, { command: ['sh', '-c', script], stdin: true });
  try {
    const result = await observe(context, ['attach', '-i', pod], 'one\ntwo\n');
    const lines = (text: string): string[] => text.split('\n').filter((line) => /^(out|err|end)/.test(line));
    return { code: result.code, stdout: lines(result.stdout), stderr: lines(result.stderr) };
  } finally {
    await deletePod(context.cluster, pod);
  }
}

async function logs(context: CaseContext): Promise<Record<string, unknown>> {
  const pod = `${context.unique}-l`;
  const script = 'echo first; echo second >&2; sleep 0.3; echo third';
  await createPod(context.cluster, pod, { command: ['sh', '-c', script] });
  try {
    // The log stream ends when the pod stops.
    const followed = await observe(context, ['logs', '--follow', pod]);
    const tail = await observe(context, ['logs', '--tail=1', pod]);
    return { code: followed.code, lines: followed.stdout.split('\n').toSorted(), tail: tail.stdout };
  } finally {
    await deletePod(context.cluster, pod);
  }
}

async function copy(context: CaseContext): Promise<Record<string, unknown>> {
  const source = join(context.folder, 'source');
  mkdirSync(source);
  const body = randomBytes(1_000_003);
  writeFileSync(join(source, 'data.bin'), body);
  writeFileSync(join(source, 'näme with space.txt'), 'text');
  // With the kubelet double, each path in a pod is a path of this machine.
  const inPod = join(context.folder, 'pod');
  mkdirSync(inPod);
  const up = await observe(context, ['cp', source, `${context.pod}:${inPod}`]);
  const target = join(context.folder, 'back');
  const down = await observe(context, ['cp', `${context.pod}:${inPod}/source`, target]);
  return {
    codes: [up.code, down.code],
    equal: fileIn(target, 'data.bin')?.equals(body) === true,
    text: fileIn(target, 'näme with space.txt')?.toString(),
  };
}

/**
 * Returns the content of a file, or undefined if it does not exist. The case compares the content with that of the
 * direct run.
 */
function fileIn(folder: string, name: string): Buffer | undefined {
  const path = join(folder, name);
  return existsSync(path) ? readFileSync(path) : undefined;
}

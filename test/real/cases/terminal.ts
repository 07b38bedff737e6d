/** Sessions on a terminal: size, resize, Ctrl-C, job control, exit codes. */
import { environmentFor } from '../rig/kubectl.ts';
import { type Terminal, openTerminal } from '../rig/terminal.ts';
import { type CaseContext, type KubectlCase, createPod, deletePod } from './case.ts';

export const TERMINAL_CASES: readonly KubectlCase[] = [
  { name: 'exec on a terminal', streams: 'exec', run: execute },
  { name: 'attach on a terminal', streams: 'exec', run: attach },
  { name: 'run -it --rm', streams: 'exec', run: runInteractively },
];

const PROMPT = 'rig> ';
/** A shell with job control and a terminal in its default mode, without a line editor that redraws input. */
const SHELL = ['env', `PS1=${PROMPT}`, 'bash', '--norc', '--noprofile', '--noediting', '-i'];

async function execute(context: CaseContext): Promise<Record<string, unknown>> {
  const terminal = open(context, ['exec', '-it', context.pod, '--', ...SHELL], 97, 31);
  try {
    await terminal.expect(PROMPT);
    const observation = {
      tty: await ask(terminal, 'tty', /\/dev\/pts\/\d+/),
      size: await hasSize(terminal, '31 97'),
      resized: await resize(terminal),
      interrupted: await interrupt(terminal),
      jobs: await jobControl(terminal),
      unicode: await ask(terminal, "printf '%s\\n' ä€😀", 'ä€😀'),
    };
    terminal.type('exit 42\r');
    const code = await terminal.ended;
    return { ...observation, code };
  } finally {
    terminal.kill();
  }
}

async function attach(context: CaseContext): Promise<Record<string, unknown>> {
  const pod = `${context.unique}-t`;
  await createPod(context.cluster, pod, { command: SHELL, stdin: true, tty: true });
  const terminal = open(context, ['attach', '-it', pod], 88, 29);
  try {
    // The shell printed its prompt before kubectl attached. The shell prints another prompt after a resize or a
    // keystroke.
    await terminal.expect(/try pressing enter/);
    terminal.type('\r');
    await terminal.expect(PROMPT);
    const size = await hasSize(terminal, '29 88');
    const interrupted = await interrupt(terminal);
    terminal.type('exit 0\r');
    return { size, interrupted, code: await terminal.ended };
  } finally {
    terminal.kill();
    await deletePod(context.cluster, pod);
  }
}

async function runInteractively(context: CaseContext): Promise<Record<string, unknown>> {
  const args = [
    'run',
    context.unique,
    '-it',
    '--rm',
    '--restart=Never',
    '--image=local/shell',
    '--command',
    '--',
  ];
  const terminal = open(context, [...args, ...SHELL], 90, 30);
  try {
    await terminal.expect(/try pressing enter/);
    terminal.type('\r');
    await terminal.expect(PROMPT);
    const size = await hasSize(terminal, '30 90');
    terminal.type('exit 3\r');
    return { size, code: await terminal.ended, removed: terminal.output().includes('deleted') };
  } finally {
    terminal.kill();
    await deletePod(context.cluster, context.unique);
  }
}

function open(context: CaseContext, args: readonly string[], columns: number, rows: number): Terminal {
  const env = environmentFor(context);
  const terminal = openTerminal(context.kubectl.path, args, { env, columns, rows });
  context.witness?.push({ args, on: 'terminal', terminal });
  return terminal;
}

/** Types a command, and waits for its output and the next prompt. */
async function ask(terminal: Terminal, command: string, answer: string | RegExp): Promise<boolean> {
  terminal.type(`${command}\r`);
  // The terminal echoes the input, so the output starts on the next line.
  await terminal.expect('\n');
  await terminal.expect(answer);
  await terminal.expect(PROMPT);
  return true;
}

/**
 * Waits until the terminal in the pod has this size (rows and columns). The shell may read a command before the
 * terminal has its final size: kubectl sends sizes and input on separate streams, and `attach` first sends a size that
 * is larger by one.
 */
function hasSize(terminal: Terminal, size: string): Promise<boolean> {
  return ask(terminal, `until stty size | grep -x '${size}'; do sleep 0.05; done`, size);
}

/**
 * Checks that a program sees each new size. The test sends several sizes, because a single one could equal kubectl's
 * initial size.
 */
async function resize(terminal: Terminal): Promise<boolean> {
  await start(
    terminal,
    `bash -c 'trap "stty size" WINCH; trap exit INT; echo run""ning; while :; do sleep 0.05; done'`,
  );
  terminal.resize(120, 40);
  await terminal.expect('40 120');
  terminal.type('\x03');
  await terminal.expect(PROMPT);
  return true;
}

async function interrupt(terminal: Terminal): Promise<boolean> {
  await start(terminal, `sh -c 'echo run""ning; exec sleep 600'; echo code $?`);
  terminal.type('\x03');
  await terminal.expect('^C');
  await terminal.expect(PROMPT);
  return ask(terminal, 'echo code $?', 'code 130');
}

async function jobControl(terminal: Terminal): Promise<boolean> {
  await start(terminal, `sh -c 'echo run""ning; exec sleep 601'`);
  terminal.type('\x1a');
  await terminal.expect('Stopped');
  await terminal.expect(PROMPT);
  return ask(terminal, 'kill -9 %1; sleep 0.2; jobs', 'Killed');
}

/**
 * Starts a program in the foreground. Send input only after the program's first output: from then on, the program owns
 * the terminal.
 */
async function start(terminal: Terminal, command: string): Promise<void> {
  terminal.type(`${command}\r`);
  await terminal.expect('running');
}

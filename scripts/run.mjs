// Prepares a checkout, and then runs a command with the Node version that the project pins.
//
//   node scripts/run.mjs install [-- command args…]
//   node scripts/run.mjs build   [-- command args…]
//
// This script is the first that runs in a fresh clone, so it supports every Node version from 20 on. All later commands
// run with `node_modules/.bin/node`. Import only built-in modules of Node here, and modules that import only such
// modules. If several commands start in one checkout at the same time, one of them prepares the checkout, and the
// others wait.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join, delimiter } from 'node:path';
import { fileURLToPath } from 'node:url';
import { takeLock } from './build-lock.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const bin = join(root, 'node_modules', '.bin');
const stamps = join(root, 'node_modules', '.cache', 'tailcast');
/** The file or folder that each step creates. If the file or folder is missing, the step runs again. */
const outputs = {
  install: bin,
  server: join(root, 'dist', 'main.js'),
  demo: join(root, 'dist', 'demo', 'run.js'),
  player: join(root, 'dist', 'player'),
};
const env = { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH'] ?? ''}` };
/**
 * Lock of the checkout during the preparation. The lock is not in `node_modules`, because `npm ci` removes that folder.
 */
let lock;
process.on('exit', () => lock?.release());
const windows = process.platform === 'win32';

const [goal, separator, ...command] = process.argv.slice(2);
if ((goal !== 'install' && goal !== 'build') || (separator !== undefined && separator !== '--')) {
  fail('usage: node scripts/run.mjs install|build [-- command args…]');
}

const [major] = process.versions.node.split('.').map(Number);
if (major < 20)
  fail(`Node ${process.versions.node} is too old to install the project: Node 20 or newer is needed`);

await step('install', 'installing dependencies (npm ci)', ['package-lock.json', '.npmrc'], () =>
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']),
);
if (goal === 'build') {
  await step('server', 'building the server (tsc)', ['tsconfig.json', 'tsconfig.build.json', 'src'], () => {
    // The cache is removed, because an incremental build does not restore removed files.
    if (!existsSync(outputs.server))
      rmSync(join(root, 'node_modules', '.cache', 'tsc'), { recursive: true, force: true });
    return run(join(bin, 'tsc'), ['-p', 'tsconfig.build.json']);
  });
  await step('demo', 'building the demo', ['scripts/build-demo.mjs', 'demo'], () =>
    run(join(bin, 'node'), ['scripts/build-demo.mjs', 'dist']),
  );
  await step(
    'player',
    'building the player (vite)',
    ['vite.config.ts', 'src/player', 'src/bundle', 'src/screen', 'src/wire', 'src/search'],
    () => run(join(bin, 'vite'), ['build', '--logLevel', 'warn']),
  );
  if (command.length === 0) process.stderr.write('tailcast: built: dist/main.js and dist/player\n');
}
if (command.length > 0) {
  const [program, ...args] = command;
  process.exitCode = await run(program === 'node' ? join(bin, 'node') : program, args, true);
}

/** Runs `work` if its inputs have changed since its last success, or if its output is missing. */
async function step(name, title, inputs, work) {
  const stamp = join(stamps, name);
  const isDone = (digest) =>
    existsSync(outputs[name]) && existsSync(stamp) && readFileSync(stamp, 'utf8') === digest;
  if (isDone(fingerprint(inputs))) return;
  lock = await takeLock(join(root, '.build-lock'), (pids) => {
    const who = `another command of this checkout is building (process ${pids.join(', ')})`;
    process.stderr.write(`tailcast: ${who}: waiting for its end\n`);
  });
  const digest = fingerprint(inputs);
  if (!isDone(digest)) {
    // The stamp is removed first, so that an incomplete result is not used.
    rmSync(stamp, { force: true });
    process.stderr.write(`tailcast: ${title}\n`);
    const code = await work();
    if (code !== 0) fail(`${title} failed`, code);
    mkdirSync(stamps, { recursive: true });
    writeFileSync(stamp, digest);
  }
  lock.release();
  lock = undefined;
}

function fingerprint(inputs) {
  const hash = createHash('sha256');
  const visit = (path) => {
    if (!existsSync(path)) return;
    if (statSync(path).isDirectory()) {
      for (const entry of readdirSync(path).sort()) visit(join(path, entry));
    } else {
      hash.update(path.slice(root.length)).update('\0').update(readFileSync(path)).update('\0');
    }
  };
  for (const input of inputs) visit(join(root, input));
  return hash.digest('hex');
}

/**
 * Resolves with the exit code. Passes signals on. A terminal sends Ctrl-C and hang-up to all processes, so the child
 * may get a signal twice; the child stops at the first signal. The child also exits when its IPC channel closes, for
 * example after this process was killed.
 */
function run(program, args, last = false) {
  return new Promise((resolve) => {
    // Only the roles of tailcast use an IPC channel.
    const stdio = last && args[0] === 'dist/main.js' ? ['inherit', 'inherit', 'inherit', 'ipc'] : 'inherit';
    const child = spawn(program, args, { cwd: root, env, stdio, shell: windows });
    if (child.pid !== undefined) lock?.hold(child.pid);
    const forward = (signal) => child.kill(signal);
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
    for (const signal of signals) process.on(signal, forward);
    child.on('error', (error) => fail(`cannot run ${program}: ${error.message}`));
    child.on('exit', (code, signal) => {
      for (const name of signals) process.off(name, forward);
      resolve(code ?? 128 + (constants.signals[signal] ?? 0));
    });
  });
}

function fail(message, code = 1) {
  process.stderr.write(`tailcast: ${message}\n`);
  process.exit(code);
}

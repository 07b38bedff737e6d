#!/usr/bin/env node

// Entry point of the installed command. With a supported Node version, the command runs in this process. With an older
// Node version, this file starts the command with the Node version of the project, forwards signals, and exits with the
// command's exit code.
const [major, minor] = process.versions.node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 19)) await import('../dist/main.js');
else await runOnPinnedNode();

async function runOnPinnedNode() {
  const { existsSync } = await import('node:fs');
  const { fileURLToPath } = await import('node:url');
  const pinned = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));
  if (!existsSync(pinned)) {
    process.stderr.write(`tailcast: Node ${process.versions.node} is too old; 22.19 or newer is needed\n`);
    process.exit(1);
  }
  const { spawn } = await import('node:child_process');
  const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));
  // The command exits when the IPC channel closes, for example after this process was killed.
  const child = spawn(pinned, [main, ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'])
    process.on(signal, () => child.kill(signal));
  child.on('error', (error) => {
    process.stderr.write(`tailcast: ${pinned} cannot be run: ${error.message}\n`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

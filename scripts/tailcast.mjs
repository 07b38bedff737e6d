#!/usr/bin/env node
// Entry point of the installed command. On a Node that is new enough it is the command. On an older one it runs the command
// on the Node that the project brings, passes signals on, and ends as that ends.
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
  // by the end of the IPC channel the command sees that this process is gone, even when it was killed
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

#!/usr/bin/env node
// Entry point of the installed command. It says in one sentence when Node is too old, then loads the build.
const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  const { existsSync } = await import('node:fs');
  const { fileURLToPath } = await import('node:url');
  const pinned = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));
  if (!existsSync(pinned)) {
    process.stderr.write(`tailcast: Node ${process.versions.node} is too old; 22.19 or newer is needed\n`);
    process.exit(1);
  }
  const { spawnSync } = await import('node:child_process');
  const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));
  const result = spawnSync(pinned, [main, ...process.argv.slice(2)], { stdio: 'inherit' });
  process.exit(result.status ?? 1);
}
await import('../dist/main.js');

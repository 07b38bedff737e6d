/**
 * Stops the process with a message if Node.js is too old. Must be imported first, because other modules need features
 * of newer versions. With an old Node.js, a recorder would report intact recordings as damaged.
 */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(`tailcast: Node ${process.versions.node} is too old; 22.19 or newer is needed\n`);
  // oxlint-disable-next-line unicorn/no-process-exit -- nothing that follows may run
  process.exit(1);
}
export {};

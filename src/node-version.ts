/**
 * Ends the process with a sentence on a Node that is too old. Imported first: what follows may use what such a Node does
 * not have, and a recorder that fails at every recording must not call them damaged.
 */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(`tailcast: Node ${process.versions.node} is too old; 22.19 or newer is needed\n`);
  // oxlint-disable-next-line unicorn/no-process-exit -- nothing that follows may run
  process.exit(1);
}
export {};

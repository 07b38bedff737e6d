// Loaded into a role under test: collects its garbage when told to, and says so when it has.
process.on('SIGUSR2', () => {
  globalThis.gc();
  process.stderr.write('collected\n');
});

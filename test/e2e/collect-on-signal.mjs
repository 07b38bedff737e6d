// Preloaded into a role under test. On SIGUSR2, the process collects garbage, and then prints a line.
process.on('SIGUSR2', () => {
  globalThis.gc();
  process.stderr.write('collected\n');
});

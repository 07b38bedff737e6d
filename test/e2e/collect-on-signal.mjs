// Preloaded into a role under test: collects garbage on a signal, and reports its end.
process.on('SIGUSR2', () => {
  globalThis.gc();
  process.stderr.write('collected\n');
});

#!/usr/bin/env node
// kubectl runs this file for what may come after `kubectl tailcast …`.
process.argv.splice(2, 0, '__complete');
await import('./tailcast.mjs');

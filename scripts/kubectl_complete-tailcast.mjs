#!/usr/bin/env node

// kubectl runs this file to get completions for `kubectl tailcast …`.
process.argv.splice(2, 0, '__complete');
await import('./tailcast.mjs');

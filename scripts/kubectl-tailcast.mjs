#!/usr/bin/env node
// kubectl runs this file for `kubectl tailcast …`: the same program, which knows by the name how it was called.
await import('./tailcast.mjs');

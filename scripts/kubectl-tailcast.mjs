#!/usr/bin/env node

// kubectl runs this file for `kubectl tailcast …`. The program detects by the name of the file that it runs as a
// plugin.
await import('./tailcast.mjs');

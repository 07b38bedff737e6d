#!/usr/bin/env node

// kubectl runs this file for `kubectl tailcast …`. From the name of this file, tailcast detects that it runs as a
// plugin.
await import('./tailcast.mjs');

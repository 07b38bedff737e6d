/**
 * Entry point of the process. Loads the program after the version check, because an old Node.js may fail to load the
 * program.
 */
import './node-version.ts';

await import('./process.ts');

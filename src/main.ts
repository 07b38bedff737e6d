/**
 * Entry point of the process. Loads the program after the version check, because an old Node may fail to load
 * it.
 */
import './node-version.ts';

await import('./process.ts');

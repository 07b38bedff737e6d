/** Entry of the process. The program is loaded after the version check, because an old Node may fail to load it. */
import './node-version.ts';

await import('./process.ts');

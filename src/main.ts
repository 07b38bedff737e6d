/** Entry of the process. What it runs is loaded after the check: on a Node that is too old it might not even load. */
import './node-version.ts';

await import('./process.ts');

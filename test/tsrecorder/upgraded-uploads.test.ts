/** What holds of uploads over HTTP/2 holds over upgraded connections: the same tests, another road. */
import { road } from './recorder-rig.ts';

road.over = 'upgrade';
await import('./crash.test.ts');
await import('./failover.test.ts');
await import('./intake/finisher.test.ts');
await import('./lost-spool.test.ts');
await import('./metrics.test.ts');
await import('./resume.test.ts');
await import('./serving/http-server.test.ts');
await import('./shared-bucket.test.ts');

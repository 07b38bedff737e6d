/**
 * A recorder process that tests can kill: `node recorder-process.ts <directory> [<port> <grace ms> <mark ms>]`. Prints
 * its URL.
 */
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorder } from '../../src/compose/recorder-parts.ts';

const [, , directory = '', port = '0', resumeGraceMs = '1', markMs = '5000'] = process.argv;
const recorder = await createRecorder({
  listen: { host: '127.0.0.1', port: Number(port) },
  directory,
  identify: async () => ({ kind: 'accepted', nodeId: 'nGATE1CNTRL', nodeName: 'gateway.tail1.ts.net' }),
  log: createSilentLogger(),
  timing: { resumeGraceMs: Number(resumeGraceMs), listRefreshMs: 0, markMs: Number(markMs) },
});
process.stdout.write(`${recorder.url}\n`);

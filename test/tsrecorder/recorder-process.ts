/** A recorder in a process of its own, to be killed: `node recorder-process.ts <directory>`. Prints its URL. */
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorder } from '../../src/tsrecorder/server.ts';

const [, , directory = ''] = process.argv;
const recorder = await createRecorder({
  listen: { host: '127.0.0.1', port: 0 },
  directory,
  identify: async () => ({ kind: 'accepted', nodeId: 'nGATE1CNTRL', nodeName: 'gateway.tail1.ts.net' }),
  log: createSilentLogger(),
  timing: { resumeGraceMs: 1 },
});
process.stdout.write(`${recorder.url}\n`);

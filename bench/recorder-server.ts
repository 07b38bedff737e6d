/** A recorder process: `node recorder-server.ts <directory>`. Prints its URL, and exits at the end of its input. */
import { createSilentLogger } from '../src/observe/logger.ts';
import { createRecorder } from '../src/compose/recorder-parts.ts';

const recorder = await createRecorder({
  listen: { host: '127.0.0.1', port: 0 },
  directory: process.argv[2] ?? '',
  identify: async () => ({ kind: 'accepted', nodeId: 'nBENCH', nodeName: 'bench.ts.net' }),
  log: createSilentLogger(),
});
process.stdout.write(`${recorder.url}\n`);
process.stdin.on('end', () => {
  void recorder.close().then(() => process.exit(0));
});
process.stdin.resume();

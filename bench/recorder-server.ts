/**
 * A recorder process: `node recorder-server.ts <directory> [player directory]`. Prints its URL, and exits at the end of
 * its input. With a player directory, every viewer may see all recordings.
 */
import { createSilentLogger } from '../src/observe/logger.ts';
import { createRecorder } from '../src/compose/recorder-parts.ts';

const [directory = '', playerDirectory] = process.argv.slice(2);
const recorder = await createRecorder({
  listen: { host: '127.0.0.1', port: 0 },
  directory,
  identify: async () => ({ kind: 'accepted', nodeId: 'nBENCH', nodeName: 'bench.ts.net' }),
  ...(playerDirectory === undefined
    ? {}
    : {
        playerDirectory,
        searchText: 'off',
        identifyViewer: async () => ({
          node: 'bench.example.ts.net',
          nodeId: 'nB',
          user: 'carol@example.com',
        }),
      }),
  log: createSilentLogger(),
});
process.stdout.write(`${recorder.url}\n`);
process.stdin.on('end', () => {
  void recorder.close().then(() => process.exit(0));
});
process.stdin.resume();

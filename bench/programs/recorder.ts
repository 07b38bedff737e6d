/**
 * The recorder of `tailcast recorder`, with a folder as its store. Accepts uploads from this machine.
 *
 *   node recorder.js <folder>      prints {"port":…}
 */
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { readSettings } from '../../src/config/settings.ts';
import { loopbackUploader } from '../../src/compose/recorder-identities.ts';
import { startRecorder } from '../../src/compose/recorder.ts';
import { createLogger } from '../../src/observe/logger.ts';

const settings = readSettings(RECORDER_SETTINGS, {
  flags: new Map([['store', process.argv[2] ?? '']]),
  environment: new Map(),
  file: undefined,
});
const recorder = await startRecorder(
  { ...settings, listen: { host: '127.0.0.1', port: 0 }, drainSeconds: 1 },
  {
    identify: loopbackUploader({ nodeId: 'nBENCH', nodeName: 'bench.example.ts.net' }),
    log: createLogger({ level: 'error' }),
  },
);
console.log(JSON.stringify({ port: recorder.address.port }));
process.once('SIGTERM', () => process.exit(0));

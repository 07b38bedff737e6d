/** A process that writes an index, and is killed before a step: see sqlite.test.ts. */
import { writeSync } from 'node:fs';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { work } from './index-work.ts';

const [directory = '', kill = '', task = ''] = process.argv.slice(2);
let left = Number(kill);
const writer = new IndexWriter(directory, (step) => {
  if (left === 0) process.kill(process.pid, 'SIGKILL');
  left -= 1;
  writeSync(1, `${step}\n`);
});
if (task === 'tidy') while (writer.tidy());
else work(writer);
writer.close();
process.disconnect?.();

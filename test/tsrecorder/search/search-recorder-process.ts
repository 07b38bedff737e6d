/** A recorder process with an index whose environment a test controls, see index-troubles.test.ts. */
import { writeSync } from 'node:fs';
import { createRig } from '../recorder-rig.ts';

const [directory = ''] = process.argv.slice(2);
const { recorder } = await createRig({ searchText: 'all' }, directory);
writeSync(1, `url ${recorder.url}\n`);

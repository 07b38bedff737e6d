/** A recorder process that is killed at a step of its alerts, see alerts-kill.test.ts. */
import { writeSync } from 'node:fs';
import { loadSigningKey } from '../../../../src/tsrecorder/evidence/signing-key.ts';
import { createRig } from '../../recorder-rig.ts';
import { alertsFor } from './webhook-receiver.ts';

const [directory = '', webhook = '', kill = '', name = ''] = process.argv.slice(2);
let left = Number(kill);
// recorders trust each other's claims if they share a signing key
const evidenceKey = `${directory}.key`;
await loadSigningKey(evidenceKey, true);
const { recorder } = await createRig(
  {
    searchText: 'all',
    evidenceKey,
    ...(name === '' ? {} : { spoolDirectory: `${directory}.${name}`, timing: { leaseMs: 1000 } }),
    alerts: {
      ...alertsFor(webhook),
      onStep(step) {
        if (left === 0) process.kill(process.pid, 'SIGKILL');
        left -= 1;
        writeSync(1, `${step}\n`);
      },
    },
  },
  directory,
);
writeSync(1, `url ${recorder.url}\n`);

/** A recorder in a process of its own, which is killed at a step of its alerts: see alerts-kill.test.ts. */
import { writeSync } from 'node:fs';
import { createRig } from '../../recorder-rig.ts';
import { alertsFor } from './webhook-receiver.ts';

const [directory = '', webhook = '', kill = '', name = ''] = process.argv.slice(2);
let left = Number(kill);
const { recorder } = await createRig(
  {
    searchText: 'all',
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

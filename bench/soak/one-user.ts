/**
 * One user opens idle watches on a gateway with little memory until the gateway rejects them. Another user sends
 * requests meanwhile.
 *
 *   npm run soak:user -- [--watches 4500] [--heap 256] [--limit <requests of one user>]
 *
 * The heap (MiB) represents a container with twice as much memory. Prints the served requests and the gateway's
 * resident memory. Exit code: 0 if all requests of the other user were served and memory stayed below twice the heap, 1
 * otherwise.
 */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import {
  ALICE,
  connectAs,
  GATEWAY_HOST,
  introduce,
  sendHttp1,
  type Caller,
} from '../../test/attack/arena.ts';
import { openProcessArena } from '../../test/attack/process-arena.ts';

const { values } = parseArgs({
  options: {
    watches: { type: 'string', default: '4500' },
    heap: { type: 'string', default: '256' },
    limit: { type: 'string', default: 'auto' },
  },
});
const GREEDY: Caller = { address: '100.64.0.21', login: 'greedy@example.com', groups: ['devs'] };
const MIB = 1024 ** 2;

await using stack = new AsyncDisposableStack();
const arena = await openProcessArena(['--requests-per-user', values.limit], {
  NODE_OPTIONS: `--max-old-space-size=${values.heap}`,
});
stack.defer(() => arena.close());
introduce(arena.localApi, GREEDY, [{ impersonate: { groups: GREEDY.groups } }]);
arena.apiServer.script = ({ requestLine }) =>
  requestLine.includes('watch=true') ? 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' : undefined;

const counts = { served: 0, refused: 0, other: 0, otherServed: 0 };
for (let index = 0; index < Number(values.watches); index++) {
  const socket = await connectAs(arena, GREEDY, 'http/1.1');
  socket.write(`GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n\r\n`);
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (head.toString().startsWith('HTTP/1.1 200 ')) counts.served += 1;
  else {
    counts.refused += 1;
    socket.destroy();
  }
  if (index % 100 !== 99) continue;
  counts.other += 1;
  const answer = await sendHttp1(arena, ALICE, `GET /api/v1/pods HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n\r\n`);
  if (answer.kind === 'response' && answer.status === 200) counts.otherServed += 1;
}
const status = await readFile(`/proc/${arena.pid}/status`, 'utf8');
const resident = (Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024) / MIB;
const peak = (Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1]) * 1024) / MIB;
process.stdout.write(
  `watches of one user: ${counts.served} served, ${counts.refused} refused; ` +
    `another user: ${counts.otherServed} of ${counts.other} served; ` +
    `resident ${resident.toFixed(0)} MiB, at most ${peak.toFixed(0)} MiB\n`,
);
process.exitCode = counts.otherServed === counts.other && peak < 2 * Number(values.heap) ? 0 : 1;

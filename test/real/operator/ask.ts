/**
 * Asks from inside a pod's network, and prints the answer.
 *
 *   node ask.ts http <url> [<host> [<headers as JSON>]]
 *   node ask.ts fetch <url> <bytes>
 *   node ask.ts udp <address> <port> <text>
 *   node ask.ts dns <address of the nameserver> <A|AAAA> <name>
 */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { get } from 'node:http';

const [how, target = '', port = '', text = ''] = process.argv.slice(2);
const LIMIT_MS = 4000;

if (how === 'http') {
  // Behind a port: the name of the host that is asked for, and headers as JSON.
  const headers = { ...(port === '' ? {} : { host: port }), ...(JSON.parse(text || '{}') as object) };
  const request = get(target, { timeout: LIMIT_MS, agent: false, headers });
  request.on('timeout', () => request.destroy(new Error(`no answer from ${target}`)));
  const [response] = (await once(request, 'response')) as [
    AsyncIterable<Buffer> & { readonly statusCode: number },
  ];
  // An answer of its own where it is none of a pod's.
  if (response.statusCode !== 200) process.stdout.write(JSON.stringify({ status: response.statusCode }));
  else for await (const chunk of response) process.stdout.write(chunk);
} else if (how === 'fetch') {
  const startedMs = performance.now();
  const request = get(target, { agent: false });
  const [response] = (await once(request, 'response')) as [AsyncIterable<Buffer>];
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  if (bytes < Number(port)) throw new Error(`${bytes} of ${port} bytes came`);
  process.stdout.write(String(Math.round((bytes * 1000) / (performance.now() - startedMs))));
} else if (how === 'dns') {
  const resolver = new Resolver({ timeout: LIMIT_MS, tries: 1 });
  resolver.setServers([target]);
  const answer = await resolver.resolve(text, port).catch((error: NodeJS.ErrnoException) => error.code);
  process.stdout.write(JSON.stringify(answer));
} else {
  const socket = createSocket(target.includes(':') ? 'udp6' : 'udp4');
  const signal = AbortSignal.timeout(LIMIT_MS);
  socket.send(text, Number(port), target);
  const [message] = (await once(socket, 'message', { signal })) as [Buffer];
  process.stdout.write(message);
  socket.close();
}

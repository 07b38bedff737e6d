/**
 * Replaces the recorder's image in tests with several replicas on one machine: serves the probes and exits on SIGTERM.
 */
import { createServer } from 'node:http';

const address = process.env['TAILCAST_OPS_LISTEN'] ?? '';
const server = createServer((_request, response) => response.end('ok\n'));
server.listen({
  host: '127.0.0.1',
  port: Number(address.slice(address.lastIndexOf(':') + 1)),
  reusePort: true,
});
process.once('SIGTERM', () => process.exit(0));
process.stdout.write(`${JSON.stringify({ arguments: process.argv.slice(2) })}\n`);

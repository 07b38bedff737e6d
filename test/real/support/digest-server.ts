/** A server in a pod that returns the SHA-256 of its input in hex. */
import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { listenOn } from '../../support/listen.ts';

export interface DigestServer {
  readonly port: number;
  close(): void;
}

/**
 * Starts the server on this machine, because the kubelet double forwards a port of a pod to the same port of this
 * machine.
 *
 * @param framing `half-close`: the body ends with the input; `length`: the first four bytes contain the length of the
 * body, for clients without half-close
 */
export async function startDigestServer(framing: 'half-close' | 'length'): Promise<DigestServer> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const chunks: Buffer[] = [];
    let received = 0;
    const answer = (body: Buffer): void => void socket.end(createHash('sha256').update(body).digest('hex'));
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      received += chunk.length;
      if (framing === 'half-close' || received < 4) return;
      const all = Buffer.concat(chunks);
      if (all.length === 4 + all.readUInt32BE(0)) answer(all.subarray(4));
    });
    socket.on('end', () => {
      if (framing === 'half-close') answer(Buffer.concat(chunks));
      else socket.end();
    });
  });
  return { port: await listenOn(server), close: () => void server.close() };
}

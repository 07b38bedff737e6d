/** A Node program that decrypts TLS on one side and encrypts it on the other, without parsing. */
import type { Bench } from '../harness/bench.ts';
import type { Target } from '../programs/plan.ts';
import type { TlsHopProgram } from '../programs/tls-hop.ts';
import type { Peer } from './peer.ts';

/** @param to destination */
export async function startTlsHop(bench: Bench, to: Target): Promise<Peer> {
  const { ca, cert, key } = bench.files;
  const options: TlsHopProgram = { cert, key, port: to.port, ca: to.ca ?? ca };
  const { program, port } = await bench.launch('tls-hop', 'tls-hop', [JSON.stringify(options)]);
  return { name: 'tls-hop', target: { ...to, port, ca }, pids: () => [program.pid] };
}

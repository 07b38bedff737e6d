/** The gateway, with and without a recorder. */
import { join } from 'node:path';
import type { Bench } from '../harness/bench.ts';
import type { GatewayProgram } from '../programs/gateway.ts';
import type { Peer } from './peer.ts';

export async function startTailcast(
  name: 'tailcast' | 'tailcast-recorded',
  bench: Bench,
  kubeconfig: string = bench.kubeconfig,
): Promise<Peer> {
  const options: GatewayProgram = {
    kubeconfig,
    cert: bench.files.cert,
    key: bench.files.key,
    stateDirectory: join(bench.rig.folder, name),
    ...(name === 'tailcast' ? {} : { recorder: (await bench.recorder()).address }),
  };
  const { program, port } = await bench.launch('gateway', name, [JSON.stringify(options)]);
  return {
    name,
    target: { port, ca: bench.files.ca },
    pids: () => [program.pid],
    async restart() {
      await program.stop();
      return startTailcast(name, bench, kubeconfig);
    },
  };
}

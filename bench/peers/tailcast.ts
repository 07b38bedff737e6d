/** The gateway, with and without a recorder. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Bench } from '../harness/bench.ts';
import type { GatewayProgram } from '../programs/gateway.ts';
import type { Peer } from './peer.ts';

type TailcastName = 'tailcast' | 'tailcast-recorded' | 'tailcast-plain-recorded';

/** The fixed identity is only for this machine. */
const PROXY_HEADER = 'PROXY TCP4 127.0.0.1 127.0.0.1 40000 443\r\n';

export async function startTailcast(
  name: TailcastName,
  bench: Bench,
  kubeconfig: string = bench.kubeconfig,
): Promise<Peer> {
  // all load comes from one user, who could by default not have that many shells
  const policy = join(bench.rig.folder, 'policy.yaml');
  writeFileSync(policy, 'sessions:\n  perUser: 1000\n');
  const options: GatewayProgram = {
    kubeconfig,
    cert: bench.files.cert,
    key: bench.files.key,
    stateDirectory: join(bench.rig.folder, name),
    policy,
    ...(name === 'tailcast' ? {} : { recorder: (await bench.recorder()).address }),
    plain: name === 'tailcast-plain-recorded',
  };
  const { program, port } = await bench.launch('gateway', name, [JSON.stringify(options)]);
  return {
    name,
    target: options.plain === true ? { port, preamble: PROXY_HEADER } : { port, ca: bench.files.ca },
    pids: () => [program.pid],
    async restart() {
      await program.stop();
      return startTailcast(name, bench, kubeconfig);
    },
  };
}

/** The gateway, with and without a recorder. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Bench } from '../harness/bench.ts';
import { familyOf } from '../harness/usage.ts';
import type { GatewayProgram } from '../programs/gateway.ts';
import type { Peer } from './peer.ts';

type TailcastName = 'tailcast' | 'tailcast-2' | 'tailcast-recorded' | 'tailcast-plain-recorded';

const WORKERS = { tailcast: 1, 'tailcast-2': 2, 'tailcast-recorded': 1, 'tailcast-plain-recorded': 1 };

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
    ...(name.endsWith('-recorded') ? { recorder: (await bench.recorder()).address } : {}),
    plain: name === 'tailcast-plain-recorded',
    workers: WORKERS[name],
  };
  const { program, port } = await bench.launch('gateway', name, [JSON.stringify(options)]);
  const ready = async (): Promise<true | undefined> =>
    program.log().split(`"of":${program.pid}}`).length > WORKERS[name] || undefined;
  await bench.rig.until(`all workers of ${name}`, ready, { watch: [program] });
  return {
    name,
    target: options.plain === true ? { port, preamble: PROXY_HEADER } : { port, ca: bench.files.ca },
    pids: () => (WORKERS[name] === 1 ? [program.pid] : familyOf(program.pid)),
    spread: WORKERS[name] > 1,
    async restart() {
      await program.stop();
      return startTailcast(name, bench, kubeconfig);
    },
  };
}

/** HAProxy with one thread, for a comparison with a gateway process, which has one working thread. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../test/real/rig/rig.ts';
import type { Bench } from '../harness/bench.ts';
import { familyOf } from '../harness/usage.ts';
import { debianProgram } from './debian-program.ts';
import { answers } from './nginx.ts';
import type { Target } from '../programs/plan.ts';
import type { Peer } from './peer.ts';

export async function startHaproxy(bench: Bench): Promise<Peer> {
  const path = debianProgram('haproxy');
  const port = await freePort();
  const config = join(bench.rig.folder, `haproxy-${port}.cfg`);
  writeFileSync(config, configFor(bench, port));
  const program = bench.rig.launch({ name: 'haproxy', path, args: ['-db', '-q', '-f', config] });
  await bench.rig.until('haproxy', () => answers(port), { watch: [program] });
  return {
    name: 'haproxy',
    target: { port, ca: bench.files.ca },
    pids: () => familyOf(program.pid),
    async restart(onStopped) {
      await program.stop();
      onStopped?.();
      return startHaproxy(bench);
    },
  };
}

/** @param to target port of the forwarded bytes on this machine, which `target` gets */
export async function startHop(bench: Bench, to: number, target: Omit<Target, 'port'>): Promise<Peer> {
  const path = debianProgram('haproxy');
  const port = await freePort();
  const config = join(bench.rig.folder, `hop-${port}.cfg`);
  writeFileSync(config, hopConfigFor(port, to));
  const program = bench.rig.launch({ name: 'hop', path, args: ['-db', '-q', '-f', config] });
  await bench.rig.until('hop', () => answers(port), { watch: [program] });
  return { name: 'hop', target: { ...target, port }, pids: () => familyOf(program.pid) };
}

function hopConfigFor(port: number, to: number): string {
  return `global
  nbthread 1
  maxconn 9000
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen hop
  bind 127.0.0.1:${port} backlog 4096
  maxconn 9000
  server api 127.0.0.1:${to}
`;
}

function configFor({ files, upstream }: Bench, port: number): string {
  return `global
  nbthread 1
  maxconn 9000
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout connect 10s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
  http-reuse always
frontend front
  bind 127.0.0.1:${port} ssl crt ${files.both} alpn h2,http/1.1 backlog 4096
  maxconn 9000
  http-request set-header Authorization "Bearer bench"
  http-request set-header Impersonate-User alice@example.com
  http-request set-header Impersonate-Group system:masters
  default_backend api
backend api
  server api 127.0.0.1:${upstream.port} ssl verify required ca-file ${files.ca} sni str(localhost) verifyhost localhost alpn http/1.1 pool-max-conn -1
`;
}

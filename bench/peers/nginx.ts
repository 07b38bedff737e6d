/** nginx with one worker, for a comparison with a gateway process, which has one working thread. */
import { connect } from 'node:net';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../test/real/rig/rig.ts';
import type { Bench } from '../harness/bench.ts';
import { familyOf } from '../harness/usage.ts';
import { debianProgram } from './debian-program.ts';
import type { Peer } from './peer.ts';

export async function startNginx(bench: Bench): Promise<Peer> {
  const path = debianProgram('nginx');
  const port = await freePort();
  const folder = join(bench.rig.folder, `nginx-${port}`);
  mkdirSync(folder);
  const config = join(folder, 'nginx.conf');
  writeFileSync(config, configFor(bench, folder, port));
  const program = bench.rig.launch({
    name: 'nginx',
    path,
    args: ['-c', config, '-p', folder, '-e', join(folder, 'error.log')],
    stopSignal: 'SIGTERM',
  });
  await bench.rig.until('nginx', () => answers(port), { watch: [program] });
  return {
    name: 'nginx',
    target: { port, ca: bench.files.ca },
    pids: () => familyOf(program.pid),
    async restart(onStopped) {
      await program.stop();
      onStopped?.();
      return startNginx(bench);
    },
  };
}

function configFor({ files, upstream }: Bench, folder: string, port: number): string {
  return `daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 20000;
pid ${folder}/pid;
events { worker_connections 15000; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_max_body_size 0;
  http2_max_concurrent_streams 256;
  tcp_nodelay on;
  upstream api {
    server 127.0.0.1:${upstream.port};
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${port} ssl http2 backlog=4096;
    ssl_certificate ${files.cert};
    ssl_certificate_key ${files.key};
    ssl_session_cache shared:s:1m;
    location / {
      proxy_pass https://api;
      proxy_http_version 1.1;
      proxy_ssl_name localhost;
      proxy_ssl_server_name on;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate ${files.ca};
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 1h;
      proxy_set_header Host localhost;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer bench";
      proxy_set_header Impersonate-User alice@example.com;
      proxy_set_header Impersonate-Group system:masters;
    }
  }
}
`;
}

/** Resolves when a server listens on the port. */
export function answers(port: number): Promise<true> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

/** Three variants of a proxy with Go's httputil.ReverseProxy. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Bench } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import type { Peer } from './peer.ts';

const FLAGS = { go: [], 'go-default': ['-default'], 'go-h2': ['-h2'] } as const;

export interface GoUpstream {
  readonly url: string;
  readonly ca: string;
  readonly token: string;
}

export async function startGo(
  name: keyof typeof FLAGS,
  bench: Bench,
  upstream: GoUpstream = {
    url: `https://localhost:${bench.upstream.port}`,
    ca: bench.files.ca,
    token: 'bench',
  },
): Promise<Peer> {
  const program = bench.rig.launch({
    name,
    path: buildProxy(bench),
    env: { GOMAXPROCS: '2' },
    args: [
      `-cert=${bench.files.cert}`,
      `-key=${bench.files.key}`,
      `-ca=${upstream.ca}`,
      `-upstream=${upstream.url}`,
      `-token=${upstream.token}`,
      ...FLAGS[name],
    ],
  });
  const ready = await bench.rig.until(name, () => program.firstLine, { watch: [program] });
  return {
    name,
    target: { port: Number(ready['port']), ca: bench.files.ca },
    pids: () => [program.pid],
    async restart(onStopped) {
      await program.stop();
      onStopped?.();
      return startGo(name, bench, upstream);
    },
  };
}

/** Builds the proxy in the user's cache directory, once for each version of the source and of Go. */
function buildProxy(bench: Bench): string {
  const version = spawnSync('go', ['version'], { encoding: 'utf8' });
  if (version.status !== 0) throw new PeerMissingError('there is no `go` on this machine');
  const folder = join(dirname(fileURLToPath(import.meta.url)), 'go');
  const digest = createHash('sha256')
    .update(readFileSync(join(folder, 'main.go')))
    .update(version.stdout)
    .digest('hex');
  const cache = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tailcast', 'bench');
  const binary = join(cache, `reverse-proxy-${digest.slice(0, 16)}`);
  if (existsSync(binary)) return binary;
  mkdirSync(cache, { recursive: true });
  bench.say('building the Go peer …');
  const part = `${binary}.${process.pid}.part`;
  const built = spawnSync('go', ['build', '-o', part, '.'], { cwd: folder, encoding: 'utf8' });
  if (built.status !== 0) throw new PeerMissingError(`go build failed: ${built.stderr.trim()}`);
  renameSync(part, binary);
  return binary;
}

/** Describes the machine and the versions of the programs in a run. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Short sentences about processors, memory and OS. */
export function describeMachine(): readonly string[] {
  const [processor] = cpus();
  return [
    `${cpus().length} x ${processor?.model.trim() ?? 'unknown processor'}`,
    `${Math.round(totalmem() / 2 ** 30)} GiB of memory`,
    `Linux ${release()}, ${systemName()}`,
    'load, upstream, recorder and proxies on the same processors, over loopback',
  ];
}

function systemName(): string {
  try {
    return /^PRETTY_NAME="(.*)"$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown system';
  } catch {
    return process.platform;
  }
}

/** Versions of all compared programs. */
export function describeVersions(): Readonly<Record<string, string>> {
  const tailscale = readFileSync(
    join(dirname(fileURLToPath(import.meta.url)), '../../test/real/peers/reference/go.mod'),
    'utf8',
  );
  return Object.fromEntries(
    Object.entries({
      tailcast: firstLine('git', ['rev-parse', '--short', 'HEAD'], /(.*)/),
      node: process.version,
      openssl: process.versions.openssl,
      go: firstLine('go', ['version'], /go(\d[\d.]*)/),
      reference: /tailscale\.com (v\S+)/.exec(tailscale)?.[1],
    }).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}

function firstLine(command: string, args: readonly string[], pattern: RegExp): string | undefined {
  try {
    const text = execFileSync('sh', ['-c', '"$0" "$@" 2>&1', command, ...args], { encoding: 'utf8' });
    return pattern.exec(text)?.[1];
  } catch {
    return undefined;
  }
}

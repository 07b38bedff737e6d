/**
 * A separate root for package installation. An overlay keeps all changes in memory, so the files of this machine stay
 * unchanged. A separate root needs Linux with overlayfs, and the rights of root.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Outcome } from '../chart/render.ts';

const SET_UP = `
set -e
layer=$1 script=$2
mount -t tmpfs -o mode=0755 layer "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
mount --bind /proc "$layer/root/proc"
# loopback, and nothing of this machine's
ip link set lo up 2>/dev/null || true
mount --bind /dev "$layer/root/dev"
mount -t tmpfs run "$layer/root/run"
mount -t tmpfs tmp "$layer/root/tmp"
mount --bind "$3" "$layer/root/mnt"
exec chroot "$layer/root" sh -e < "$script"
`;

/** Runs a shell script in a separate root. `files` is a folder that is mounted at `/mnt`. */
export function runInScratchRoot(scratch: string, files: string, script: string): Outcome {
  const layer = join(scratch, 'layer');
  const [setUp, told] = [join(scratch, 'set-up.sh'), join(scratch, 'script.sh')];
  writeFileSync(setUp, SET_UP);
  writeFileSync(told, script);
  spawnSync('mkdir', ['-p', layer]);
  const { status, stdout, stderr, error } = spawnSync(
    'unshare',
    ['--mount', '--net', '--propagation=private', 'sh', setUp, layer, told, files],
    {
      encoding: 'utf8',
      timeout: 280_000,
      env: { PATH: process.env['PATH'], DEBIAN_FRONTEND: 'noninteractive', HOME: '/root' },
    },
  );
  if (error !== undefined) throw error;
  return { code: status ?? 1, stdout, stderr };
}

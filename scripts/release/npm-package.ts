/** The npm package: one tarball with the commands `tailcast` and `kubectl-tailcast`. */
import { mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { run } from './tree.ts';

const PACKED = z.array(z.object({ filename: z.string() })).length(1);
const PACKED_BY_NAME = z.record(z.string(), z.object({ filename: z.string() }));

/** Packs the folder that `stagePackage` has created, and returns the path of the tarball. */
export function packNpm(packageFolder: string, output: string, version: string): string {
  mkdirSync(output, { recursive: true });
  const listing: unknown = JSON.parse(
    run('npm', ['pack', '--json', '--ignore-scripts', `--pack-destination=${output}`], {
      cwd: packageFolder,
    }),
  );
  // npm 12 prints an object with the packages by name. Older versions print a list.
  const packed = Array.isArray(listing)
    ? PACKED.parse(listing)
    : Object.values(PACKED_BY_NAME.parse(listing));
  const file = join(output, `tailcast-${version}.tgz`);
  renameSync(join(output, packed[0]?.filename ?? ''), file);
  return file;
}

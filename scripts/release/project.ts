/** Reads name, version, sources and download address of a release from `package.json`. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { readEnvironment } from '../../src/config/environment.ts';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Matches versions of Semantic Versioning 2.0.0 without build metadata, which image tags do not allow. */
const SEMVER = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$/;

const MANIFEST = z.object({
  name: z.string(),
  version: z.string().regex(SEMVER),
  description: z.string(),
  license: z.string(),
  engines: z.object({ node: z.string() }),
  publishing: z.object({ image: z.string(), releases: z.url() }),
  bin: z.record(z.string(), z.string()),
  dependencies: z.record(z.string(), z.string()),
  optionalDependencies: z.record(z.string(), z.string()),
});

export type ProjectManifest = z.infer<typeof MANIFEST>;

/** Properties of the project to release. */
export interface Project {
  readonly manifest: ProjectManifest;
  readonly version: string;
  /** Commit id, with `-dirty` if files differ from the commit. Empty outside of a git checkout. */
  readonly commit: string;
  /**
   * Modification time of every file in the release, in seconds since 1970. Default: `SOURCE_DATE_EPOCH`, or the time
   * of the commit.
   */
  readonly epoch: number;
  /** Download address of the files of this version. */
  readonly base: string;
}

/** Architectures of the image: their names in OCI, and the names that other tools use. */
export const ARCHITECTURES = {
  amd64: { npm: 'x64', debian: 'amd64', rpm: 'x86_64' },
  arm64: { npm: 'arm64', debian: 'arm64', rpm: 'aarch64' },
} as const;

export type Architecture = keyof typeof ARCHITECTURES;

/** @throws Error if `package.json` lacks a field that a release needs */
export function readManifest(): ProjectManifest {
  return MANIFEST.parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));
}

export function readProject(): Project {
  const manifest = readManifest();
  const head = git('rev-parse', 'HEAD');
  const isDirty = head !== '' && git('status', '--porcelain', '--untracked-files=no') !== '';
  const seconds = Number(readEnvironment().get('SOURCE_DATE_EPOCH') ?? git('log', '-1', '--format=%ct'));
  return {
    manifest,
    version: manifest.version,
    commit: isDirty ? `${head}-dirty` : head,
    epoch: Number.isSafeInteger(seconds) && seconds > 0 ? seconds : 0,
    base: `${manifest.publishing.releases}/v${manifest.version}`,
  };
}

/** Returns the output of git, or an empty text outside of a git checkout. */
export function git(...args: readonly string[]): string {
  const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : '';
}

/**
 * Creates the tree of installed files from the sources:
 *
 *   node scripts/release/stage.ts <folder> [--commit <id>] [--cpu <x64|arm64>]
 *
 * The tree is the content of `/app` in the image and the host packages: the npm package with its dependencies, without
 * files that are unused at run time. The Dockerfile calls this script too, so an image that a container engine builds
 * contains the same files.
 */
import { chmodSync, copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { writeManPages } from './man-pages.ts';
import { ROOT, type Project, readManifest } from './project.ts';
import { filesBelow, run } from './tree.ts';

const BIN = join(ROOT, 'node_modules', '.bin');
const ENTRIES = ['tailcast.mjs', 'kubectl-tailcast.mjs', 'kubectl_complete-tailcast.mjs'];
/** Matches files that are unused at run time. They are half of the size of the packages. */
const UNREAD = /\.(?:map|d\.ts|d\.mts|d\.cts)$/;

const LOCK = z.looseObject({
  packages: z.record(z.string(), z.looseObject({ dev: z.boolean().optional() })),
});

/**
 * Creates the tree of the npm package: the build, the entry points, the licence, manual pages, and a lock file with the
 * tested versions of dependencies.
 */
export function stagePackage(folder: string, project: Pick<Project, 'manifest' | 'commit'>): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, 'scripts'), { recursive: true });
  build(join(folder, 'dist'));
  for (const file of ENTRIES) {
    copyFileSync(join(ROOT, 'scripts', file), join(folder, 'scripts', file));
    chmodSync(join(folder, 'scripts', file), 0o755);
  }
  copyFileSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
  copyFileSync(join(ROOT, 'scripts', 'release', 'package-readme.md'), join(folder, 'README.md'));
  writeManPages(join(folder, 'man'), project.manifest);
  const manifest = packageManifest(project, filesBelow(join(folder, 'man')));
  writeJson(join(folder, 'package.json'), manifest);
  writeJson(join(folder, 'npm-shrinkwrap.json'), shrinkwrap(manifest));
}

/** Creates `/app`: the tree of `stagePackage` with its dependencies for one CPU architecture. */
export function stageApp(folder: string, packageFolder: string, cpu: string): void {
  rmSync(folder, { recursive: true, force: true });
  cpSync(packageFolder, folder, { recursive: true });
  copyFileSync(join(ROOT, '.npmrc'), join(folder, '.npmrc'));
  const platform = ['--os=linux', `--cpu=${cpu}`, '--libc=glibc'];
  run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', ...platform], {
    cwd: folder,
  });
  rmSync(join(folder, '.npmrc'));
  const modules = join(folder, 'node_modules');
  // npm writes the origin of each package into this file, and the origin differs between machines.
  rmSync(join(modules, '.package-lock.json'), { force: true });
  rmSync(join(modules, '.bin'), { recursive: true, force: true });
  for (const file of filesBelow(modules)) if (UNREAD.test(file)) rmSync(join(modules, file));
}

function build(dist: string): void {
  const smaller = ['--sourceMap', 'false', '--removeComments', 'true'];
  const options = ['--incremental', 'false', '--tsBuildInfoFile', 'null', ...smaller];
  run(join(BIN, 'tsc'), ['-p', 'tsconfig.build.json', '--outDir', dist, ...options], { cwd: ROOT });
  run(process.execPath, [join(ROOT, 'scripts', 'build-demo.mjs'), dist]);
  run(join(BIN, 'vite'), ['build', '--logLevel', 'warn', '--outDir', join(dist, 'player')], { cwd: ROOT });
  run(process.execPath, [join(ROOT, 'scripts', 'shipped-packages.mjs'), dist]);
}

function packageManifest(
  { manifest, commit }: Pick<Project, 'manifest' | 'commit'>,
  pages: readonly string[],
) {
  const { name, version, description, license, bin, publishing } = manifest;
  const { dependencies, optionalDependencies } = manifest;
  return {
    name,
    version,
    description,
    license,
    type: 'module',
    bin,
    man: pages.map((page) => `./man/${page}`),
    engines: manifest.engines,
    dependencies,
    optionalDependencies,
    publishing,
    ...(commit === '' ? {} : { commit }),
  };
}

/**
 * Returns the lock file without development dependencies. With this lock file, an installation gets the tested
 * versions.
 */
function shrinkwrap(manifest: ReturnType<typeof packageManifest>): object {
  const lock = LOCK.parse(JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')));
  const shipped = Object.entries(lock.packages).filter(([path, entry]) => path !== '' && entry.dev !== true);
  const { name, version } = manifest;
  const packages = { '': manifest, ...Object.fromEntries(shipped) };
  return { name, version, lockfileVersion: 3, requires: true, packages };
}

function writeJson(path: string, value: object): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

if (import.meta.main) {
  process.umask(0o022);
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { commit: { type: 'string', default: '' }, cpu: { type: 'string', default: process.arch } },
  });
  const folder = resolve(positionals[0] ?? 'app');
  stagePackage(`${folder}.package`, { manifest: readManifest(), commit: values.commit });
  stageApp(folder, `${folder}.package`, values.cpu);
  rmSync(`${folder}.package`, { recursive: true });
}

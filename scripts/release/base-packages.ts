/**
 * What the image has below our own files: a few Debian packages (the C and C++ libraries that Node needs, no shell) and
 * Node itself. `deploy/image/base.json` says which ones, byte for byte; `npm run release -- --update-base` writes it anew
 * from what Debian and npm have now, which is how security updates come in.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { readEnvironment } from '../../src/config/environment.ts';
import { ARCHITECTURES, type Architecture, ROOT } from './project.ts';
import { run, sha256 } from './tree.ts';

const LOCK_FILE = join(ROOT, 'deploy', 'image', 'base.json');
const PACKAGES = ['base-files', 'gcc-12-base', 'libatomic1', 'libc6', 'libgcc-s1', 'libstdc++6', 'netbase'];

const PINNED = z.object({ version: z.string(), sha256: z.string() });
const LOCK = z.record(
  z.enum(['amd64', 'arm64']),
  z.object({ node: PINNED, debian: z.record(z.string(), PINNED) }),
);
const NODE_IN_LOCK = z.object({
  packages: z.looseObject({ 'node_modules/node': z.object({ version: z.string() }) }),
});

export type BaseLock = z.infer<typeof LOCK>;

/** A file of the base with what is known about it. */
export interface BasePackage {
  readonly name: string;
  readonly version: string;
  readonly file: string;
}

export interface Base {
  readonly debian: readonly BasePackage[];
  /** The npm package that holds Node. */
  readonly node: BasePackage;
}

export function readBaseLock(): BaseLock {
  return LOCK.parse(JSON.parse(readFileSync(LOCK_FILE, 'utf8')));
}

/**
 * The packages that a lock names, fetched once into a cache.
 *
 * @throws Error when one is no longer to be had, or is not the one that was pinned
 */
export function fetchBase(architecture: Architecture, lock: BaseLock): Base {
  const { node, debian } = lock[architecture];
  const apt = createApt(architecture);
  try {
    return {
      debian: Object.entries(debian).map(([name, pinned]) => {
        const file = cached(`${name}_${architecture}_${pinned.sha256}.deb`, (folder) =>
          apt.download(name, pinned.version, folder),
        );
        return checked(name, file, pinned);
      }),
      node: checked('node', fetchNode(architecture, node.version), node),
    };
  } finally {
    apt.close();
  }
}

/** Writes `deploy/image/base.json` anew; gives its path. */
export function updateBase(): string {
  mkdirSync(join(LOCK_FILE, '..'), { recursive: true });
  writeFileSync(LOCK_FILE, `${JSON.stringify(newestBase(), null, 2)}\n`);
  return LOCK_FILE;
}

/** What Debian and npm have now, of Node the version that the project runs on. */
export function newestBase(): BaseLock {
  const version = NODE_IN_LOCK.parse(JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')))
    .packages['node_modules/node'].version;
  return { amd64: newest('amd64', version), arm64: newest('arm64', version) };
}

function newest(architecture: Architecture, nodeVersion: string): BaseLock[Architecture] {
  const apt = createApt(architecture);
  const folder = mkdtempSync(join(cacheFolder(), 'new-'));
  try {
    const debian = PACKAGES.map((name) => {
      const file = apt.download(name, undefined, folder);
      const version = run('dpkg-deb', ['--field', file, 'Version']).trim();
      return [name, { version, sha256: sha256(file) }] as const;
    });
    const node = { version: nodeVersion, sha256: sha256(fetchNode(architecture, nodeVersion)) };
    return { node, debian: Object.fromEntries(debian) };
  } finally {
    apt.close();
    rmSync(folder, { recursive: true });
  }
}

function checked(name: string, file: string, pinned: z.infer<typeof PINNED>): BasePackage {
  if (sha256(file) === pinned.sha256) return { name, version: pinned.version, file };
  rmSync(file);
  throw new Error(`${name} ${pinned.version} is not the file that deploy/image/base.json names`);
}

function fetchNode(architecture: Architecture, version: string): string {
  const name = `node-linux-${ARCHITECTURES[architecture].npm}`;
  return cached(`${name}-${version}.tgz`, (folder) => {
    run('npm', ['pack', '--silent', `${name}@${version}`, `--pack-destination=${folder}`], { cwd: folder });
    return onlyFile(folder);
  });
}

interface Apt {
  /** Gives the path of the package; `version` undefined: the newest. */
  download(name: string, version: string | undefined, folder: string): string;
  close(): void;
}

/** apt-get with lists of its own, so that another architecture needs nothing changed on this machine. */
function createApt(architecture: Architecture): Apt {
  const state = mkdtempSync(join(cacheFolder(), 'apt-'));
  for (const name of ['lists/partial', 'cache/archives/partial'])
    mkdirSync(join(state, name), { recursive: true });
  writeFileSync(join(state, 'status'), '');
  const options = {
    'APT::Architecture': architecture,
    'APT::Architectures': architecture,
    'APT::Sandbox::User': 'root',
    'Dir::State::lists': join(state, 'lists'),
    'Dir::State::status': join(state, 'status'),
    'Dir::Cache': join(state, 'cache'),
  };
  const flags = Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
  let isUpdated = false;
  return {
    download(name, version, folder) {
      if (!isUpdated) run('apt-get', [...flags, 'update', '-qq']);
      isUpdated = true;
      const into = mkdtempSync(join(folder, `${name}-`));
      try {
        run('apt-get', [...flags, 'download', '-qq', version === undefined ? name : `${name}=${version}`], {
          cwd: into,
        });
      } catch (error) {
        throw new Error(
          `Debian has no ${name} ${version ?? ''} any more; npm run release -- --update-base takes what it has now`,
          { cause: error },
        );
      }
      return onlyFile(into);
    },
    close: () => rmSync(state, { recursive: true }),
  };
}

/** The file of this name in the cache, which `make` brings when it is missing: it gives the path of a file in a folder. */
function cached(name: string, make: (folder: string) => string): string {
  const file = join(cacheFolder(), name);
  if (existsSync(file)) return file;
  const folder = mkdtempSync(join(cacheFolder(), 'new-'));
  try {
    renameSync(make(folder), file);
  } finally {
    rmSync(folder, { recursive: true });
  }
  return file;
}

function cacheFolder(): string {
  const folder = readEnvironment().get('RELEASE_CACHE_DIR') ?? join(homedir(), '.cache', 'tailcast-release');
  mkdirSync(folder, { recursive: true });
  return folder;
}

function onlyFile(folder: string): string {
  const [name, ...others] = readdirSync(folder);
  if (name === undefined || others.length > 0) throw new Error(`one file is expected in ${folder}`);
  return join(folder, name);
}

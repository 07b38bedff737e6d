/**
 * The base layers of the image, below tailcast's files: Node, and a few Debian packages (the C and C++ libraries for
 * Node, but no shell). `deploy/image/base.json` pins the packages by hash. `npm run release -- --update-base` updates
 * this file to the current versions of Debian and npm, for example for security fixes.
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

/** A file of a base package, with its metadata. */
export interface BasePackage {
  readonly name: string;
  readonly version: string;
  readonly file: string;
}

export interface Base {
  readonly debian: readonly BasePackage[];
  /** The npm package that contains Node. */
  readonly node: BasePackage;
}

export function readBaseLock(): BaseLock {
  return LOCK.parse(JSON.parse(readFileSync(LOCK_FILE, 'utf8')));
}

/**
 * Returns the packages of a lock file. Each package is downloaded once and then cached.
 *
 * @throws Error if a package is no longer available or differs from the pinned hash
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

/** Updates `deploy/image/base.json` and returns its path. */
export function updateBase(): string {
  mkdirSync(join(LOCK_FILE, '..'), { recursive: true });
  writeFileSync(LOCK_FILE, `${JSON.stringify(newestBase(), null, 2)}\n`);
  return LOCK_FILE;
}

/** Returns the current packages of Debian and npm; Node has the version that the project uses. */
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
  /** Downloads a Debian package and returns its path. If `version` is undefined, downloads the newest version. */
  download(name: string, version: string | undefined, folder: string): string;
  close(): void;
}

/**
 * Creates an apt-get with its own package lists, so that it can download packages of another architecture without
 * changing this machine.
 */
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

/**
 * Returns the path of the cached file with this name. If the file is missing, `make` creates the file in a temporary
 * folder and returns the path there.
 */
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

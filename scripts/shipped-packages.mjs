// Describes the content of an image: `node scripts/shipped-packages.mjs <directory>` writes an SBOM (CycloneDX) and a
// file with the text of every licence. Both files cover the production dependencies and the packages that are bundled
// into the player. The script fails if a package has no licence, or a licence that requires more than attribution.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** Development dependencies whose code is part of the player (`src/player`). */
export const BUNDLED = ['preact', '@xterm/headless'];

const PERMISSIVE = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'PSF-2.0',
  'Python-2.0',
  'Unlicense',
]);

/** Returns a map of all shipped packages, from the path `node_modules/…` in the lock file to its entry. */
export function shippedPackages(lock) {
  const { packages } = lock;
  const shipped = new Map(
    Object.entries(packages).filter(
      ([path, entry]) => path !== '' && entry.dev !== true && entry.devOptional !== true,
    ),
  );
  const add = (name, from) => {
    const path = resolvePath(packages, name, from);
    if (path === undefined || shipped.has(path)) return;
    shipped.set(path, packages[path]);
    for (const dependency of Object.keys(packages[path].dependencies ?? {})) add(dependency, path);
  };
  for (const name of BUNDLED) add(name, '');
  return shipped;
}

/** Searches for a package in the same way as Node: next to the importing package, then in the folders above it. */
function resolvePath(packages, name, from) {
  for (let folder = from; ; folder = folder.replace(/\/?node_modules\/(?:@[^/]+\/)?[^/]+$/, '')) {
    const path = `${folder === '' ? '' : `${folder}/`}node_modules/${name}`;
    if (packages[path] !== undefined) return path;
    if (folder === '') return undefined;
  }
}

export function nameOf(path) {
  return path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
}

/** Returns the packages whose licence is missing or not permissive. */
export function licenceProblems(shipped) {
  return [...shipped]
    .filter(([, { license }]) => !isPermissive(license))
    .map(([path, { license }]) => `${nameOf(path)}: ${license ?? 'no licence'}`);
}

function isPermissive(license) {
  if (typeof license !== 'string') return false;
  const words = license.replaceAll(/[()]/g, '').split(/ (?:OR|AND) /);
  return / OR /.test(license)
    ? words.some((word) => PERMISSIVE.has(word))
    : words.every((word) => PERMISSIVE.has(word));
}

function licencesText(shipped, modules) {
  const list = [...shipped].map(([path, { version, license }]) => ({
    path,
    name: nameOf(path),
    version,
    license,
  }));
  list.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  const overview = list.map(({ name, version, license }) => `${name}@${version}: ${license}`).join('\n');
  const texts = list.map(({ path, name, version }) => {
    const folder = join(modules, path.replace(/^node_modules\//, ''));
    const files = existsSync(folder)
      ? readdirSync(folder).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file))
      : [];
    const bodies = files.map((file) => readFileSync(join(folder, file), 'utf8').trim());
    return `\n${'-'.repeat(80)}\n${name}@${version}\n\n${bodies.join('\n\n') || '(the package has no licence file of its own)'}\n`;
  });
  return (
    `This image has these packages, in addition to Node.js and the packages of its base ` +
    `image.\n\n${overview}\n${texts.join('')}`
  );
}

function sbom(shipped) {
  const all = JSON.parse(
    execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format=cyclonedx'], {
      cwd: root,
      encoding: 'utf8',
      maxBuffer: 64 * 1024 ** 2,
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  );
  const wanted = new Set([...shipped].map(([path, { version }]) => `${nameOf(path)}@${version}`));
  const refs = new Set([all.metadata.component['bom-ref'], ...wanted]);
  // Removes two fields that differ between builds, because the file must be reproducible.
  delete all.serialNumber;
  delete all.metadata.timestamp;
  return {
    ...all,
    metadata: { ...all.metadata, component: { ...all.metadata.component, name: 'tailcast' } },
    components: all.components.filter((component) => wanted.has(component['bom-ref'])),
    dependencies: all.dependencies
      .filter(({ ref }) => refs.has(ref))
      .map((entry) => ({ ...entry, dependsOn: (entry.dependsOn ?? []).filter((ref) => refs.has(ref)) })),
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const directory = process.argv[2] ?? join(root, 'dist');
  const shipped = shippedPackages(JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')));
  const problems = licenceProblems(shipped);
  if (problems.length > 0) {
    process.stderr.write(`tailcast: licences to look at:\n${problems.map((line) => `  ${line}\n`).join('')}`);
    process.exitCode = 1;
  } else {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'LICENSES.txt'), licencesText(shipped, join(root, 'node_modules')));
    writeFileSync(join(directory, 'sbom.cdx.json'), `${JSON.stringify(sbom(shipped), null, 2)}\n`);
    process.stdout.write(`${shipped.size} packages, their licences and an SBOM in ${directory}\n`);
  }
}

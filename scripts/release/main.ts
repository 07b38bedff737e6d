/**
 * Builds a release: all installable packages in one folder.
 *
 *   npm run release -- --dry-run            from the current checkout, unsigned
 *   npm run release                         from a clean checkout whose commit has the tag v<version>
 *
 *   --output <folder>    default: release/v<version>; must be missing or empty
 *   --arch <list>        default: amd64,arm64
 *   --base <which>       pinned: deploy/image/base.json; newest: current packages of Debian
 *   --update-base        only update deploy/image/base.json
 *
 * The same checkout produces the same files, byte for byte. The command calls the program `RELEASE_SIGN` with the path
 * of each finished file (scripts/release/README.md). The command needs Linux with dpkg, apt-get, rpmbuild, tar
 * and gzip.
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { readEnvironment } from '../../src/config/environment.ts';
import { adviceOn, errorText } from '../../src/errors.ts';
import { fetchBase, newestBase, readBaseLock, updateBase, type Base } from './base-packages.ts';
import { chartIndex, packChart } from './chart.ts';
import { buildDeb, buildRpm, stageHost, type HostParts } from './host-package.ts';
import { buildImage, type ImageParts } from './image.ts';
import { krewManifest, packPlugin, type PluginArchive } from './krew.ts';
import { packNpm } from './npm-package.ts';
import { changelogSection, checksums, imageSbom, overview, provenance } from './papers.ts';
import { ARCHITECTURES, type Architecture, type Project, ROOT, git, readProject } from './project.ts';
import { stageApp, stagePackage } from './stage.ts';
import { run } from './tree.ts';

const PROGRAMS = ['tar', 'gzip', 'dpkg-deb', 'apt-get', 'rpmbuild'];

function main(): void {
  const { values } = parseArgs({
    options: {
      'dry-run': { type: 'boolean', default: false },
      output: { type: 'string' },
      arch: { type: 'string', default: 'amd64,arm64' },
      base: { type: 'string', default: 'pinned' },
      'update-base': { type: 'boolean', default: false },
    },
  });
  // The umask is fixed, so that the modes of created files do not depend on the user's umask.
  process.umask(0o022);
  if (values['update-base']) {
    process.stdout.write(`${updateBase()}\n`);
    return;
  }
  const project = readProject();
  const architectures = readArchitectures(values.arch);
  const output = resolve(values.output ?? join(ROOT, 'release', `v${project.version}`));
  checkMachine();
  if (!values['dry-run']) checkCheckout(project);
  if (existsSync(output) && readdirSync(output).length > 0)
    throw new Error(`${output} is not empty; remove it, or name another folder with --output`);
  const notes = changelogSection(project.version);
  const lock = values.base === 'newest' ? newestBase() : readBaseLock();
  const scratch = mkdtempSync(join(tmpdir(), 'tailcast-release-'));
  try {
    const bases = new Map(architectures.map((each) => [each, fetchBase(each, lock)]));
    const made = join(scratch, 'made');
    mkdirSync(made);
    makeFiles(project, bases, made, scratch);
    writeFileSync(join(made, 'CHANGES.md'), notes);
    writeJson(join(made, 'provenance.intoto.json'), provenance(project, filesOf(made), bases));
    writeFileSync(join(made, 'SHA256SUMS'), checksums(filesOf(made)));
    // The files are first copied next to the destination, because the scratch folder may be on another disk. The rename
    // to the destination is then atomic.
    mkdirSync(dirname(output), { recursive: true });
    const beside = mkdtempSync(`${output}.`);
    try {
      run('cp', ['-a', `${made}/.`, beside]);
      chmodSync(beside, 0o755);
      rmSync(output, { recursive: true, force: true });
      renameSync(beside, output);
    } finally {
      rmSync(beside, { recursive: true, force: true });
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  if (!values['dry-run']) sign(filesOf(output));
  process.stdout.write(`${overview(filesOf(output))}${output}\n`);
}

function makeFiles(
  project: Project,
  bases: ReadonlyMap<Architecture, Base>,
  output: string,
  scratch: string,
): void {
  const packageFolder = join(scratch, 'package');
  step('the build and the npm package');
  stagePackage(packageFolder, project);
  packNpm(packageFolder, output, project.version);
  step('the chart');
  const chart = packChart(project, output, scratch);
  writeFileSync(join(output, 'index.yaml'), chartIndex(project, chart));
  const images = new Map<Architecture, ImageParts>();
  const plugins: PluginArchive[] = [];
  for (const [architecture, base] of bases) {
    step(`packages and plugin for ${architecture}`);
    const app = join(scratch, `app-${architecture}`);
    stageApp(app, packageFolder, ARCHITECTURES[architecture].npm);
    const unpacked = mkdtempSync(join(scratch, 'node-'));
    run('tar', ['-xzf', base.node.file, '-C', unpacked, '--no-same-owner', '--strip-components=1']);
    const node = join(unpacked, 'bin', 'node');
    images.set(architecture, { base, app, node, nodeLicense: join(unpacked, 'LICENSE') });
    const parts: HostParts = { architecture, app, node };
    const host = join(scratch, `host-${architecture}`);
    stageHost(host, parts, project);
    buildDeb(host, output, parts, project);
    buildRpm(host, { output, scratch }, parts, project);
    plugins.push(packPlugin(project, parts, output, scratch));
    writeJson(join(output, `tailcast-image-${architecture}.cdx.json`), imageSbom(app, base, architecture));
  }
  writeFileSync(join(output, 'krew-tailcast.yaml'), krewManifest(project, plugins));
  step('the image');
  buildImage(project, images, { file: join(output, `tailcast-image-${project.version}.oci.tar`), scratch });
}

function readArchitectures(text: string): readonly Architecture[] {
  return text.split(',').map((name) => {
    if (name === 'amd64' || name === 'arm64') return name;
    throw new Error(`--arch ${name}: amd64 and arm64 are known`);
  });
}

function checkMachine(): void {
  if (process.platform !== 'linux') throw new Error('a release is made on Linux');
  const missing = PROGRAMS.filter((program) => {
    try {
      run(program, ['--version']);
      return false;
    } catch {
      return true;
    }
  });
  if (missing.length > 0)
    throw new Error(`not installed: ${missing.join(', ')} (apt-get install dpkg rpm tar gzip)`);
}

function checkCheckout({ commit, version }: Project): void {
  if (commit === '' || commit.endsWith('-dirty'))
    throw new Error('a release is made from a clean git checkout; --dry-run takes any');
  if (!git('tag', '--points-at', 'HEAD').split('\n').includes(`v${version}`))
    throw new Error(`the commit has no tag v${version}: git tag --sign v${version}, or --dry-run`);
}

/** Files that `RELEASE_SIGN` writes next to the signed file become part of the release. */
function sign(files: readonly string[]): void {
  const program = readEnvironment().get('RELEASE_SIGN');
  if (program === undefined) {
    process.stderr.write('release: nothing is signed; RELEASE_SIGN names a program that signs a file\n');
    return;
  }
  for (const file of files) execFileSync(program, [file], { stdio: 'inherit' });
}

function filesOf(folder: string): readonly string[] {
  return readdirSync(folder)
    .toSorted()
    .map((name) => join(folder, name));
}

function writeJson(path: string, value: object): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

function step(what: string): void {
  process.stderr.write(`release: making ${what}\n`);
}

try {
  main();
} catch (error) {
  const advice = adviceOn(error);
  process.stderr.write(`release: ${errorText(error)}${advice === undefined ? '' : `; ${advice}`}\n`);
  process.exitCode = 1;
}

/**
 * Packages for hosts (`.deb` and `.rpm`). Host packages contain the files of the image, Node, systemd units, example
 * settings, manual pages and completions. Node is included, because distributions contain older versions.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { SHELLS, type Shell, completionScript } from '../../src/cli/completion.ts';
import { ARCHITECTURES, type Architecture, type Project, ROOT } from './project.ts';
import { filesBelow, normalise, run, sizeBelow } from './tree.ts';

const HOST = join(ROOT, 'deploy', 'host');
const LIBRARY = '/usr/lib/tailcast';
const COMMANDS: Readonly<Record<string, string>> = {
  tailcast: 'tailcast.mjs',
  'kubectl-tailcast': 'kubectl-tailcast.mjs',
  'kubectl_complete-tailcast': 'kubectl_complete-tailcast.mjs',
};
const COMPLETIONS: Readonly<Record<Shell, string>> = {
  bash: 'usr/share/bash-completion/completions/tailcast',
  zsh: 'usr/share/zsh/site-functions/_tailcast',
  fish: 'usr/share/fish/vendor_completions.d/tailcast.fish',
};
const UNITS = ['tailcast-gateway.service', 'tailcast-recorder.service'];
const SETTINGS = ['gateway.yaml', 'recorder.yaml'];
const MAINTAINER = 'The tailcast project <packages@tailcast.example>';

export interface HostParts {
  readonly architecture: Architecture;
  /** The folder `/app` that `stageApp` created. */
  readonly app: string;
  /** The `node` program. */
  readonly node: string;
}

/** Creates the tree that a package installs on a host. */
export function stageHost(root: string, { app, node }: HostParts, project: Project): void {
  const put = (path: string, text: string, mode = 0o644): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text, { mode });
    chmodSync(join(root, path), mode);
  };
  mkdirSync(join(root, LIBRARY, 'bin'), { recursive: true });
  cpSync(app, join(root, LIBRARY, 'app'), { recursive: true });
  copyFileSync(node, join(root, LIBRARY, 'bin', 'node'));
  for (const [name, script] of Object.entries(COMMANDS)) {
    const program = `exec ${LIBRARY}/bin/node ${LIBRARY}/app/scripts/${script} "$@"`;
    put(join('usr', 'bin', name), `#!/bin/sh\n${program}\n`, 0o755);
  }
  const hardening = read('hardening.conf').trim();
  for (const unit of UNITS)
    put(
      `usr/lib/systemd/system/${unit}`,
      read(unit).replace('@HARDENING@', () => hardening),
    );
  put('usr/lib/sysusers.d/tailcast.conf', read('sysusers.conf'));
  for (const name of SETTINGS) put(`etc/tailcast/${name}`, read(name));
  for (const shell of SHELLS) put(COMPLETIONS[shell], completionScript(shell));
  const doc = 'usr/share/doc/tailcast';
  put(`${doc}/copyright`, `${readFileSync(join(ROOT, 'LICENSE'), 'utf8')}\n`);
  for (const name of ['LICENSES.txt', 'sbom.cdx.json'])
    put(`${doc}/${name}`, readFileSync(join(app, 'dist', name), 'utf8'));
  const man = join(root, 'usr', 'share', 'man', 'man1');
  cpSync(join(app, 'man'), man, { recursive: true });
  for (const page of readdirSync(man)) run('gzip', ['-9', '--no-name', join(man, page)]);
  normalise(root, project.epoch);
}

/** Builds the Debian package and returns its path. */
export function buildDeb(
  tree: string,
  output: string,
  { architecture }: HostParts,
  project: Project,
): string {
  const { debian } = ARCHITECTURES[architecture];
  const version = project.version.replace('-', '~');
  const control = join(tree, 'DEBIAN');
  mkdirSync(control);
  const put = (name: string, text: string, mode = 0o644): void => {
    writeFileSync(join(control, name), text, { mode });
  };
  put('control', controlOf(project, version, debian, Math.ceil(sizeBelow(tree) / 1024)));
  put('conffiles', SETTINGS.map((name) => `/etc/tailcast/${name}\n`).join(''));
  for (const name of ['postinst', 'prerm', 'postrm']) put(name, read(`debian-${name}.sh`), 0o755);
  normalise(tree, project.epoch);
  const file = join(output, `tailcast_${version}_${debian}.deb`);
  run('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z9', '--build', tree, file], {
    env: { SOURCE_DATE_EPOCH: String(project.epoch) },
  });
  rmSync(control, { recursive: true });
  return file;
}

function controlOf(project: Project, version: string, architecture: string, kilobytes: number): string {
  return [
    'Package: tailcast',
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    `Maintainer: ${MAINTAINER}`,
    `Installed-Size: ${kilobytes}`,
    'Depends: libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 11), libatomic1',
    'Recommends: systemd',
    'Section: net',
    'Priority: optional',
    `Description: ${project.manifest.description}`,
    ' One command for every role: gateway, recorder, and the tools for recordings.',
    ' Units of systemd are installed, and neither enabled nor started.',
    '',
  ].join('\n');
}

/** Builds the RPM package and returns its path. `scratch` is a temporary folder for the build. */
export function buildRpm(
  tree: string,
  { output, scratch }: { readonly output: string; readonly scratch: string },
  { architecture }: HostParts,
  project: Project,
): string {
  const { rpm } = ARCHITECTURES[architecture];
  const top = mkdtempSync(join(scratch, 'rpm-'));
  const [version = '', pre] = project.version.split('-', 2);
  writeFileSync(join(top, 'tailcast.spec'), specOf(project, tree, version, pre));
  const defines = {
    _topdir: top,
    _rpmdir: top,
    _buildhost: 'reproducible',
    use_source_date_epoch_as_buildtime: '1',
    clamp_mtime_to_source_date_epoch: '1',
    _build_id_links: 'none',
    __os_install_post: '%{nil}',
    _binary_payload: 'w9.zstdio',
  };
  run(
    'rpmbuild',
    [
      '-bb',
      `--target=${rpm}-linux`,
      ...Object.entries(defines).flatMap(([key, value]) => ['--define', `${key} ${value}`]),
      join(top, 'tailcast.spec'),
    ],
    { env: { SOURCE_DATE_EPOCH: String(project.epoch), HOME: top } },
  );
  const made = filesBelow(top).find((file) => file.endsWith('.rpm'));
  if (made === undefined) throw new Error('rpmbuild made no package');
  const file = join(output, `tailcast-${version}-${releaseOf(pre)}.${rpm}.rpm`);
  renameSync(join(top, made), file);
  rmSync(top, { recursive: true });
  return file;
}

function releaseOf(pre: string | undefined): string {
  return pre === undefined ? '1' : `0.${pre.replaceAll('-', '.')}`;
}

function specOf(project: Project, tree: string, version: string, pre: string | undefined): string {
  const files = filesBelow(tree).filter((file) => !file.startsWith('usr/lib/tailcast/'));
  return [
    'Name: tailcast',
    `Version: ${version}`,
    `Release: ${releaseOf(pre)}`,
    `Summary: ${project.manifest.description}`,
    `License: ${project.manifest.license}`,
    'AutoReqProv: no',
    'Requires: glibc >= 2.28, libgcc, libstdc++, libatomic',
    '%description',
    'One command for every role: gateway, recorder, and the tools for recordings.',
    'Units of systemd are installed, and neither enabled nor started.',
    '%install',
    `cp -a ${tree}/. %{buildroot}/`,
    '%post',
    read('rpm-post.sh').trim(),
    '%preun',
    read('rpm-preun.sh').trim(),
    '%postun',
    read('rpm-postun.sh').trim(),
    '%files',
    '%defattr(-,root,root,-)',
    LIBRARY,
    '%dir /etc/tailcast',
    ...files.map((file) => (file.startsWith('etc/') ? `%config(noreplace) /${file}` : `/${file}`)),
    '',
  ].join('\n');
}

function read(name: string): string {
  return readFileSync(join(HOST, name), 'utf8');
}

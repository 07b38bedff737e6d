/**
 * Builds the image as an OCI archive without a container engine. The layers are: Debian packages, Node, `/app`, and
 * the writable folders. The start configuration comes from the Dockerfile.
 */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Base } from './base-packages.ts';
import { imageSettings, readDockerfile } from './dockerfile.ts';
import type { Architecture, Project } from './project.ts';
import { run, sha256, tar } from './tree.ts';

/** Content of `/etc/passwd`: the users `root` and `nobody` of Debian, and the user of tailcast from the Dockerfile. */
const PASSWD =
  'root:x:0:0:root:/root:/usr/sbin/nologin\n' +
  'tailcast:x:65532:65532:tailcast:/var/lib/tailcast:/usr/sbin/nologin\n' +
  'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n';
const GROUP = 'root:x:0:\ntailcast:x:65532:\nnogroup:x:65534:\n';
const OWN = { uid: 65_532, gid: 65_532 };

const MEDIA = {
  index: 'application/vnd.oci.image.index.v1+json',
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar+gzip',
} as const;

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly platform?: { readonly os: 'linux'; readonly architecture: Architecture };
  readonly annotations?: Readonly<Record<string, string>>;
}

interface Layer {
  readonly descriptor: Descriptor;
  /** Digest of the uncompressed layer. */
  readonly diffId: string;
  readonly createdBy: string;
}

/** Content of an image for one architecture. */
export interface ImageParts {
  readonly base: Base;
  /** The folder `/app` that `stageApp` created. */
  readonly app: string;
  /** The `node` program. */
  readonly node: string;
  readonly nodeLicense: string;
}

/** Writes the archive `file` for all given architectures; `scratch` is a temporary folder. */
export function buildImage(
  project: Project,
  parts: ReadonlyMap<Architecture, ImageParts>,
  { file, scratch }: { readonly file: string; readonly scratch: string },
): void {
  const layout = mkdtempSync(join(scratch, 'oci-'));
  mkdirSync(join(layout, 'blobs', 'sha256'), { recursive: true });
  const manifests = [...parts].map(([architecture, part]) =>
    addManifest(layout, project, architecture, part, scratch),
  );
  const tag = `v${project.version}`;
  const index = addJson(layout, MEDIA.index, {
    schemaVersion: 2,
    mediaType: MEDIA.index,
    manifests,
    annotations: annotations(project),
  });
  const named = (descriptor: Descriptor, name: string): Descriptor => ({
    ...descriptor,
    annotations: { 'org.opencontainers.image.ref.name': name },
  });
  writeFileSync(join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  writeFileSync(
    join(layout, 'index.json'),
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MEDIA.index,
      manifests: [
        named(index, tag),
        // One tag for each architecture, for tools that support only one architecture per archive.
        ...manifests.map((each) => named(each, `${tag}-${each.platform?.architecture ?? ''}`)),
      ],
    }),
  );
  for (const name of ['oci-layout', 'index.json']) chmodSync(join(layout, name), 0o644);
  tar(layout, file, project.epoch, ['oci-layout', 'index.json', 'blobs']);
  rmSync(layout, { recursive: true });
}

function annotations(project: Project): Readonly<Record<string, string>> {
  return {
    'org.opencontainers.image.version': project.version,
    'org.opencontainers.image.created': created(project),
    ...(project.commit === '' ? {} : { 'org.opencontainers.image.revision': project.commit }),
  };
}

function created({ epoch }: Project): string {
  return new Date(epoch * 1000).toISOString().replace('.000Z', 'Z');
}

function addManifest(
  layout: string,
  project: Project,
  architecture: Architecture,
  part: ImageParts,
  scratch: string,
): Descriptor {
  const roots = mkdtempSync(join(scratch, 'layers-'));
  const folder = (name: string): string => {
    mkdirSync(join(roots, name), { recursive: true });
    return join(roots, name);
  };
  const layers = [
    addLayer(layout, layDebian(folder('debian'), part.base), project.epoch, 'Debian packages'),
    addLayer(layout, layNode(folder('node'), part), project.epoch, `Node ${part.base.node.version}`),
    addLayer(layout, layApp(folder('app'), part.app), project.epoch, `tailcast ${project.version}`),
    addLayer(layout, layState(folder('state')), project.epoch, 'folders for state', OWN),
  ];
  rmSync(roots, { recursive: true });
  const settings = imageSettings(readDockerfile());
  const config = addJson(layout, MEDIA.config, {
    created: created(project),
    architecture,
    os: 'linux',
    config: { ...settings, Labels: { ...settings.Labels, ...annotations(project) } },
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
    history: layers.map(({ createdBy }) => ({ created: created(project), created_by: createdBy })),
  });
  const manifest = addJson(layout, MEDIA.manifest, {
    schemaVersion: 2,
    mediaType: MEDIA.manifest,
    config,
    layers: layers.map(({ descriptor }) => descriptor),
    annotations: annotations(project),
  });
  return { ...manifest, platform: { os: 'linux', architecture } };
}

function layDebian(root: string, { debian }: Base): string {
  mkdirSync(join(root, 'usr'));
  // In Debian, `/bin` and `/lib` are links to folders in `/usr`. The links are created first, because packages of this
  // Debian release still contain files below the old paths.
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
    mkdirSync(join(root, 'usr', name));
    symlinkSync(`usr/${name}`, join(root, name));
  }
  const known = join(root, 'var', 'lib', 'dpkg', 'status.d');
  for (const { name, file } of debian) {
    run('sh', [
      '-c',
      'dpkg-deb --fsys-tarfile "$1" | tar --extract --keep-directory-symlink -C "$2"',
      'sh',
      file,
      root,
    ]);
    mkdirSync(known, { recursive: true });
    // Vulnerability scanners read this file in images without a package manager.
    const fields = run('dpkg-deb', ['--field', file]);
    writeFileSync(join(known, name), fields);
  }
  mkdirSync(join(root, 'etc'), { recursive: true });
  writeFileSync(join(root, 'etc', 'passwd'), PASSWD);
  writeFileSync(join(root, 'etc', 'group'), GROUP);
  writeFileSync(join(root, 'etc', 'nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: files dns\n');
  return root;
}

function layNode(root: string, { node, nodeLicense }: ImageParts): string {
  mkdirSync(join(root, 'usr', 'local', 'bin'), { recursive: true });
  mkdirSync(join(root, 'usr', 'local', 'share', 'doc', 'node'), { recursive: true });
  copyFileSync(node, join(root, 'usr', 'local', 'bin', 'node'));
  copyFileSync(nodeLicense, join(root, 'usr', 'local', 'share', 'doc', 'node', 'LICENSE'));
  return root;
}

function layApp(root: string, app: string): string {
  cpSync(app, join(root, 'app'), { recursive: true });
  return root;
}

/** Creates the layer with the writable folders. The layers below contain all other folders. */
function layState(root: string): string {
  mkdirSync(join(root, 'var', 'lib', 'tailcast'), { recursive: true });
  mkdirSync(join(root, 'data'));
  return root;
}

function addLayer(layout: string, root: string, epoch: number, createdBy: string, owner?: typeof OWN): Layer {
  const file = join(layout, 'layer.tar');
  const entries = owner === undefined ? ['.'] : ['./var/lib/tailcast', './data'];
  tar(root, file, epoch, entries, owner);
  const diffId = `sha256:${sha256(file)}`;
  run('gzip', ['-6', '--no-name', file]);
  return { descriptor: addBlob(layout, `${file}.gz`, MEDIA.layer), diffId, createdBy };
}

function addJson(layout: string, mediaType: string, value: object): Descriptor {
  const file = join(layout, 'blob.json');
  writeFileSync(file, JSON.stringify(value), { mode: 0o644 });
  return addBlob(layout, file, mediaType);
}

function addBlob(layout: string, file: string, mediaType: string): Descriptor {
  const digest = sha256(file);
  const { size } = statSync(file);
  renameSync(file, join(layout, 'blobs', 'sha256', digest));
  return { mediaType, digest: `sha256:${digest}`, size };
}

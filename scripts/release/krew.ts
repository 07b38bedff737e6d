/** Creates the plugin for kubectl: an archive with Node for each platform, and the manifest for krew. */
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { HostParts } from './host-package.ts';
import type { Project } from './project.ts';
import { normalise, sha256, tarGz } from './tree.ts';

const LAUNCHER = `#!/bin/sh
# krew links to this file: its other files are next to the link target.
here=$(dirname "$(readlink -f "$0")")
exec "$here/bin/node" "$here/app/scripts/kubectl-tailcast.mjs" "$@"
`;

export interface PluginArchive {
  readonly architecture: HostParts['architecture'];
  readonly file: string;
}

/** Packs the plugin for one platform. */
export function packPlugin(
  project: Project,
  parts: HostParts,
  output: string,
  scratch: string,
): PluginArchive {
  const folder = mkdtempSync(join(scratch, 'krew-'));
  mkdirSync(join(folder, 'bin'));
  cpSync(parts.app, join(folder, 'app'), { recursive: true });
  copyFileSync(parts.node, join(folder, 'bin', 'node'));
  copyFileSync(join(parts.app, 'LICENSE'), join(folder, 'LICENSE'));
  writeFileSync(join(folder, 'kubectl-tailcast'), LAUNCHER, { mode: 0o755 });
  normalise(folder, project.epoch);
  const made = tarGz(folder, join(scratch, `plugin-${parts.architecture}.tar`), project.epoch);
  const file = join(output, `kubectl-tailcast_v${project.version}_linux_${parts.architecture}.tar.gz`);
  renameSync(made, file);
  rmSync(folder, { recursive: true });
  return { architecture: parts.architecture, file };
}

/** Returns the manifest in the format of a krew index. */
export function krewManifest(project: Project, archives: readonly PluginArchive[]): string {
  return stringify({
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'tailcast' },
    spec: {
      version: `v${project.version}`,
      homepage: project.manifest.publishing.releases,
      shortDescription: 'Find and play recorded sessions, add gateways',
      description:
        'Lists, searches and plays the sessions that a tailcast gateway recorded, adds gateways of a tailnet to the\n' +
        'kubeconfig, and says what is wrong with a set-up. It asks the gateway of the current context.\n',
      platforms: archives.map(({ architecture, file }) => ({
        selector: { matchLabels: { os: 'linux', arch: architecture } },
        uri: `${project.base}/${file.slice(file.lastIndexOf('/') + 1)}`,
        sha256: sha256(file),
        bin: 'kubectl-tailcast',
      })),
    },
  });
}

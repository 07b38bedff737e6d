/** Writes the documents of a release: SBOM, provenance, changes and checksums. */
import { readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { z } from 'zod';
import type { Base } from './base-packages.ts';
import { type Architecture, type Project, ROOT } from './project.ts';
import { sha256 } from './tree.ts';

const SBOM = z.looseObject({ components: z.array(z.looseObject({})) });

/** Returns the SBOM (CycloneDX) of an image: the npm package, Node and the Debian packages. */
export function imageSbom(app: string, base: Base, architecture: Architecture): object {
  const own = SBOM.parse(JSON.parse(readFileSync(join(app, 'dist', 'sbom.cdx.json'), 'utf8')));
  const debian = base.debian.map(({ name, version }) => ({
    type: 'library',
    name,
    version,
    purl: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}`,
  }));
  const node = {
    type: 'application',
    name: 'node',
    version: base.node.version,
    purl: `pkg:generic/node@${base.node.version}`,
    licenses: [{ license: { id: 'MIT' } }],
  };
  return { ...own, components: [...own.components, node, ...debian] };
}

/** Returns an in-toto statement with SLSA provenance (v1): files, commit and pinned inputs. */
export function provenance(
  project: Project,
  files: readonly string[],
  bases: ReadonlyMap<Architecture, Base>,
): object {
  const inputs = [...bases].flatMap(([architecture, { debian, node }]) =>
    [...debian, node].map(({ name, version, file }) => ({
      name: `${name} ${version} ${architecture}`,
      digest: { sha256: sha256(file) },
    })),
  );
  return {
    _type: 'https://in-toto.io/Statement/v1',
    subject: files.map((file) => ({ name: basename(file), digest: { sha256: sha256(file) } })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: `${project.manifest.publishing.releases}/build-types/npm-run-release/v1`,
        externalParameters: { version: project.version },
        internalParameters: { sourceDateEpoch: project.epoch },
        resolvedDependencies: [
          { name: 'source', digest: { gitCommit: project.commit } },
          { name: 'package-lock.json', digest: { sha256: sha256(join(ROOT, 'package-lock.json')) } },
          ...inputs,
        ],
      },
      runDetails: { builder: { id: `${project.manifest.publishing.releases}/builders/npm-run-release` } },
    },
  };
}

/**
 * Returns the section of `CHANGELOG.md` about this version.
 *
 * @throws Error if the section is missing or empty
 */
export function changelogSection(version: string): string {
  const text = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8');
  const section = text
    .split(/^## /m)
    .slice(1)
    .find((each) => each.split(/\s/, 1)[0] === version);
  if (section === undefined) {
    throw new Error(`CHANGELOG.md has no section "## ${version}"; write down what changed for its users`);
  }
  return `## ${section.trim()}\n`;
}

/** Returns lines in the format of `sha256sum --check`. */
export function checksums(files: readonly string[]): string {
  return files.map((file) => `${sha256(file)}  ${basename(file)}\n`).join('');
}

/** Returns one line for each file, with its size. The release command prints these lines. */
export function overview(files: readonly string[]): string {
  return files
    .map((file) => `${(statSync(file).size / 1e6).toFixed(1).padStart(8)} MB  ${basename(file)}\n`)
    .join('');
}

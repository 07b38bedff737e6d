import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { ROOT } from '../real/chart/render.ts';

/** Matches an image with a digest, with or without a tag. */
const PINNED = /@sha256:[0-9a-f]{64}$/;
/** Images that users build or mirror themselves, so their digests are unknown here. */
const OWN = /^(?:images\.tailcast\.example\/tailcast:|\$\{TAILCAST_IMAGE:)/;

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

/** The third-party images that are not pinned by a digest. */
function unpinned(images: readonly string[]): readonly string[] {
  return images.filter((image) => !OWN.test(image) && !PINNED.test(image));
}

/** Base images of all stages of a Dockerfile, without stages that are based on another stage. */
function basesOf(dockerfile: string): readonly string[] {
  const stages = new Set<string>();
  const bases: string[] = [];
  for (const [, base = '', stage] of dockerfile.matchAll(/^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?/gim)) {
    if (!stages.has(base)) bases.push(base);
    if (stage !== undefined) stages.add(stage);
  }
  return bases;
}

/** All strings under a key `image`, at any depth. */
function imagesOf(value: unknown): readonly string[] {
  if (Array.isArray(value)) return value.flatMap(imagesOf);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === 'image' && typeof inner === 'string' ? [inner] : imagesOf(inner),
  );
}

describe('images', () => {
  it('are told from those that are not pinned', () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    expect(basesOf(`FROM a:1 AS x\nFROM --platform=y b@${digest}\nFROM x\nCOPY --from=x . .\n`)).toEqual([
      'a:1',
      `b@${digest}`,
    ]);
    const images = imagesOf({ a: [{ image: 'a:1' }, { image: { tag: 'x' } }], image: `b:2@${digest}` });
    expect(unpinned([...images, `c@${digest.slice(0, -1)}`])).toEqual(['a:1', `c@${digest.slice(0, -1)}`]);
  });

  it('of the Dockerfile are pinned by digest', () => {
    const bases = basesOf(read('Dockerfile'));
    expect(bases).toHaveLength(2);
    expect(unpinned(bases)).toEqual([]);
    expect(new Set(bases).size).toBe(1);
  });

  it('that others make are pinned wherever we name them', () => {
    const files = globSync('deploy/{compose,kustomize}/**/*.yaml', { cwd: ROOT });
    const named = files.flatMap((file) =>
      parseAllDocuments(read(file)).flatMap((document) => imagesOf(document.toJS())),
    );
    expect(named.length).toBeGreaterThan(8);
    expect(unpinned(named)).toEqual([]);
  });

  it('of the tailscale container are the same everywhere', () => {
    const values = parse(read('deploy/chart/tailcast/values.yaml')) as { tailscale: { image: string } };
    const { image } = values.tailscale;
    expect(unpinned([image])).toEqual([]);
    expect(OPERATOR_SETTINGS.tailscaleImage.fallback).toBe(image);
    const compose = read('deploy/compose/compose.yaml');
    expect(compose).toContain(`image: ${image}\n`);
  });
});

it('CRDs contain no key that an unquoted comma created', () => {
  const keys: string[] = [];
  for (const file of globSync('deploy/{crds,access}/*.yaml', { cwd: ROOT }))
    for (const document of parseAllDocuments(read(file)))
      JSON.stringify(document, (key, value: unknown) => (keys.push(key), value));
  expect(keys.filter((key) => key.includes(' '))).toEqual([]);
});

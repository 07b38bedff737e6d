/** The Recorder resource that we install beside the one in the reference's module, field by field. Words may differ. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { ensurePeer } from '../rig/build.ts';

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

let theirs: ReadonlyMap<string, string>;
let ours: ReadonlyMap<string, string>;

beforeAll(async () => {
  // Its build has brought the module here.
  await ensurePeer('reference');
  const list = ['list', '-mod=readonly', '-m', '-f', '{{.Dir}}', 'tailscale.com'];
  const { stdout, stderr } = spawnSync('go', list, { cwd: path('../peers/reference'), encoding: 'utf8' });
  const folder = stdout.trim();
  if (folder === '') throw new Error(`the module is not here: ${stderr}`);
  theirs = fieldsOf(join(folder, 'cmd/k8s-operator/deploy/crds/tailscale.com_recorders.yaml'));
  ours = fieldsOf(path('../../../deploy/crds/recorder.yaml'));
});

/** Every leaf of a manifest by its path, without descriptions and without what names the generator. */
function fieldsOf(file: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  const visit = (value: unknown, at: string): void => {
    if (value === null || typeof value !== 'object') {
      fields.set(at, JSON.stringify(value));
      return;
    }
    // The order of what is required means nothing.
    if (Array.isArray(value) && at.endsWith('/required')) {
      fields.set(at, JSON.stringify(value.map(String).toSorted((a, b) => a.localeCompare(b))));
      return;
    }
    const members = Object.entries(value);
    if (members.length === 0) fields.set(at, '{}');
    for (const [name, member] of members) {
      const isProse = name === 'description' && typeof member === 'string';
      if (!isProse && name !== 'controller-gen.kubebuilder.io/version') visit(member, `${at}/${name}`);
    }
  };
  visit(parse(readFileSync(file, 'utf8')), '');
  return fields;
}

describe('the schema of Recorder', () => {
  it('has the fields of the reference, with the same types, limits, defaults and rules', () => {
    const missing = [...theirs].filter(([field, value]) => ours.get(field) !== value);
    const added = [...ours].filter(([field]) => !theirs.has(field));
    expect({ missing, added }).toEqual({ missing: [], added: [] });
    expect(theirs.size).toBeGreaterThan(400);
    expect(theirs.get('/spec/names/kind')).toBe('"Recorder"');
  });
});

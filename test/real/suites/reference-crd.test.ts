/** Compares tailcast's CRDs with those in the reference's module, field by field. Words may differ. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { contextOf, objectFindings } from '../../../src/doctor/migration/objects.ts';
import { parseObject } from '../../../src/operator/kube-object.ts';
import { jsonOrUndefined } from '../../../src/wire/json-value.ts';
import { ensurePeer } from '../rig/build.ts';

const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

let folder: string;

beforeAll(async () => {
  await ensurePeer('reference');
  // A new build downloads the module, but a cached build does not, so this user's module cache may lack the module.
  const { stdout, stderr, error } = spawnSync('go', ['mod', 'download', '-json', 'tailscale.com'], {
    cwd: path('../peers/reference'),
    encoding: 'utf8',
  });
  if (error !== undefined) throw error;
  const { data } = z.object({ Dir: z.string() }).safeParse(jsonOrUndefined(stdout));
  if (data === undefined) throw new Error(`the module is not here: ${stdout}${stderr}`);
  folder = data.Dir;
});

/** Returns every leaf of a manifest by its path, without descriptions and without the name of the generator. */
function fieldsOf(file: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  const visit = (value: unknown, at: string): void => {
    if (value === null || typeof value !== 'object') {
      fields.set(at, JSON.stringify(value));
      return;
    }
    // The order of `required` has no meaning.
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

/** Fields that the reference's main branch has, but not its latest release. */
const PULL_SECRETS =
  '/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nameserver/properties/pod/properties/imagePullSecrets';
const NEWER: Readonly<Record<string, ReadonlyMap<string, string>>> = {
  DNSConfig: new Map([
    [`${PULL_SECRETS}/type`, '"array"'],
    [`${PULL_SECRETS}/items/type`, '"object"'],
    [`${PULL_SECRETS}/items/x-kubernetes-map-type`, '"atomic"'],
    [`${PULL_SECRETS}/items/properties/name/type`, '"string"'],
    [`${PULL_SECRETS}/items/properties/name/default`, '""'],
  ]),
};

describe('the schema', () => {
  it.each([
    ['Recorder', 'recorder', 'recorders', 400],
    ['Connector', 'connector', 'connectors', 60],
    ['DNSConfig', 'dnsconfig', 'dnsconfigs', 100],
    ['ProxyClass', 'proxyclass', 'proxyclasses', 500],
    ['ProxyGroup', 'proxygroup', 'proxygroups', 80],
    ['ProxyGroupPolicy', 'proxygrouppolicy', 'proxygrouppolicies', 40],
    ['Tailnet', 'tailnet', 'tailnets', 40],
  ])(
    'of %s has the fields of the reference, with the same types, limits, defaults and rules',
    (kind, our, their, least) => {
      const released = fieldsOf(join(folder, `cmd/k8s-operator/deploy/crds/tailscale.com_${their}.yaml`));
      const theirs = new Map([...released, ...(NEWER[kind] ?? [])]);
      const ours = fieldsOf(path(`../../../deploy/crds/${our}.yaml`));
      const missing = [...theirs].filter(([field, value]) => ours.get(field) !== value);
      const added = [...ours].filter(([field]) => !theirs.has(field));
      expect({ missing, added }).toEqual({ missing: [], added: [] });
      expect(released.size).toBeGreaterThan(least);
      expect(theirs.get('/spec/names/kind')).toBe(JSON.stringify(kind));
    },
  );
});

/** The part of a CRD schema that determines a sample value. */
interface Schema {
  readonly type?: string | undefined;
  readonly enum?: readonly unknown[] | undefined;
  readonly properties?: Readonly<Record<string, Schema>> | undefined;
  readonly items?: Schema | undefined;
}
const schema: z.ZodType<Schema> = z.object({
  type: z.string().optional(),
  enum: z.array(z.unknown()).optional(),
  properties: z.lazy(() => z.record(z.string(), schema)).optional(),
  items: z.lazy(() => schema).optional(),
});
const definition = z.object({
  spec: z.object({
    names: z.object({ kind: z.string() }),
    versions: z.tuple([
      z.object({
        schema: z.object({ openAPIV3Schema: z.object({ properties: z.object({ spec: schema }) }) }),
      }),
    ]),
  }),
});

/** Returns a value with every field of a schema. */
function sampleOf({ type, enum: values, properties, items }: Schema): unknown {
  if (values !== undefined) return values[0];
  if (properties !== undefined)
    return Object.fromEntries(Object.entries(properties).map(([name, member]) => [name, sampleOf(member)]));
  if (items !== undefined) return [sampleOf(items)];
  return type === 'boolean' ? true : type === 'integer' ? 1 : 'text';
}

describe('migrate check', () => {
  it('knows each field of each kind of the reference', () => {
    const crds = join(folder, 'cmd/k8s-operator/deploy/crds');
    const unknown: string[] = [];
    const files = readdirSync(crds).filter((file) => file.endsWith('.yaml'));
    for (const file of files) {
      const { spec } = definition.parse(parse(readFileSync(join(crds, file), 'utf8')));
      const { kind } = spec.names;
      const object = parseObject({
        apiVersion: 'tailscale.com/v1alpha1',
        kind,
        metadata: { name: 'sample' },
        spec: sampleOf(spec.versions[0].schema.openAPIV3Schema.properties.spec),
      });
      const { findings } = objectFindings(object, contextOf([object], [])) ?? { findings: [] };
      for (const finding of findings)
        if (finding.kind === 'unknown') unknown.push(`${kind} ${finding.field}`);
    }
    expect(unknown).toEqual([]);
    expect(files.length).toBeGreaterThan(5);
  });
});

/** Checks the custom resources on pages against the schemas of `deploy/crds` and against the operator's own checks. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { readSettings } from '../../src/config/settings.ts';
import { parseProxyGroup, settingsOf } from '../../src/operator/proxy-group/resource.ts';
import { parseRecorder } from '../../src/operator/recorder/recorder.ts';
import { statefulSet } from '../../src/operator/recorder/stateful-set-specs.ts';
import { parseKubernetesRules } from '../../src/tailnet/capabilities.ts';
import { OPTIONS } from '../operator/recorder/recorders.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (path: string): string => readFileSync(root + path, 'utf8');

interface Schema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema;
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
}

/** Schemas of `spec`, by kind. */
const SCHEMAS = new Map(
  readdirSync(`${root}deploy/crds`)
    .map((name) => parse(read(`deploy/crds/${name}`)) as Crd)
    .flatMap(({ kind, spec }) =>
      kind === 'CustomResourceDefinition'
        ? [[spec.names.kind, spec.versions[0].schema.openAPIV3Schema.properties?.['spec']] as const]
        : [],
    ),
);

interface Crd {
  readonly kind: string;
  readonly spec: {
    readonly names: { readonly kind: string };
    readonly versions: readonly [{ readonly schema: { readonly openAPIV3Schema: Schema } }];
  };
}

interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly spec: unknown;
}

const RESOURCES = readdirSync(`${root}docs`)
  .filter((name) => name.endsWith('.md'))
  .flatMap((name) =>
    [...read(`docs/${name}`).matchAll(/^ *```yaml\n([^]*?)^ *```/gm)]
      .flatMap(([, text = '']) => parseAllDocuments(text).map((document) => document.toJS() as Resource))
      .filter((object) => object?.apiVersion === 'tailscale.com/v1alpha1')
      .map((object) => [`${name}: ${object.kind} ${String(object.metadata['name'])}`, object] as const),
  );

/** Problems of a value; unknown fields are problems. */
function problems(value: unknown, schema: Schema | undefined, path: string): readonly string[] {
  if (schema === undefined) return [`${path}: unknown field`];
  const type = Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
  if (schema.type !== undefined && schema.type !== type)
    return [`${path}: ${type} instead of ${schema.type}`];
  if (schema.enum?.includes(value) === false) return [`${path}: not one of ${schema.enum.join()}`];
  if (typeof value === 'string' && !new RegExp(schema.pattern ?? '').test(value)) return [`${path}: pattern`];
  if (Array.isArray(value))
    return value.flatMap((item, index) => problems(item, schema.items, `${path}[${index}]`));
  if (typeof value !== 'object' || value === null) return [];
  const missing = (schema.required ?? []).filter((key) => !Object.hasOwn(value, key));
  return [
    ...missing.map((key) => `${path}.${key}: missing`),
    ...Object.entries(value).flatMap(([key, one]) =>
      problems(one, schema.properties?.[key] ?? schema.additionalProperties, `${path}.${key}`),
    ),
  ];
}

const withUid = (object: Resource): object => ({ ...object, metadata: { ...object.metadata, uid: 'u' } });

describe('the custom resources on pages', () => {
  it('include recorders, gateways and proxies', () => {
    const kinds = RESOURCES.map(([, { kind }]) => kind);
    expect(kinds).toEqual(expect.arrayContaining(['Recorder', 'ProxyGroup', 'Connector', 'ProxyClass']));
  });

  it.each(RESOURCES)('match the schema: %s', (_name, { kind, spec }) => {
    expect(problems(spec, SCHEMAS.get(kind), 'spec')).toEqual([]);
  });

  it('with unknown fields or values do not match', () => {
    const schema = SCHEMAS.get('ProxyGroup');
    expect(problems({ type: 'router', replica: 2, tags: ['web'] }, schema, 'spec')).toHaveLength(3);
  });

  it.each(RESOURCES.filter(([, { kind }]) => kind === 'Recorder'))('are deployed: %s', (_name, object) => {
    const recorder = parseRecorder(withUid(object), OPTIONS);
    expect(recorder.problem).toBeUndefined();
    const env = statefulSet(recorder, OPTIONS).spec.template.spec?.containers[0]?.env ?? [];
    const environment = new Map(env.map(({ name, value }) => [name, value ?? 'x']));
    readSettings(RECORDER_SETTINGS, { flags: new Map(), environment, file: undefined });
  });

  it.each(RESOURCES.filter(([, { kind }]) => kind === 'ProxyGroup'))('are deployed: %s', (_name, object) => {
    const { settings, problem } = settingsOf(parseProxyGroup(withUid(object)));
    expect(problem).toBeUndefined();
    readSettings(GATEWAY_SETTINGS, { flags: new Map(), environment: settings, file: undefined });
  });
});

describe('docs/operator.md', () => {
  it('has a tailnet policy for the gateways of its ProxyGroup', () => {
    const [, text = ''] = /^```json\n([^]*?)^```/m.exec(read('docs/operator.md')) ?? [];
    const { autoApprovers, grants } = JSON.parse(`{${text}}`) as {
      autoApprovers: { services: Record<string, string[]> };
      grants: { dst: string[]; app?: Record<string, unknown[]> }[];
    };
    const [, group] = RESOURCES.find(([name]) => name === 'operator.md: ProxyGroup prod') ?? [];
    const { tags, kubeAPIServer } = parseProxyGroup(withUid(group as Resource)).spec;
    const service = `svc:${kubeAPIServer.hostname}`;
    expect(autoApprovers.services).toEqual({ [service]: tags });
    expect(grants.map(({ dst }) => dst)).toContainEqual([service]);
    const rules = grants.filter(({ app }) => app !== undefined);
    expect(rules.map(({ dst }) => dst)).toEqual([tags]);
    expect(parseKubernetesRules(new Map(Object.entries(rules[0]?.app ?? {}))).recording).toHaveLength(1);
  });
});

/** Kubernetes' core types as structural schemas for a CRD, from the OpenAPI v3 document of an API server. */
export type Schema = { [key: string]: unknown };
export type OpenApiSchemas = Readonly<Record<string, Schema>>;

const QUANTITY = 'io.k8s.apimachinery.pkg.api.resource.Quantity';
const INT_OR_STRING = 'io.k8s.apimachinery.pkg.util.intstr.IntOrString';

/** Keywords of structural schemas. Descriptions of core types would be two thirds of the file. */
const KEPT = new Set([
  'type',
  'format',
  'required',
  'minimum',
  'maximum',
  'x-kubernetes-list-type',
  'x-kubernetes-list-map-keys',
  'x-kubernetes-map-type',
]);

/**
 * Resolves a type with everything it refers to.
 *
 * Defaults of core types stay out: the API server sets them on the pods, and a default here would show up in the stored
 * Recorder. The keys of a map list are required, because a structural schema wants that.
 */
export function coreSchema(openApi: OpenApiSchemas, name: string): Schema {
  if (name === QUANTITY) {
    return {
      anyOf: [{ type: 'integer' }, { type: 'string' }],
      pattern:
        '^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$',
      'x-kubernetes-int-or-string': true,
    };
  }
  if (name === INT_OR_STRING) {
    return { anyOf: [{ type: 'integer' }, { type: 'string' }], 'x-kubernetes-int-or-string': true };
  }
  const schema = openApi[name];
  if (schema === undefined) throw new Error(`no schema for ${name}`);
  return structural(openApi, schema);
}

function structural(openApi: OpenApiSchemas, schema: Schema): Schema {
  const reference = schema['$ref'] ?? (schema['allOf'] as Schema[] | undefined)?.[0]?.['$ref'];
  if (typeof reference === 'string')
    return coreSchema(openApi, reference.replace('#/components/schemas/', ''));
  const result: Schema = Object.fromEntries(Object.entries(schema).filter(([key]) => KEPT.has(key)));
  const properties = schema['properties'] as Record<string, Schema> | undefined;
  if (properties !== undefined) {
    result['properties'] = Object.fromEntries(
      Object.entries(properties).map(([key, value]) => [key, structural(openApi, value)]),
    );
  }
  for (const key of ['items', 'additionalProperties']) {
    const inner = schema[key];
    if (typeof inner === 'object' && inner !== null) result[key] = structural(openApi, inner as Schema);
  }
  const mapKeys = schema['x-kubernetes-list-map-keys'];
  const items = result['items'] as Schema | undefined;
  if (Array.isArray(mapKeys) && items !== undefined) {
    items['required'] = [...new Set([...((items['required'] as string[] | undefined) ?? []), ...mapKeys])];
  }
  return result;
}

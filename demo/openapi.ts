import { createHash } from 'node:crypto';
import type { ApiObject } from './json.ts';
import { isStored, RESOURCES, type Resource } from './resources.ts';

/**
 * Index of the OpenAPI v3 documents, one per group and version. If kubectl finds PATCH operations with the
 * `fieldValidation` parameter in these documents, it leaves validation to the server. The documents contain no schemas,
 * so `kubectl explain` shows nothing.
 */
export function openApiV3Index(): ApiObject {
  const documents = [...new Set(RESOURCES.map(documentPath))];
  return {
    paths: Object.fromEntries(
      documents.map((path) => {
        const hash = createHash('sha256')
          .update(JSON.stringify(openApiV3(path)))
          .digest('hex')
          .toUpperCase();
        return [path, { serverRelativeURL: `/openapi/v3/${path}?hash=${hash}` }];
      }),
    ),
  };
}

/** Returns the document of `api/v1` or `apis/{group}/{version}`; undefined if it is not supported. */
export function openApiV3(path: string): ApiObject | undefined {
  const resources = RESOURCES.filter((resource) => documentPath(resource) === path);
  if (resources.length === 0) return undefined;
  return {
    openapi: '3.0.0',
    info: { title: 'tailcast demo cluster', version: 'v1' },
    paths: Object.fromEntries(resources.flatMap((resource) => describePaths(resource, path))),
    components: { schemas: {} },
  };
}

/**
 * The OpenAPI v2 document without definitions, encoded as protobuf of `gnostic` (openapi_v2.Document). kubectl
 * requests it if the v3 documents are not sufficient.
 */
export function openApiV2Protobuf(): Uint8Array {
  const text = (field: number, value: string): Buffer => tagged(field, Buffer.from(value));
  const info = Buffer.concat([text(1, 'tailcast demo cluster'), text(2, 'v1')]);
  return Buffer.concat([text(1, '2.0'), tagged(2, info), tagged(8, Buffer.alloc(0))]);
}

const LENGTH_DELIMITED = 2;

/** Encodes a length-delimited field of at most 127 bytes. Source: protobuf encoding, wire type 2. */
function tagged(field: number, value: Buffer): Buffer {
  return Buffer.concat([Uint8Array.of((field << 3) | LENGTH_DELIMITED, value.byteLength), value]);
}

function documentPath({ group, version }: Resource): string {
  return group === '' ? `api/${version}` : `apis/${group}/${version}`;
}

function gvk({ group, version, kind }: Resource): ApiObject {
  return { group, version, kind };
}

type PathItem = readonly [string, ApiObject];

function describePaths(resource: Resource, document: string): readonly PathItem[] {
  const scope = resource.namespaced ? '/namespaces/{namespace}' : '';
  const collection = `/${document}${scope}/${resource.plural}`;
  const schema = { type: 'object' };
  const body = (types: readonly string[]): ApiObject => ({
    content: Object.fromEntries(types.map((type) => [type, { schema }])),
  });
  const operation = (action: string, extra: ApiObject = {}): ApiObject => ({
    operationId: `${action}${resource.kind}`,
    'x-kubernetes-action': action,
    'x-kubernetes-group-version-kind': gvk(resource),
    responses: { '200': { description: 'OK', ...body(['application/json']) } },
    ...extra,
  });
  const writing = { parameters: ['dryRun', 'fieldManager', 'fieldValidation'].map(queryParameter) };
  const create = operation('post', { ...writing, requestBody: body(['*/*']) });
  if (!isStored(resource)) return [[collection, { post: create }]];
  const patchTypes = ['application/merge-patch+json', 'application/apply-patch+yaml'];
  return [
    [collection, { get: operation('list'), post: create, delete: operation('deletecollection') }],
    [
      `${collection}/{name}`,
      {
        get: operation('get'),
        put: operation('put', { ...writing, requestBody: body(['*/*']) }),
        patch: operation('patch', { ...writing, requestBody: body(patchTypes) }),
        delete: operation('delete'),
      },
    ],
  ];
}

function queryParameter(name: string): ApiObject {
  return { name, in: 'query', schema: { type: 'string', uniqueItems: true } };
}

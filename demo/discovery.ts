import type { ApiObject } from './json.ts';
import { apiVersionOf, RESOURCES, type Resource, type Subresource } from './resources.ts';

/**
 * Versions of aggregated discovery, newest first. kubectl 1.30 and later requests `v2`, kubectl 1.26 to 1.29 `v2beta1`.
 */
const AGGREGATED_VERSIONS = ['v2', 'v2beta1'] as const;

/** A discovery document, and the content type that was negotiated for it. */
export interface DiscoveryDocument {
  readonly contentType: string;
  readonly body: ApiObject;
}

/**
 * Returns the document for GET /api (`legacy`) or GET /apis. Returns an aggregated document if `accept` requests one.
 * Source: apiserver `pkg/endpoints/discovery/aggregated`.
 */
export function discoverRoot(root: 'legacy' | 'groups', accept: string, address: string): DiscoveryDocument {
  const version = AGGREGATED_VERSIONS.find((candidate) =>
    new RegExp(`g=apidiscovery\\.k8s\\.io;v=${candidate}(;|,|$)`).test(accept.replaceAll(' ', '')),
  );
  if (version !== undefined) {
    return {
      contentType: `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`,
      body: aggregated(root, version),
    };
  }
  return { contentType: 'application/json', body: root === 'legacy' ? legacyRoot(address) : groupList() };
}

/** Returns the document for GET /apis/{group}; undefined for an unsupported group. */
export function discoverGroup(group: string): ApiObject | undefined {
  const found = groups().find((candidate) => candidate.name === group);
  return found === undefined ? undefined : { kind: 'APIGroup', apiVersion: 'v1', ...describeGroup(found) };
}

/** Returns the document for GET /api/v1 or /apis/{group}/{version}; undefined for an unsupported version. */
export function discoverVersion(group: string, version: string): ApiObject | undefined {
  const served = RESOURCES.filter((resource) => resource.group === group && resource.version === version);
  if (served.length === 0) return undefined;
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: apiVersionOf({ group, version }),
    resources: served.flatMap((resource) => [
      describeResource(resource),
      ...resource.subresources.map((sub) => describeSubresource(resource, sub)),
    ]),
  };
}

interface Group {
  readonly name: string;
  readonly versions: readonly string[];
}

function groups(): readonly Group[] {
  const named = new Map<string, Set<string>>();
  for (const { group, version } of RESOURCES) {
    if (group === '') continue;
    named.set(group, (named.get(group) ?? new Set()).add(version));
  }
  return [...named].map(([name, versions]) => ({ name, versions: [...versions] }));
}

function legacyRoot(address: string): ApiObject {
  return {
    kind: 'APIVersions',
    versions: ['v1'],
    serverAddressByClientCIDRs: [{ clientCIDR: '0.0.0.0/0', serverAddress: address }],
  };
}

function groupList(): ApiObject {
  return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups().map(describeGroup) };
}

function describeGroup({ name, versions }: Group): ApiObject {
  const described = versions.map((version) => ({ groupVersion: `${name}/${version}`, version }));
  return { name, versions: described, preferredVersion: described[0] };
}

function describeResource(resource: Resource): ApiObject {
  return {
    name: resource.plural,
    singularName: resource.singular,
    namespaced: resource.namespaced,
    kind: resource.kind,
    verbs: resource.verbs,
    ...(resource.shortNames.length === 0 ? {} : { shortNames: resource.shortNames }),
    ...(resource.categories.length === 0 ? {} : { categories: resource.categories }),
  };
}

function describeSubresource(resource: Resource, sub: Subresource): ApiObject {
  return {
    name: `${resource.plural}/${sub.name}`,
    singularName: '',
    namespaced: resource.namespaced,
    kind: sub.kind,
    ...(sub.group === undefined ? {} : { group: sub.group }),
    ...(sub.version === undefined ? {} : { version: sub.version }),
    verbs: sub.verbs,
  };
}

function aggregated(root: 'legacy' | 'groups', version: string): ApiObject {
  const served = root === 'legacy' ? [{ name: '', versions: ['v1'] }] : groups();
  return {
    kind: 'APIGroupDiscoveryList',
    apiVersion: `apidiscovery.k8s.io/${version}`,
    metadata: {},
    items: served.map((group) => ({
      metadata:
        group.name === '' ? { creationTimestamp: null } : { name: group.name, creationTimestamp: null },
      versions: group.versions.map((groupVersion) => ({
        version: groupVersion,
        freshness: 'Current',
        resources: RESOURCES.filter(
          (resource) => resource.group === group.name && resource.version === groupVersion,
        ).map(describeAggregated),
      })),
    })),
  };
}

function describeAggregated(resource: Resource): ApiObject {
  return {
    resource: resource.plural,
    responseKind: { group: resource.group, version: resource.version, kind: resource.kind },
    scope: resource.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: resource.singular,
    verbs: resource.verbs,
    ...(resource.shortNames.length === 0 ? {} : { shortNames: resource.shortNames }),
    ...(resource.categories.length === 0 ? {} : { categories: resource.categories }),
    ...(resource.subresources.length === 0
      ? {}
      : {
          subresources: resource.subresources.map((sub) => ({
            subresource: sub.name,
            responseKind: {
              group: sub.group ?? resource.group,
              version: sub.version ?? resource.version,
              kind: sub.kind,
            },
            verbs: sub.verbs,
          })),
        }),
  };
}

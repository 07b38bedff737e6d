/** Gateways, routes and Services for tests. */
import type { KubeObject } from '../../../src/operator/kube-object.ts';
import {
  parseGateway,
  parseHttpRoute,
  type Gateway,
  type HttpRoute,
} from '../../../src/operator/gateway/resource.ts';

export const API_VERSION = 'gateway.networking.k8s.io/v1';

export const HTTP = { name: 'http', protocol: 'HTTP', port: 80 };
export const HTTPS = { name: 'https', protocol: 'HTTPS', port: 443 };

export function gatewayObject(listeners: readonly object[], spec: object = {}): object {
  return {
    apiVersion: API_VERSION,
    kind: 'Gateway',
    metadata: {
      name: 'edge',
      namespace: 'prod',
      uid: 'gateway',
      creationTimestamp: '2026-01-01T00:00:00Z',
      annotations: { 'tailscale.com/hostname': 'edge' },
    },
    spec: { gatewayClassName: 'tailscale', listeners, ...spec },
  };
}

export const gatewayWith = (...listeners: readonly object[]): Gateway =>
  parseGateway(gatewayObject(listeners));

export function routeObject(spec: object, metadata: object = {}): object {
  return {
    apiVersion: API_VERSION,
    kind: 'HTTPRoute',
    metadata: {
      name: 'route',
      namespace: 'prod',
      uid: 'route',
      creationTimestamp: '2026-01-01T00:00:00Z',
      ...metadata,
    },
    spec: { parentRefs: [{ name: 'edge' }], ...spec },
  };
}

export const routeWith = (spec: object, metadata: object = {}): HttpRoute =>
  parseHttpRoute(routeObject(spec, metadata));

/** Returns a rule of a route. The rule has at most one path. */
export function rule(value: string | undefined, name = 'web', type = 'PathPrefix', port = 80): object {
  const matches = value === undefined ? {} : { matches: [{ path: { type, value } }] };
  return { ...matches, backendRefs: [{ name, port }] };
}

/** Returns Services by name, each with its own address. */
export function servicesNamed(...names: readonly string[]): ReadonlyMap<string, KubeObject> {
  return new Map(
    names.map((name, index) => [
      name,
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, namespace: 'prod', uid: name },
        spec: { clusterIP: `10.96.0.${index + 1}`, ports: [{ port: 80 }] },
      },
    ]),
  );
}

/** Services as users write them. */
export const PATH = '/api/v1/namespaces/prod/services/web';

export function service(
  spec: object = {},
  annotations: Readonly<Record<string, string>> = {},
  metadata: object = {},
): object {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'prod', uid: 'service-uid', annotations, ...metadata },
    spec: { type: 'ClusterIP', clusterIP: '10.96.0.10', selector: { app: 'web' }, ...spec },
  };
}

export const EXPOSED = { 'tailscale.com/expose': 'true' };

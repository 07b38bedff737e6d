/** Recorders and options for the tests of the pure functions. */
import { parseRecorder, type DesiredRecorder } from '../../../src/operator/recorder/recorder.ts';
import type { NodeGroup, SpecOptions } from '../../../src/operator/workload/workload.ts';

export const OPTIONS: SpecOptions = {
  namespace: 'tailcast',
  loginServer: 'https://control.example.com',
  defaultTags: ['tag:k8s'],
  allowedTags: [{ namespace: 'prod', tag: 'tag:web' }],
  recorderUploaders: [],
  recorderImage: 'tailcast/tailcast:v1',
  tailscaleImage: 'tailscale/tailscale:v1',
  tailnetDomain: 'example.ts.net',
  defaultClass: '',
  clusterDomain: 'cluster.local',
  servesUnclassed: false,
  reconciled: {
    proxyGroups: true,
    services: true,
    ingresses: true,
    gateways: true,
    connectors: true,
    dnsConfigs: true,
  },
  networks: [],
  hasTailnetServices: true,
};

export const S3 = { s3: { endpoint: 's3.us-east-1.amazonaws.com', bucket: 'recordings' } };

export function recorderObject(spec: object = {}, metadata: object = {}) {
  return {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'Recorder',
    metadata: { name: 'test', uid: 'uid-1', generation: 1, ...metadata },
    spec,
  };
}

export function recorder(spec: object = {}, metadata: object = {}): DesiredRecorder {
  return parseRecorder(recorderObject(spec, metadata), OPTIONS);
}

export function group(spec: object = {}): NodeGroup {
  return recorder(spec).group;
}

/**
 * Resources as users of Tailscale's operator (the reference) write them, and the StatefulSets that tailcast's operator
 * creates for these resources.
 *
 *   node test/operator/goldens.ts      writes test/operator/goldens/ again
 *
 * Check the diff before you commit the files.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { DesiredStatefulSet } from '../../src/operator/workload/pod-specs.ts';
import { parseProxyGroup } from '../../src/operator/proxy-group/resource.ts';
import { gatewayStatefulSet } from '../../src/operator/proxy-group/stateful-set-specs.ts';
import { parseRecorder } from '../../src/operator/recorder/recorder.ts';
import { statefulSet } from '../../src/operator/recorder/stateful-set-specs.ts';
import { OPTIONS } from './recorder/recorders.ts';

/** Every field of the reference's schema, in one Recorder. */
export const RECORDER = {
  apiVersion: 'tailscale.com/v1alpha1',
  kind: 'Recorder',
  metadata: { name: 'recorder' },
  spec: {
    enableUI: true,
    replicas: 2,
    tags: ['tag:tsrecorder'],
    storage: {
      s3: {
        endpoint: 's3.us-east-1.amazonaws.com',
        bucket: 'recordings',
        credentials: { secret: { name: 's3-credentials' } },
      },
    },
    statefulSet: {
      labels: { team: 'audit' },
      annotations: { 'example.com/owner': 'audit' },
      pod: {
        labels: { team: 'audit' },
        annotations: { 'example.com/owner': 'audit' },
        affinity: {
          podAntiAffinity: {
            requiredDuringSchedulingIgnoredDuringExecution: [
              { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: { team: 'audit' } } },
            ],
          },
        },
        securityContext: { runAsUser: 1000, fsGroup: 1000 },
        imagePullSecrets: [{ name: 'registry' }],
        nodeSelector: { 'kubernetes.io/os': 'linux' },
        tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'audit', effect: 'NoSchedule' }],
        serviceAccount: {
          name: 'recordings-writer',
          annotations: { 'eks.amazonaws.com/role-arn': 'arn:aws:iam::123456789012:role/recordings' },
        },
        container: {
          image: 'tailscale/tsrecorder:v1.90.0',
          imagePullPolicy: 'IfNotPresent',
          env: [
            { name: 'AWS_REGION', value: 'us-east-1' },
            { name: 'TSRECORDER_DST', value: 's3://s3.eu-central-1.amazonaws.com' },
          ],
          resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { memory: '512Mi' } },
          securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
        },
      },
    },
  },
};

/** A ProxyGroup of gateways, as in the reference's documentation. */
export const PROXY_GROUP = {
  apiVersion: 'tailscale.com/v1alpha1',
  kind: 'ProxyGroup',
  metadata: { name: 'prod' },
  spec: {
    type: 'kube-apiserver',
    replicas: 2,
    tags: ['tag:k8s-gateway'],
    kubeAPIServer: { mode: 'auth', hostname: 'cluster' },
  },
};

/** Returns the StatefulSets that the operator creates for both resources, which have a fixed uid. */
export function goldens(): Readonly<Record<'recorder' | 'proxy-group', DesiredStatefulSet>> {
  const named = <T extends { metadata: { name: string } }>(object: T) => ({
    ...object,
    metadata: { ...object.metadata, uid: 'uid-1' },
  });
  return {
    recorder: statefulSet(parseRecorder(named(RECORDER), OPTIONS), OPTIONS),
    'proxy-group': gatewayStatefulSet(
      parseProxyGroup(named(PROXY_GROUP)),
      { service: 'svc:cluster', issuesCertificates: true },
      OPTIONS,
    ),
  };
}

/** @throws Error if the file does not exist */
export function readGolden(name: keyof ReturnType<typeof goldens>): DesiredStatefulSet {
  return JSON.parse(readFileSync(pathOf(name), 'utf8')) as DesiredStatefulSet;
}

function pathOf(name: string): string {
  return fileURLToPath(new URL(`goldens/${name}.json`, import.meta.url));
}

if (import.meta.main) {
  for (const [name, object] of Object.entries(goldens())) {
    writeFileSync(pathOf(name), `${JSON.stringify(object, undefined, 2)}\n`);
    process.stdout.write(`${pathOf(name)}\n`);
  }
}

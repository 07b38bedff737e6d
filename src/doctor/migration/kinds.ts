/**
 * Rules for the fields of each kind of resource of Tailscale's operator (*the reference*). The rules follow from the
 * reference's CRDs and the schemas in `src/operator`.
 */
import { isForeignImage } from '../../operator/recorder/stateful-set-specs.ts';
import { MAX_GROUP_NAME } from '../../operator/workload/workload.ts';
import { different, unsupported, type FieldRules, type FieldVerdict } from './verdict.ts';

/** A kind of the API group `tailscale.com` that tailcast knows. */
export interface KnownKind {
  /** Rules for the fields, or a function that derives them from the spec. */
  readonly rules: FieldRules | ((spec: unknown) => FieldRules);
  /**
   * Returns a verdict about the complete object, in addition to the verdicts about its fields; undefined for none.
   */
  readonly wholeObject?: (object: {
    readonly name: string;
    readonly spec: unknown;
  }) => FieldVerdict | undefined;
}

const CONTAINER = (path: string, image: (value: unknown) => FieldVerdict): FieldRules => ({
  [`${path}.image`]: image,
  [`${path}.imagePullPolicy`]: 'same',
  [`${path}.env.**`]: 'same',
  [`${path}.resources.**`]: 'same',
  [`${path}.securityContext.**`]: 'same',
});

const recorderImage = (value: unknown): FieldVerdict =>
  typeof value === 'string' && isForeignImage(value)
    ? different(
        'tailcast runs its own image instead of tsrecorder: remove the field, or name an image of tailcast',
      )
    : different('the image must contain tailcast, not tsrecorder');

const tooLong = (name: string): FieldVerdict | undefined =>
  name.length > MAX_GROUP_NAME
    ? unsupported(`the name has ${name.length} characters: create a copy with at most ${MAX_GROUP_NAME}`)
    : undefined;

const connector: FieldRules = {
  'spec.hostname': 'same',
  'spec.hostnamePrefix': 'same',
  'spec.proxyClass': 'same',
  'spec.replicas': 'same',
  'spec.tags.**': 'same',
  'spec.tailnet': 'same',
  'spec.subnetRouter.advertiseRoutes.**': 'same',
  'spec.exitNode': 'same',
  'spec.appConnector.routes.**': 'same',
};

const recorder: FieldRules = {
  'spec.enableUI': 'same',
  'spec.replicas': 'same',
  'spec.tags.**': 'same',
  'spec.tailnet': 'same',
  'spec.storage.s3.endpoint': 'same',
  'spec.storage.s3.bucket': 'same',
  'spec.storage.s3.credentials.secret.name': 'same',
  'spec.statefulSet.labels.**': 'same',
  'spec.statefulSet.annotations.**': 'same',
  'spec.statefulSet.pod.labels.**': 'same',
  'spec.statefulSet.pod.annotations.**': 'same',
  'spec.statefulSet.pod.affinity.**': 'same',
  'spec.statefulSet.pod.securityContext.**': 'same',
  'spec.statefulSet.pod.imagePullSecrets.**': 'same',
  'spec.statefulSet.pod.nodeSelector.**': 'same',
  'spec.statefulSet.pod.tolerations.**': 'same',
  'spec.statefulSet.pod.serviceAccount.name': 'same',
  'spec.statefulSet.pod.serviceAccount.annotations.**': 'same',
  ...CONTAINER('spec.statefulSet.pod.container', recorderImage),
};

const groupRules = (spec: unknown): FieldRules => ({
  'spec.type': 'same',
  'spec.replicas': 'same',
  'spec.tags.**': 'same',
  'spec.hostnamePrefix': 'same',
  'spec.tailnet': 'same',
  'spec.proxyClass':
    typeOf(spec) === 'kube-apiserver'
      ? unsupported(
          'gateways ignore a ProxyClass: use the annotation tailcast.dev/env, or deploy gateways with the chart',
        )
      : 'same',
  'spec.kubeAPIServer.mode': 'same',
  'spec.kubeAPIServer.hostname': 'same',
});

const proxyClassPod: FieldRules = Object.fromEntries(
  [
    'labels',
    'annotations',
    'affinity',
    'dnsConfig',
    'dnsPolicy',
    'imagePullSecrets',
    'nodeName',
    'nodeSelector',
    'priorityClassName',
    'securityContext',
    'tolerations',
    'topologySpreadConstraints',
  ].map((name) => [`spec.statefulSet.pod.${name}.**`, 'same']),
);

const proxyClass: FieldRules = {
  'spec.statefulSet.labels.**': 'same',
  'spec.statefulSet.annotations.**': 'same',
  ...proxyClassPod,
  ...CONTAINER('spec.statefulSet.pod.tailscaleContainer', () => 'same'),
  'spec.statefulSet.pod.tailscaleContainer.debug.enable': 'same',
  ...CONTAINER('spec.statefulSet.pod.tailscaleInitContainer', () => 'same'),
  'spec.statefulSet.pod.tailscaleInitContainer.debug.**': unsupported(
    'tailcast ignores it: remove the field',
  ),
  'spec.metrics.enable': 'same',
  'spec.metrics.serviceMonitor.**': unsupported(
    'tailcast creates no ServiceMonitor: create one that selects pods by the label tailscale.com/managed=true',
  ),
  'spec.tailscale.acceptRoutes': 'same',
  'spec.useLetsEncryptStagingEnvironment': 'same',
  'spec.staticEndpoints.**': unsupported(
    'tailcast opens no node ports for nodes: direct connections then depend on NAT traversal or relays',
  ),
};

const dnsConfig: FieldRules = {
  'spec.nameserver.image.**': different('tailcast runs its own nameserver image instead: remove the field'),
  'spec.nameserver.service.clusterIP': 'same',
  'spec.nameserver.pod.tolerations.**': 'same',
  'spec.nameserver.pod.affinity.**': 'same',
  'spec.nameserver.pod.imagePullSecrets.**': 'same',
  'spec.nameserver.pod.nodeSelector.**': 'same',
  'spec.nameserver.replicas': 'same',
};

/** Kinds of the API group `tailscale.com`. Keys: name of the kind. */
export const KNOWN_KINDS: Readonly<Record<string, KnownKind>> = {
  Connector: { rules: connector },
  DNSConfig: { rules: dnsConfig },
  PeerRelay: {
    rules: { 'spec.**': 'same' },
    wholeObject: () =>
      unsupported(
        'tailcast runs no peer relays: run a node with `tailscale set --relay-server-port` outside of the operator',
      ),
  },
  ProxyClass: { rules: proxyClass },
  ProxyGroup: {
    rules: groupRules,
    wholeObject: ({ name, spec }) => {
      const type = typeOf(spec);
      if (type === 'ingress')
        return different(
          'Tailscale Services of the group belong to the reference: delete them at the control server first; ' +
            'they get new addresses',
        );
      if (type !== 'egress' && type !== 'kube-apiserver')
        return { kind: 'unknown', text: `the type ${String(type)} is not known` };
      return tooLong(name);
    },
  },
  ProxyGroupPolicy: { rules: { 'spec.ingress.**': 'same', 'spec.egress.**': 'same' } },
  Recorder: {
    rules: recorder,
    wholeObject: ({ name }) => tooLong(name),
  },
  Tailnet: { rules: { 'spec.loginUrl': 'same', 'spec.credentials.secretName': 'same' } },
};

function typeOf(spec: unknown): unknown {
  return typeof spec === 'object' && spec !== null && 'type' in spec ? spec.type : undefined;
}

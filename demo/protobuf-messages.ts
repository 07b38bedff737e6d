/**
 * Field numbers and JSON names for the messages that kubectl's typed clients send. Source: `generated.proto` of
 * k8s.io/api (core/v1, apps/v1, authorization/v1) and of apimachinery (meta/v1, runtime, util/intstr).
 *
 * Type of a field: `string`, `bool`, `int` (0 is omitted), `count` (0 is kept), `map` (of strings), `bytesMap` (of
 * Base64), `intOrString`, or the name of another message. A leading `[]` means a list of this type.
 */
export type FieldType = string;

type Fields = Readonly<Record<number, readonly [name: string, type: FieldType]>>;

const META: Fields = { 1: ['metadata', 'ObjectMeta'] };

/** Field types by message and field number. */
export const MESSAGES: Readonly<Record<string, Fields>> = {
  TypeMeta: { 1: ['apiVersion', 'string'], 2: ['kind', 'string'] },
  IntOrString: { 1: ['type', 'int'], 2: ['intVal', 'int'], 3: ['strVal', 'string'] },
  ObjectMeta: {
    1: ['name', 'string'],
    2: ['generateName', 'string'],
    3: ['namespace', 'string'],
    11: ['labels', 'map'],
    12: ['annotations', 'map'],
    14: ['finalizers', '[]string'],
  },
  LabelSelector: { 1: ['matchLabels', 'map'] },
  DeleteOptions: {
    1: ['gracePeriodSeconds', 'count'],
    2: ['preconditions', 'Preconditions'],
    4: ['propagationPolicy', 'string'],
    5: ['dryRun', '[]string'],
  },
  Preconditions: { 1: ['uid', 'string'] },
  Namespace: META,
  ConfigMap: { ...META, 2: ['data', 'map'], 3: ['binaryData', 'bytesMap'], 4: ['immutable', 'bool'] },
  Secret: {
    ...META,
    2: ['data', 'bytesMap'],
    3: ['type', 'string'],
    5: ['immutable', 'bool'],
  },
  ServiceAccount: META,
  Service: { ...META, 2: ['spec', 'ServiceSpec'] },
  ServiceSpec: {
    1: ['ports', '[]ServicePort'],
    2: ['selector', 'map'],
    3: ['clusterIP', 'string'],
    4: ['type', 'string'],
    10: ['externalName', 'string'],
  },
  ServicePort: {
    1: ['name', 'string'],
    2: ['protocol', 'string'],
    3: ['port', 'int'],
    4: ['targetPort', 'intOrString'],
    5: ['nodePort', 'int'],
  },
  Pod: { ...META, 2: ['spec', 'PodSpec'] },
  PodSpec: {
    2: ['containers', '[]Container'],
    3: ['restartPolicy', 'string'],
    4: ['terminationGracePeriodSeconds', 'count'],
    6: ['dnsPolicy', 'string'],
    7: ['nodeSelector', 'map'],
    8: ['serviceAccountName', 'string'],
    10: ['nodeName', 'string'],
    11: ['hostNetwork', 'bool'],
    12: ['hostPID', 'bool'],
    13: ['hostIPC', 'bool'],
    19: ['schedulerName', 'string'],
    22: ['tolerations', '[]Toleration'],
    27: ['shareProcessNamespace', 'bool'],
  },
  Toleration: {
    1: ['key', 'string'],
    2: ['operator', 'string'],
    3: ['value', 'string'],
    4: ['effect', 'string'],
  },
  PodTemplateSpec: { ...META, 2: ['spec', 'PodSpec'] },
  Container: {
    1: ['name', 'string'],
    2: ['image', 'string'],
    3: ['command', '[]string'],
    4: ['args', '[]string'],
    5: ['workingDir', 'string'],
    6: ['ports', '[]ContainerPort'],
    7: ['env', '[]EnvVar'],
    13: ['terminationMessagePath', 'string'],
    14: ['imagePullPolicy', 'string'],
    16: ['stdin', 'bool'],
    17: ['stdinOnce', 'bool'],
    18: ['tty', 'bool'],
    20: ['terminationMessagePolicy', 'string'],
  },
  ContainerPort: {
    1: ['name', 'string'],
    2: ['hostPort', 'int'],
    3: ['containerPort', 'int'],
    4: ['protocol', 'string'],
  },
  EnvVar: { 1: ['name', 'string'], 2: ['value', 'string'] },
  Deployment: { ...META, 2: ['spec', 'DeploymentSpec'] },
  DeploymentSpec: {
    1: ['replicas', 'count'],
    2: ['selector', 'LabelSelector'],
    3: ['template', 'PodTemplateSpec'],
  },
  SelfSubjectReview: META,
  SelfSubjectAccessReview: { ...META, 2: ['spec', 'SelfSubjectAccessReviewSpec'] },
  SelfSubjectAccessReviewSpec: {
    1: ['resourceAttributes', 'ResourceAttributes'],
    2: ['nonResourceAttributes', 'NonResourceAttributes'],
  },
  ResourceAttributes: {
    1: ['namespace', 'string'],
    2: ['verb', 'string'],
    3: ['group', 'string'],
    4: ['version', 'string'],
    5: ['resource', 'string'],
    6: ['subresource', 'string'],
    7: ['name', 'string'],
  },
  NonResourceAttributes: { 1: ['path', 'string'], 2: ['verb', 'string'] },
  SelfSubjectRulesReview: { ...META, 2: ['spec', 'SelfSubjectRulesReviewSpec'] },
  SelfSubjectRulesReviewSpec: { 1: ['namespace', 'string'] },
};

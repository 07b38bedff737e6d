/** Returns verdicts for the objects of a cluster that Tailscale's operator (*the reference*) reads. Pure. */
import { INGRESS_CLASS } from '../../operator/ingress/resource.ts';
import type { KubeObject } from '../../operator/kube-object.ts';
import { fullName } from '../../operator/object-cache.ts';
import { tagsIn } from '../../operator/service/classify.ts';
import { isOfInterest } from '../../operator/service/predicates.ts';
import { KNOWN_KINDS } from './kinds.ts';
import {
  different,
  fieldFindings,
  unsupported,
  type FieldRules,
  type MigrationFinding,
  type MigrationItem,
} from './verdict.ts';

/** API group of the reference's custom resources. */
export const REFERENCE_GROUP = 'tailscale.com';

const PREFIX = `${REFERENCE_GROUP}/`;

/** Information that verdicts depend on, from other objects and the Helm release. */
export interface MigrationContext {
  /** Tags that a tailnet node gets if its resource specifies no tags. */
  readonly defaultTags: readonly string[];
  /** Maps each tag of a Recorder, or of a ProxyGroup of type kube-apiserver, to the name of this object. */
  readonly trustedTags: ReadonlyMap<string, string>;
}

/** Annotations and labels that the reference operator itself writes. */
const WRITTEN =
  /^tailscale\.com\/(operator-last-set-.*|managed|parent-resource.*|metrics-target|svc-type|domain|secret-type)$/;

const SHARED: FieldRules = {
  [`${PREFIX}tags`]: 'same',
  [`${PREFIX}hostname`]: 'same',
  [`${PREFIX}proxy-class`]: 'same',
  [`${PREFIX}proxy-group`]: 'same',
};

const SERVICE: FieldRules = {
  ...SHARED,
  [`${PREFIX}expose`]: 'same',
  [`${PREFIX}tailnet-ip`]: 'same',
  [`${PREFIX}tailnet-fqdn`]: 'same',
  [`${PREFIX}ts-tailnet-target-ip`]: 'same',
};

const INGRESS: FieldRules = {
  ...SHARED,
  [`${PREFIX}funnel`]: 'same',
  [`${PREFIX}http-redirect`]: 'same',
  [`${PREFIX}http-endpoint`]: 'same',
  [`${PREFIX}experimental-forward-cluster-traffic-via-ingress`]: unsupported(
    'pods of the cluster cannot use the address of the node: use the Service instead',
  ),
};

const GROUP: FieldRules = {
  [`${PREFIX}share-acme-account`]: different(
    'nodes of tailcast do not share an ACME account: remove the annotation',
  ),
};

/** Collects the information for {@link objectFindings} from all objects. */
export function contextOf(objects: readonly KubeObject[], defaultTags: readonly string[]): MigrationContext {
  const trustedTags = new Map<string, string>();
  for (const object of objects) {
    if (!object.apiVersion.startsWith(PREFIX)) continue;
    const spec = specOf(object);
    const isGateway = object.kind === 'ProxyGroup' && spec['type'] === 'kube-apiserver';
    if (!isGateway && object.kind !== 'Recorder') continue;
    for (const tag of textsIn(spec['tags'])) trustedTags.set(tag, `${object.kind} ${object.metadata.name}`);
  }
  return { defaultTags, trustedTags };
}

/** Returns the verdict about one object, or undefined if the reference operator does not read the object. */
export function objectFindings(object: KubeObject, context: MigrationContext): MigrationItem | undefined {
  const { apiVersion, kind, metadata } = object;
  const item = (findings: readonly MigrationFinding[]): MigrationItem => ({
    kind,
    name: fullName(object),
    findings,
  });
  if (apiVersion.startsWith(PREFIX)) return item(customResource(object, context));
  if (apiVersion === 'v1' && kind === 'Service') {
    const isRead = isOfInterest(object, false) || hasOurKeys(metadata);
    return isRead ? item(service(object, context)) : undefined;
  }
  if (kind === 'Ingress' && apiVersion.startsWith('networking.k8s.io/')) {
    const isRead = specOf(object)['ingressClassName'] === INGRESS_CLASS;
    return isRead ? item(ingress(object, context)) : undefined;
  }
  return undefined;
}

function customResource(object: KubeObject, context: MigrationContext): readonly MigrationFinding[] {
  const { apiVersion, kind, metadata } = object;
  const known = Object.hasOwn(KNOWN_KINDS, kind) ? KNOWN_KINDS[kind] : undefined;
  if (known === undefined)
    return [
      {
        kind: 'unknown',
        field: '',
        text: 'this version of tailcast does not know the kind: check it by hand',
      },
    ];
  const spec = specOf(object);
  const wholeObject = known.wholeObject?.({ name: metadata.name, spec });
  return [
    ...(apiVersion === `${PREFIX}v1alpha1`
      ? []
      : [
          {
            kind: 'unknown' as const,
            field: 'apiVersion',
            text: `tailcast reads v1alpha1, not ${apiVersion}`,
          },
        ]),
    ...(wholeObject === undefined || wholeObject === 'same' ? [] : [{ field: '', ...wholeObject }]),
    ...fieldFindings(spec, 'spec', typeof known.rules === 'function' ? known.rules(spec) : known.rules),
    ...annotationFindings(metadata, kind === 'ProxyGroup' ? GROUP : {}),
    ...(kind === 'Connector' ? tagFindings(textsIn(spec['tags']), undefined, context) : []),
  ];
}

function service(object: KubeObject, context: MigrationContext): readonly MigrationFinding[] {
  const { metadata } = object;
  return [
    ...annotationFindings(metadata, SERVICE),
    ...tagFindings(tagsIn(metadata.annotations ?? {}), metadata.namespace, context),
  ];
}

function ingress(object: KubeObject, context: MigrationContext): readonly MigrationFinding[] {
  const { metadata } = object;
  const tls = specOf(object)['tls'];
  const namesSecret =
    Array.isArray(tls) &&
    tls.some((entry: unknown) => typeof entry === 'object' && entry !== null && 'secretName' in entry);
  return [
    ...annotationFindings(metadata, INGRESS),
    ...tagFindings(tagsIn(metadata.annotations ?? {}), metadata.namespace, context),
    ...(namesSecret
      ? [
          {
            kind: 'different' as const,
            field: 'spec.tls[].secretName',
            text:
              'the reference ignores the Secret; tailcast serves its certificate if ' +
              'operator.ingresses.secrets is true',
          },
        ]
      : []),
  ];
}

/** Returns findings for annotations and labels of the reference that tailcast does not read or does not know. */
function annotationFindings(
  metadata: KubeObject['metadata'],
  rules: FieldRules,
): readonly MigrationFinding[] {
  const keys = [...Object.keys(metadata.annotations ?? {}), ...Object.keys(metadata.labels ?? {})];
  const own = [...new Set(keys)].filter((key) => key.startsWith(PREFIX) && !WRITTEN.test(key));
  return own.flatMap((key) =>
    fieldFindings('', key, rules).map((finding) => ({ ...finding, field: `metadata.annotations[${key}]` })),
  );
}

/**
 * @param namespace undefined for cluster-scoped objects, which may have any tag except the tags of recorders and
 *   gateways
 */
function tagFindings(
  tags: readonly string[],
  namespace: string | undefined,
  { defaultTags, trustedTags }: MigrationContext,
): readonly MigrationFinding[] {
  const field = namespace === undefined ? 'spec.tags' : `metadata.annotations[${PREFIX}tags]`;
  return tags.flatMap((tag): readonly MigrationFinding[] => {
    const owner = trustedTags.get(tag);
    if (owner !== undefined)
      return [
        {
          kind: 'unsupported',
          field,
          text: `${tag} is the tag of ${owner}: choose another tag for this node`,
        },
      ];
    if (namespace === undefined || defaultTags.includes(tag)) return [];
    return [{ kind: 'different', field, text: `add ${namespace}=${tag} to --allowed-tags of the operator` }];
  });
}

function hasOurKeys({ annotations = {} }: KubeObject['metadata']): boolean {
  return Object.keys(annotations).some((key) => key.startsWith(PREFIX) && !WRITTEN.test(key));
}

function specOf(object: KubeObject): Readonly<Record<string, unknown>> {
  const spec: unknown = 'spec' in object ? object['spec'] : undefined;
  return typeof spec === 'object' && spec !== null ? { ...spec } : {};
}

function textsIn(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : [];
}

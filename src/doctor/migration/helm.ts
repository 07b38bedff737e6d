/**
 * Reads the values of the Helm release of Tailscale's operator from the release's Secret, and returns a verdict for
 * each value. Pure.
 */
import { gunzipSync } from 'node:zlib';
import { z } from 'zod';
import { errorText } from '../../errors.ts';
import type { KubeObject } from '../../operator/kube-object.ts';
import { fullName } from '../../operator/object-cache.ts';
import {
  different,
  fieldFindings,
  unsupported,
  type FieldRules,
  type FieldVerdict,
  type MigrationItem,
} from './verdict.ts';

/** Name of the chart of Tailscale's operator. */
const CHART = 'tailscale-operator';

/** Label selector for the Secrets in which Helm stores deployed releases. */
export const HELM_SELECTOR = 'owner=helm,status=deployed';

/** Type of the Secrets that Helm creates. */
const HELM_TYPE = 'helm.sh/release.v1';

const MAX_RELEASE_BYTES = 32 * 1024 ** 2;

const secretSchema = z.object({ type: z.string().default(''), data: z.object({ release: z.string() }) });
const releaseSchema = z.object({
  name: z.string(),
  chart: z.object({
    metadata: z.object({ name: z.string(), version: z.string().default('') }),
    values: z.record(z.string(), z.unknown()).nullish(),
  }),
  config: z.record(z.string(), z.unknown()).nullish(),
});

/** A Helm release of Tailscale's operator. */
export interface HelmRelease {
  readonly name: string;
  readonly version: string;
  /** Values that the user has set, without the chart's defaults. */
  readonly values: Readonly<Record<string, unknown>>;
}

/**
 * Returns the release in a Secret, or undefined if the Secret contains no release of this chart.
 *
 * @returns a message if Helm has created the Secret but its content is invalid
 */
export function readRelease(secret: KubeObject): HelmRelease | string | undefined {
  const encoded = secretSchema.safeParse(secret);
  if (!encoded.success) return undefined;
  try {
    const inner = Buffer.from(encoded.data.data.release, 'base64').toString('latin1');
    const json = gunzipSync(Buffer.from(inner, 'base64'), { maxOutputLength: MAX_RELEASE_BYTES }).toString(
      'utf8',
    );
    const { name, chart, config } = releaseSchema.parse(JSON.parse(json));
    if (chart.metadata.name !== CHART) return undefined;
    return { name, version: chart.metadata.version, values: config ?? {} };
  } catch (error) {
    const { type } = encoded.data;
    return type === HELM_TYPE
      ? `Secret ${fullName(secret)}: not a Helm release: ${errorText(error)}`
      : undefined;
  }
}

/** Returns the default tags of a release: `proxyConfig.defaultTags`, or the chart's default. */
export function defaultTagsOf(values: HelmRelease['values']): readonly string[] {
  const parsed = z.object({ proxyConfig: z.object({ defaultTags: z.string() }) }).safeParse(values);
  return parsed.success
    ? parsed.data.proxyConfig.defaultTags.split(',').map((tag) => tag.trim())
    : ['tag:k8s'];
}

const asValue = (name: string): FieldVerdict => different(`set ${name} of the tailcast chart`);
const POST_RENDERER = unsupported('the tailcast chart has no such value: patch the rendered manifests');
const NO_NODE = different('the tailcast operator is not a node of the tailnet: leave it out');

const RULES: FieldRules = {
  'values.nameOverride': different('objects are named after the release of the tailcast chart'),
  'values.fullnameOverride': different('objects are named after the release of the tailcast chart'),
  'values.oauth.clientId': different(
    'store client_id and client_secret in a Secret and name it in operator.secret',
  ),
  'values.oauth.clientSecret': different(
    'store client_id and client_secret in a Secret and name it in operator.secret',
  ),
  'values.oauth.audience': different(
    'store client_id and audience in a Secret and name it in operator.secret',
  ),
  'values.oauthSecretVolume.**': unsupported(
    'the credentials must be in a Secret: name it in operator.secret',
  ),
  'values.loginServer': asValue('operator.controlUrl and tailscale.loginServer'),
  'values.installCRDs': different('Helm installs the CRDs of the tailcast chart once and never changes them'),
  'values.operatorConfig.defaultTags.**': NO_NODE,
  'values.operatorConfig.hostname': NO_NODE,
  'values.operatorConfig.image.**': asValue('image.repository and image.tag'),
  'values.operatorConfig.logging': asValue('operator.logLevel'),
  'values.operatorConfig.nodeSelector.**': asValue('operator.nodeSelector'),
  'values.operatorConfig.resources.**': asValue('operator.resources'),
  'values.operatorConfig.podAnnotations.**': asValue('operator.podAnnotations'),
  'values.operatorConfig.podLabels.**': asValue('operator.podLabels'),
  'values.operatorConfig.tolerations.**': asValue('operator.tolerations'),
  'values.operatorConfig.annotations.**': POST_RENDERER,
  'values.operatorConfig.serviceAccountAnnotations.**': POST_RENDERER,
  'values.operatorConfig.affinity.**': POST_RENDERER,
  'values.operatorConfig.priorityClassName': POST_RENDERER,
  'values.operatorConfig.podSecurityContext.**': different(
    'pods of tailcast run without privileges by default',
  ),
  'values.operatorConfig.securityContext.**': different('pods of tailcast run without privileges by default'),
  'values.operatorConfig.extraEnv.**': different('set operator.env with the names of docs/config.md'),
  'values.operatorConfig.sharedACMEAccountKey': different(
    'nodes of tailcast do not share an ACME account: leave it out',
  ),
  'values.ingressClass.enabled': asValue('operator.ingresses.class'),
  'values.ingressClass.name': (value) =>
    value === 'tailscale'
      ? 'same'
      : unsupported('tailcast serves the IngressClass tailscale only: change the Ingresses'),
  'values.proxyConfig.image.**': asValue('operator.env.TAILCAST_TAILSCALE_IMAGE'),
  'values.proxyConfig.defaultTags': asValue('operator.defaultTags'),
  'values.proxyConfig.firewallMode': (value) =>
    value === 'auto'
      ? 'same'
      : unsupported('set TS_DEBUG_FIREWALL_MODE in a ProxyClass (tailscaleContainer.env)'),
  'values.proxyConfig.defaultProxyClass': asValue('operator.services.defaultProxyClass'),
  'values.apiServerProxyConfig.mode': (value) =>
    String(value) === 'false'
      ? 'same'
      : different(
          `set gateway.enabled and gateway.mode=${String(value) === 'noauth' ? 'noauth' : 'auth'}: gateways are ` +
            'nodes of their own',
        ),
  'values.apiServerProxyConfig.allowImpersonation': asValue(
    'operator.proxyGroups.users and operator.proxyGroups.groups',
  ),
  'values.imagePullSecrets.**': asValue('imagePullSecrets'),
};

/** Returns verdicts for all values that the user has set in a release. */
export function releaseFindings({ name, version, values }: HelmRelease): MigrationItem {
  return {
    kind: 'Helm release',
    name: `${name} ${version}`.trim(),
    findings: fieldFindings(values, 'values', RULES),
  };
}

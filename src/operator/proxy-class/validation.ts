/** Validates the parts of a ProxyClass that its schema does not check. Pure. */
import { isAnnotationKey, isLabelValue } from '../kube-object.ts';
import type { ProxyClass } from './resource.ts';

/** Returns all problems. Each problem names the field. */
export function problemsOf({ spec }: ProxyClass): readonly string[] {
  const { statefulSet, metrics } = spec;
  const { pod } = statefulSet;
  return [
    ...labelProblems('spec.statefulSet.labels', statefulSet.labels),
    ...keyProblems('spec.statefulSet.annotations', statefulSet.annotations),
    ...labelProblems('spec.statefulSet.pod.labels', pod.labels),
    ...keyProblems('spec.statefulSet.pod.annotations', pod.annotations),
    ...imageProblem('spec.statefulSet.pod.tailscaleContainer.image', pod.tailscaleContainer.image),
    ...imageProblem('spec.statefulSet.pod.tailscaleInitContainer.image', pod.tailscaleInitContainer.image),
    ...labelProblems('spec.metrics.serviceMonitor.labels', metrics.serviceMonitor.labels),
    ...(metrics.serviceMonitor.enable && !metrics.enable
      ? ['spec.metrics.serviceMonitor.enable: needs spec.metrics.enable: true']
      : []),
  ];
}

/** Returns warnings about environment variables that override the operator's settings of proxy containers. */
export function warningsOf({ spec }: ProxyClass): readonly string[] {
  const { tailscaleContainer, tailscaleInitContainer } = spec.statefulSet.pod;
  const own = [...tailscaleContainer.env, ...tailscaleInitContainer.env].filter(({ name }) =>
    /^(TS_|EXPERIMENTAL_TS_)/.test(name),
  );
  return own.map(
    ({ name }) =>
      `ProxyClass overrides the default value for ${name} env var for proxy containers. Running with custom ` +
      'values for Tailscale env vars is not recommended and might break in the future.',
  );
}

function labelProblems(field: string, labels: Readonly<Record<string, string>>): readonly string[] {
  const values = Object.entries(labels).filter(([, value]) => !isLabelValue(value));
  return [
    ...keyProblems(field, labels),
    ...values.map(
      ([key, value]) =>
        `${field}[${key}]: Invalid value: ${JSON.stringify(value)}: at most 63 letters, digits, "-", "_" or ".", ` +
        'beginning and ending with a letter or digit',
    ),
  ];
}

function keyProblems(field: string, map: Readonly<Record<string, string>>): readonly string[] {
  return Object.keys(map)
    .filter((key) => !isAnnotationKey(key))
    .map((key) => `${field}: Invalid value: ${JSON.stringify(key)}: not a qualified name`);
}

/** Checks an image reference with the most important rules of distribution/reference, but not all. */
function imageProblem(field: string, image: string): readonly string[] {
  const valid =
    /^[a-z0-9]([a-z0-9._:-]*[a-z0-9])?(\/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$/i;
  return image === '' || valid.test(image)
    ? []
    : [`${field}: Invalid value: ${JSON.stringify(image)}: not an image reference`];
}

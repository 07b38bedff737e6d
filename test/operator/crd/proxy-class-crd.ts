/** The CustomResourceDefinition of ProxyClass: the reference's fields, core types from an API server's own document. */
import { coreSchema, type OpenApiSchemas, type Schema } from './core-schema.ts';
import { containerFields, core, imagePullSecrets } from './pod-schemas.ts';
import { conditionsSchema, crd, flag, labelMap, list, object, text, textMap } from './schema-parts.ts';

/** @param openApi `components.schemas` of `/openapi/v3/api/v1`. */
export function proxyClassCrd(openApi: OpenApiSchemas): object {
  return crd({
    kind: 'ProxyClass',
    plural: 'proxyclasses',
    description: 'Choices about the pods of Services, Connectors and groups that name it.',
    columns: [
      {
        name: 'Status',
        type: 'string',
        description: 'Whether it is valid.',
        jsonPath: '.status.conditions[?(@.type == "ProxyClassReady")].reason',
      },
    ],
    spec: specSchema(openApi),
    status: object('What the operator found.', {
      conditions: conditionsSchema(
        'ProxyClassReady: whether it is valid, so that proxies follow it.',
        'ProxyClassReady',
      ),
    }),
  });
}

function specSchema(openApi: OpenApiSchemas): Schema {
  return object('The choices.', {
    statefulSet: object('More about the StatefulSets.', {
      labels: labelMap('Labels of the StatefulSets.'),
      annotations: textMap('Annotations of the StatefulSets.'),
      pod: podSchema(openApi),
    }),
    metrics: object(
      'Metrics of tailscaled, at port 9002 of the pods.',
      {
        enable: flag('Whether they are served.'),
        serviceMonitor: object(
          'A ServiceMonitor for Prometheus. This operator makes none: the metrics are served.',
          { enable: flag('Whether one is wanted.'), labels: labelMap('Its labels.') },
          { required: ['enable'] },
        ),
      },
      {
        required: ['enable'],
        'x-kubernetes-validations': [
          {
            rule: '!(has(self.serviceMonitor) && self.serviceMonitor.enable  && !self.enable)',
            message: 'ServiceMonitor can only be enabled if metrics are enabled',
          },
        ],
      },
    ),
    tailscale: object('Preferences of the nodes.', {
      acceptRoutes: flag('Whether the nodes use routes that other nodes offer.'),
    }),
    useLetsEncryptStagingEnvironment: flag(
      'Whether certificates come from the authority’s test environment.',
    ),
    staticEndpoints: object(
      'Fixed addresses of the nodes of groups.',
      {
        nodePort: object(
          'Ports of the cluster’s machines.',
          {
            ports: list(
              'The ports.',
              {
                type: 'object',
                properties: {
                  port: { type: 'integer' },
                  endPort: { type: 'integer' },
                },
                required: ['port'],
              },
              { minItems: 1 },
            ),
            selector: textMap('Labels of the machines.'),
          },
          { required: ['ports'] },
        ),
      },
      { required: ['nodePort'] },
    ),
  });
}

function podSchema(openApi: OpenApiSchemas): Schema {
  const many = (name: string, description: string): Schema =>
    list(description, coreSchema(openApi, `io.k8s.api.core.v1.${name}`));
  const docs = {
    env: 'Environment variables; they win over those that the operator sets.',
    image: 'Image of the container. Default: the operator’s.',
    securityContext:
      'Security context of the container. Default: privileged, because it sets the pod’s network up.',
  };
  return object('More about their pods.', {
    labels: labelMap('Labels of the pods.'),
    annotations: textMap('Annotations of the pods.'),
    affinity: core(openApi, 'Affinity', 'Affinity of the pods.'),
    securityContext: core(openApi, 'PodSecurityContext', 'Security context of the pods.'),
    imagePullSecrets: imagePullSecrets(openApi),
    nodeName: text('Machine of the pods.'),
    nodeSelector: textMap('Labels that the pods’ machines must have.'),
    tolerations: many('Toleration', 'Tolerations of the pods.'),
    topologySpreadConstraints: many('TopologySpreadConstraint', 'How pods are spread over machines.'),
    priorityClassName: text('Priority of the pods.'),
    dnsPolicy: text('How names are resolved in the pods.', {
      enum: ['ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None'],
    }),
    dnsConfig: core(openApi, 'PodDNSConfig', 'More about how names are resolved in the pods.'),
    tailscaleContainer: object('More about the tailscale container.', {
      ...containerFields(openApi, docs),
      debug: object('The debug server of tailscaled, at port 9001 of the pods.', {
        enable: flag('Whether it is served.'),
      }),
    }),
    tailscaleInitContainer: object('More about the container that lets the pod’s network forward packets.', {
      ...containerFields(openApi, docs),
      debug: object('Without effect here.', { enable: flag('Whether it is wanted.') }),
    }),
  });
}

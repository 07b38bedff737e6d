/**
 * The CustomResourceDefinition of Recorder, built from what is ours and from the schemas of Kubernetes' core types,
 * which come from an API server's own OpenAPI document. `deploy/crds/recorder.yaml` is what `regenerate.ts` wrote.
 */
import { coreSchema, type OpenApiSchemas, type Schema } from './core-schema.ts';
import { containerFields, core, imagePullSecrets } from './pod-schemas.ts';
import { conditionsSchema, crd, devicesSchema, flag, list, object, text, textMap } from './schema-parts.ts';

/** @param openApi `components.schemas` of `/openapi/v3/api/v1`. */
export function recorderCrd(openApi: OpenApiSchemas): object {
  return crd({
    kind: 'Recorder',
    shortName: 'rec',
    description: 'A session recorder on the tailnet.',
    columns: [
      {
        name: 'Status',
        type: 'string',
        description: 'How far the recorder is deployed.',
        jsonPath: '.status.conditions[?(@.type == "RecorderReady")].reason',
      },
      {
        name: 'URL',
        type: 'string',
        description: 'Where the player is served, if it is.',
        jsonPath: '.status.devices[?(@.url != "")].url',
      },
    ],
    spec: specSchema(openApi),
    status: statusSchema(),
  });
}

function specSchema(openApi: OpenApiSchemas): Schema {
  return object(
    'The recorder that is wanted.',
    {
      enableUI: flag(
        'Serve the player on HTTPS under the name of each node. Needed when recordings are not kept in S3. Default: false.',
      ),
      replicas: {
        description: 'How many nodes take recordings. More than one needs S3 storage. Default: 1.',
        type: 'integer',
        format: 'int32',
        default: 1,
        minimum: 0,
      },
      storage: object('Where recordings are kept. Default: in the pod, as long as that lives.', {
        s3: object('A bucket of an S3-compatible store.', {
          bucket: text('Name of the bucket.'),
          credentials: object('Where the credentials come from. Default: the environment of the pod.', {
            secret: object(
              'A Secret in the namespace of the operator. Each of its keys becomes an environment variable, e.g. AWS_ACCESS_KEY_ID.',
              { name: text('Name of the Secret.') },
            ),
          }),
          endpoint: text('Host of the store, e.g. s3.us-east-1.amazonaws.com.'),
        }),
      }),
      statefulSet: statefulSetSchema(openApi),
      tags: list('Tags of the nodes. Default: what the operator is told, tag:k8s.', {
        type: 'string',
        pattern: '^tag:[a-zA-Z][a-zA-Z0-9-]*$',
      }),
      tailnet: text('Name of the Tailnet resource whose tailnet the nodes join. Default: the operator’s.', {
        'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: 'Recorder tailnet is immutable' }],
      }),
    },
    {
      'x-kubernetes-validations': [
        {
          rule: '!(self.replicas > 1 && (!has(self.storage) || !has(self.storage.s3)))',
          message: 'S3 storage must be used when deploying multiple Recorder replicas',
        },
      ],
    },
  );
}

function statefulSetSchema(openApi: OpenApiSchemas): Schema {
  return object('More about the StatefulSet that runs the recorder.', {
    annotations: textMap('Annotations of the StatefulSet.'),
    labels: textMap('Labels of the StatefulSet.'),
    pod: object('More about its pods.', {
      affinity: core(openApi, 'Affinity', 'Affinity of the pods.'),
      annotations: textMap('Annotations of the pods.'),
      container: object('More about the recorder’s container.', {
        ...containerFields(openApi, {
          env: 'Environment variables; they win over those that the operator sets.',
          image: 'Image of the recorder. Default: the operator’s version of tailcast.',
          securityContext:
            'Security context of the container. Default: an unprivileged user and a read-only root.',
        }),
      }),
      imagePullSecrets: imagePullSecrets(openApi),
      labels: textMap('Labels of the pods.'),
      nodeSelector: textMap('Labels that the pods’ machines must have.'),
      securityContext: core(openApi, 'PodSecurityContext', 'Security context of the pods.'),
      serviceAccount: object('The pods’ account.', {
        annotations: textMap(
          'Annotations of the ServiceAccount, e.g. a cloud role for access to the bucket.',
        ),
        name: text('Name of the ServiceAccount. Default: the name of the Recorder.', {
          maxLength: 253,
          pattern: '^[a-z0-9]([a-z0-9-.]{0,61}[a-z0-9])?$',
        }),
      }),
      tolerations: list('Tolerations of the pods.', coreSchema(openApi, 'io.k8s.api.core.v1.Toleration')),
    }),
  });
}

function statusSchema(): Schema {
  return object('What the operator has done.', {
    conditions: conditionsSchema('RecorderReady: whether everything is deployed.', 'RecorderReady'),
    devices: devicesSchema({ url: text('Where it serves the player, if it does.') }),
  });
}

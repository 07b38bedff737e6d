/** The CustomResourceDefinition of DNSConfig: the reference's fields. */
import type { OpenApiSchemas, Schema } from './core-schema.ts';
import { core, imagePullSecrets } from './pod-schemas.ts';
import { conditionsSchema, crd, list, object, text, textMap } from './schema-parts.ts';

export function dnsConfigCrd(openApi: OpenApiSchemas): object {
  return crd({
    kind: 'DNSConfig',
    shortName: 'dc',
    description:
      'A nameserver in the cluster that knows the names of the tailnet which Services lead to. One DNSConfig counts.',
    columns: [
      {
        name: 'NameserverIP',
        type: 'string',
        description: 'Address of the nameserver in the cluster.',
        jsonPath: '.status.nameserver.ip',
      },
    ],
    spec: specSchema(openApi),
    status: object('What the operator has done.', {
      conditions: conditionsSchema('NameserverReady: whether the nameserver answers.', 'NameserverReady'),
      nameserver: object('Where it is.', { ip: text('Address of its Service.') }),
    }),
  });
}

function specSchema(openApi: OpenApiSchemas): Schema {
  const pod = object('What is said of its pods.', {
    tolerations: list('Taints that they tolerate.', core(openApi, 'Toleration', 'One of them.')),
    affinity: core(
      openApi,
      'Affinity',
      'Where they are placed. Default: apart from each other, where that can be.',
    ),
    nodeSelector: textMap('Labels of the machines that they run on.'),
    imagePullSecrets: imagePullSecrets(openApi),
  });
  const nameserver = object('The nameserver.', {
    image: object('Its image. Default: this version of tailcast.', {
      repo: text('Name of the image, without its tag.'),
      tag: text('Tag of the image.'),
    }),
    service: object('The Service in front of it.', {
      clusterIP: text('Address of the Service. Default: the cluster chooses.'),
    }),
    pod,
    replicas: {
      description: 'How many pods there are. Default: 1.',
      type: 'integer',
      format: 'int32',
      minimum: 0,
    },
  });
  return object('The nameserver that is wanted.', { nameserver }, { required: ['nameserver'] });
}

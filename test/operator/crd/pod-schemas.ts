/** Fields for pods and containers that several kinds share. */
import { coreSchema, type OpenApiSchemas, type Schema } from './core-schema.ts';
import { list, text } from './schema-parts.ts';

/** A core type with a description. */
export function core(openApi: OpenApiSchemas, name: string, description: string): Schema {
  return { description, ...coreSchema(openApi, `io.k8s.api.core.v1.${name}`) };
}

/** The fields of a container that users may set. `docs`: descriptions that differ between containers. */
export function containerFields(
  openApi: OpenApiSchemas,
  docs: { readonly env: string; readonly image: string; readonly securityContext: string },
): Schema {
  return {
    env: list(docs.env, {
      type: 'object',
      properties: {
        name: text('Name of the variable.', { pattern: '^[-._a-zA-Z][-._a-zA-Z0-9]*$' }),
        value: text('Its value; $(NAME) stands for an earlier variable.'),
      },
      required: ['name'],
    }),
    image: text(docs.image),
    imagePullPolicy: text('When the image is pulled.', { enum: ['Always', 'Never', 'IfNotPresent'] }),
    resources: core(openApi, 'ResourceRequirements', 'Resources of the container.'),
    securityContext: core(openApi, 'SecurityContext', docs.securityContext),
  };
}

export function imagePullSecrets(openApi: OpenApiSchemas): Schema {
  return list('Secrets for pulling images.', {
    ...coreSchema(openApi, 'io.k8s.api.core.v1.LocalObjectReference'),
    properties: { name: { type: 'string', default: '' } },
  });
}

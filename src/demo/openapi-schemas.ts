import type { ApiObject } from './json.ts';

/** `[type, description]`; the type is a JSON type, `[]x` for a list, or the name of another schema. */
type Field = readonly [type: string, description: string];

interface Schema {
  readonly description: string;
  readonly fields: Readonly<Record<string, Field>>;
}

const PREFIX = 'io.k8s.demo.';

/** The fields that people look up with `kubectl explain`; the double itself accepts any. */
const SCHEMAS: Readonly<Record<string, Schema>> = {
  ObjectMeta: {
    description: 'Metadata that every stored object has.',
    fields: {
      name: ['string', 'Unique within its namespace; cannot be changed.'],
      generateName: ['string', 'Prefix of a name that the server makes up.'],
      namespace: ['string', 'The namespace the object lives in.'],
      labels: ['object', 'Keys and values by which objects are selected.'],
      annotations: ['object', 'Keys and values for tools and people.'],
      uid: ['string', 'Unique in space and time; set by the server.'],
      resourceVersion: ['string', 'Changes with every write; used for watches and conflict detection.'],
      creationTimestamp: ['string', 'When the server stored the object.'],
      deletionTimestamp: ['string', 'When an object that is being deleted will be gone.'],
      ownerReferences: ['[]object', 'Objects this one depends on; it is deleted after them.'],
    },
  },
  PodSpec: {
    description: 'What a pod runs.',
    fields: {
      containers: ['[]Container', 'The programs of the pod; at least one.'],
      ephemeralContainers: ['[]Container', 'Programs added to a running pod for debugging.'],
      restartPolicy: ['string', 'Always, OnFailure or Never.'],
      terminationGracePeriodSeconds: ['integer', 'How long programs get between SIGTERM and SIGKILL.'],
      nodeName: ['string', 'The node the pod runs on.'],
      serviceAccountName: ['string', 'The service account the pod runs as.'],
    },
  },
  Container: {
    description: 'One program of a pod. In the demo it is a process on this machine.',
    fields: {
      name: ['string', 'Unique within the pod.'],
      image: ['string', 'The image; not pulled in the demo.'],
      command: ['[]string', 'What to run.'],
      args: ['[]string', 'Arguments after the command.'],
      env: ['[]EnvVar', 'Environment variables.'],
      ports: ['[]ContainerPort', 'Ports the program listens on; only these can be forwarded in the demo.'],
      stdin: ['boolean', 'Whether the program gets an input.'],
      stdinOnce: ['boolean', 'Whether that input ends with its first client.'],
      tty: ['boolean', 'Whether the program gets a terminal.'],
      workingDir: ['string', 'The directory the program starts in.'],
    },
  },
  ContainerPort: {
    description: 'A port a container listens on.',
    fields: {
      containerPort: ['integer', 'The number of the port.'],
      name: ['string', 'A name for the port.'],
      protocol: ['string', 'TCP, UDP or SCTP.'],
    },
  },
  EnvVar: {
    description: 'An environment variable.',
    fields: { name: ['string', 'Its name.'], value: ['string', 'Its value.'] },
  },
  PodStatus: {
    description: 'What a pod is doing.',
    fields: {
      phase: ['string', 'Pending, Running, Succeeded or Failed.'],
      podIP: ['string', 'The address of the pod.'],
      hostIP: ['string', 'The address of its node.'],
      startTime: ['string', 'When the node took the pod.'],
      conditions: ['[]object', 'Whether the pod is scheduled, initialized and ready.'],
      containerStatuses: ['[]object', 'State, restarts and last state of each container.'],
    },
  },
};

/** Fields beside `metadata` of the kinds that have more than `spec` and `status` objects. */
const BODIES: Readonly<Record<string, Readonly<Record<string, Field>>>> = {
  Pod: { spec: ['PodSpec', 'What the pod runs.'], status: ['PodStatus', 'What it is doing.'] },
  ConfigMap: {
    data: ['object', 'Keys and text values.'],
    binaryData: ['object', 'Keys and base64 values.'],
    immutable: ['boolean', 'Whether the data may never change.'],
  },
  Secret: {
    data: ['object', 'Keys and base64 values.'],
    stringData: ['object', 'Keys and plain values, stored as data.'],
    type: ['string', 'What the secret is for.'],
  },
  ServiceAccount: { secrets: ['[]object', 'Secrets that pods of this account may use.'] },
  Event: {
    involvedObject: ['object', 'What the event is about.'],
    reason: ['string', 'Why it happened, for machines.'],
    message: ['string', 'What happened, for people.'],
    type: ['string', 'Normal or Warning.'],
  },
};

/** Component schemas that any document needs, by their full names. */
export function sharedSchemas(): ApiObject {
  return Object.fromEntries(
    Object.entries(SCHEMAS).map(([name, { description, fields }]) => [
      schemaName(name),
      { description, type: 'object', properties: describeFields(fields) },
    ]),
  );
}

/** The schema of a kind. */
export function kindSchema(kind: string): ApiObject {
  const body = BODIES[kind] ?? {
    spec: ['object', `What the ${kind} should be.`] as const,
    status: ['object', `What the ${kind} is now.`] as const,
  };
  return {
    description: `${kind} as the demo cluster stores it.`,
    type: 'object',
    properties: describeFields({
      apiVersion: ['string', 'Group and version of the schema.'],
      kind: ['string', 'The kind of the object.'],
      metadata: ['ObjectMeta', 'Metadata that every stored object has.'],
      ...body,
    }),
  };
}

/** The full name of a schema of this file. */
export function schemaName(name: string): string {
  return `${PREFIX}${name}`;
}

function describeFields(fields: Readonly<Record<string, Field>>): ApiObject {
  return Object.fromEntries(
    Object.entries(fields).map(([name, [type, description]]) => [
      name,
      { description, ...describeType(type) },
    ]),
  );
}

function describeType(type: string): ApiObject {
  if (type.startsWith('[]')) return { type: 'array', items: describeType(type.slice(2)) };
  if (Object.hasOwn(SCHEMAS, type)) return { allOf: [{ $ref: `#/components/schemas/${schemaName(type)}` }] };
  return type === 'object' ? { type, additionalProperties: true } : { type };
}

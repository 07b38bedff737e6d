/** Clients for a dry run. They change neither the cluster nor the tailnet. They print most changes instead. */
import { stringify } from 'yaml';
import { z } from 'zod';
import type { TailnetControl, TailnetServices } from './auth-keys.ts';
import type { KubeClient } from './kube-client.ts';
import { kindOf, KINDS, parseObject, type DesiredObject } from './kube-object.ts';

type Print = (text: string) => void;

/**
 * Creates a client that sends only read requests to the API server. Instead of applying objects, the client prints them
 * as YAML documents, without the data of Secrets.
 */
export function createDryRunClient(client: KubeClient, print: Print): KubeClient {
  return {
    ...client,
    apply(object) {
      print(`---\n${stringify(withoutData(object), { lineWidth: 0 })}`);
      return Promise.resolve(parseObject({ ...object }));
    },
    create: (_kind, object) => Promise.resolve(parseObject({ ...object })),
    patch(kind, { name, subresource }, { body }) {
      const shown = subresource === 'status' ? shownConditions(body) : '';
      if (shown !== '') print(`# ${shown}\n`);
      return Promise.resolve(parseObject({ ...kind, metadata: { name: name ?? '' } }));
    },
    remove(kind, { name }) {
      print(`# would delete ${kind.kind} ${name ?? ''}\n`);
      return Promise.resolve(true);
    },
  };
}

/** Returns a client that sends queries to the control server, but creates no keys and deletes no nodes. */
export function createDryRunControl(
  control: TailnetControl,
  print: Print,
  nowMs: () => number,
): TailnetControl {
  return {
    ...control,
    ...(control.services === undefined ? {} : { services: dryServices(control.services, print) }),
    createKey({ tags, lifetimeMs }) {
      print(`# would create an auth key for ${tags.join(', ')}\n`);
      return Promise.resolve({
        key: 'made-when-applied',
        id: 'made-when-applied',
        expiresAtMs: nowMs() + lifetimeMs,
      });
    },
    revokeKey: () => Promise.resolve(),
    deleteDevice(id) {
      print(`# would delete node ${id}\n`);
      return Promise.resolve(true);
    },
    approveRoutes(id, routes) {
      print(`# would approve the routes ${routes.join(', ')} of node ${id}\n`);
      return Promise.resolve();
    },
    setTags(id, tags) {
      print(`# would set the tags of node ${id} to ${tags.join(', ')}\n`);
      return Promise.resolve();
    },
  };
}

function dryServices(services: TailnetServices, print: Print): TailnetServices {
  return {
    ...services,
    put({ name }) {
      print(`# would write Tailscale Service ${name}\n`);
      return Promise.resolve();
    },
    remove(name) {
      print(`# would delete Tailscale Service ${name}\n`);
      return Promise.resolve();
    },
  };
}

const conditions = z
  .array(z.object({ type: z.string(), status: z.string(), message: z.string() }))
  .default([]);
const conditionSchema = z.object({
  status: z.object({ conditions, parents: z.array(z.object({ conditions })).default([]) }),
});

/**
 * Returns the conditions in a status as text; empty for a status without conditions, such as the status of an Ingress.
 */
function shownConditions(body: object): string {
  const { conditions: own, parents } = conditionSchema.parse(body).status;
  const all = [...own, ...parents.flatMap((parent) => parent.conditions)];
  return all.map(({ type, status, message }) => `${type}=${status}: ${message}`).join('; ');
}

function withoutData(object: DesiredObject): object {
  if (kindOf(object) !== KINDS.secret || !('data' in object)) return object;
  const keys = typeof object.data === 'object' && object.data !== null ? Object.keys(object.data) : [];
  return { ...object, data: Object.fromEntries(keys.map((key) => [key, '[secret]'])) };
}

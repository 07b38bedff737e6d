/**
 * Adapter for Headscale's API (v1, the REST form of its gRPC service) with an API key. Tags need Headscale 0.28 or
 * newer.
 */
import { z } from 'zod';
import type { TailnetControl } from './auth-keys.ts';
import { createControlRequest, refused, type ControlAnswer, type ControlOptions } from './control-request.ts';

export interface HeadscaleApiOptions extends ControlOptions {
  /** Reads the API key. Called for each request, so that a rotated key is used. */
  readonly apiKey: () => Promise<string>;
}

const keySchema = z.object({
  preAuthKey: z.object({ id: z.coerce.string(), key: z.string(), expiration: z.string().optional() }),
});
const keysSchema = z.object({
  preAuthKeys: z
    .array(
      z.object({
        id: z.coerce.string(),
        used: z.boolean().default(false),
        expiration: z.string().optional(),
      }),
    )
    .default([]),
});
const nodeSchema = z.object({
  node: z.object({
    givenName: z.string().default(''),
    name: z.string().default(''),
    ipAddresses: z.array(z.string()).default([]),
    machineKey: z.string().optional(),
  }),
});
const nodesSchema = z.object({
  nodes: z
    .array(
      z.object({
        id: z.coerce.string(),
        givenName: z.string().default(''),
        name: z.string().default(''),
        tags: z.array(z.string()).default([]),
        machineKey: z.string().default(''),
      }),
    )
    .default([]),
});
const problemSchema = z.object({ code: z.number().optional(), message: z.string().default('') });

/** Status code NOT_FOUND of gRPC. For a missing object, some versions of Headscale return a database error instead. */
const NOT_FOUND = 5;

/** Creates the adapter. */
export function createHeadscaleControl(options: HeadscaleApiOptions): TailnetControl {
  const request = createControlRequest(options.baseUrl, options.signal);

  async function call(
    method: 'GET' | 'POST' | 'DELETE',
    path: string,
    json?: object,
  ): Promise<ControlAnswer> {
    return request({
      method,
      path: `/api/v1${path}`,
      authorization: `Bearer ${await options.apiKey()}`,
      ...(json === undefined ? {} : { json }),
    });
  }

  return {
    loginServer: options.loginServer,
    issuesCertificates: false,
    async createKey({ tags, lifetimeMs }) {
      const expiresAtMs = options.nowMs() + lifetimeMs;
      const answer = await call('POST', '/preauthkey', {
        reusable: false,
        ephemeral: false,
        expiration: new Date(expiresAtMs).toISOString(),
        aclTags: tags,
      });
      if (answer.status !== 200) throw refused('creating an auth key', answer);
      const { preAuthKey } = keySchema.parse(answer.body);
      return { id: preAuthKey.id, key: preAuthKey.key, expiresAtMs };
    },
    async keyUsable(id) {
      const answer = await call('GET', '/preauthkey');
      if (answer.status !== 200) throw refused('listing auth keys', answer);
      const found = keysSchema.parse(answer.body).preAuthKeys.find((key) => key.id === id);
      return found !== undefined && !found.used && !(Date.parse(found.expiration ?? '') <= options.nowMs());
    },
    async revokeKey(id) {
      const answer = await call('POST', '/preauthkey/expire', { id });
      if (answer.status >= 400 && !isAbsent(answer)) throw refused('revoking an auth key', answer);
    },
    async device(id) {
      const answer = await call('GET', `/node/${encodeURIComponent(id)}`);
      if (isAbsent(answer)) return undefined;
      if (answer.status !== 200) throw refused('reading a node', answer);
      const { node } = nodeSchema.parse(answer.body);
      const { givenName, name, ipAddresses: addresses, machineKey } = node;
      return { hostname: givenName === '' ? name : givenName, addresses, machineKey };
    },
    async allDevices() {
      const answer = await call('GET', '/node');
      if (answer.status !== 200) throw refused('listing the nodes', answer);
      return nodesSchema
        .parse(answer.body)
        .nodes.map(({ givenName, name, ...node }) => ({ ...node, name: givenName || name }));
    },
    async deleteDevice(id) {
      const answer = await call('DELETE', `/node/${encodeURIComponent(id)}`);
      if (isAbsent(answer)) return false;
      if (answer.status >= 400) throw refused('deleting a node', answer);
      return true;
    },
    async approveRoutes(id, routes) {
      const answer = await call('POST', `/node/${encodeURIComponent(id)}/approve_routes`, { routes });
      if (answer.status >= 400) throw refused('approving the routes of a node', answer);
    },
    async setTags(id, tags) {
      const answer = await call('POST', `/node/${encodeURIComponent(id)}/tags`, { tags });
      if (answer.status >= 400) throw refused('setting the tags of a node', answer);
    },
  };
}

function isAbsent({ status, body }: ControlAnswer): boolean {
  if (status === 404) return true;
  const problem = problemSchema.safeParse(body);
  if (status < 400 || !problem.success) return false;
  return problem.data.code === NOT_FOUND || /\b(record|node|key) not found\b/i.test(problem.data.message);
}

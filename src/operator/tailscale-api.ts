/**
 * Adapter for Tailscale's API (v2). The OAuth client of the operator needs write access to keys (`auth_keys`) and
 * devices (`devices:core`). For ProxyGroups, the client also needs write access to Services (`services`), and for
 * Connectors, to routes (`devices:routes`).
 */
import { z } from 'zod';
import type { TailnetControl, TailnetServices } from './auth-keys.ts';
import { createControlRequest, refused, type ControlAnswer, type ControlOptions } from './control-request.ts';

/** An OAuth client, with its secret or, for workload identity federation, with a token that the cluster has signed. */
export type ApiCredentials =
  | { readonly clientId: string; readonly clientSecret: string }
  | { readonly clientId: string; readonly idToken: string };

export interface TailscaleApiOptions extends ControlOptions {
  /** Reads the credentials. Called for each new token, so that rotated credentials are used. */
  readonly credentials: () => Promise<ApiCredentials>;
}

const tokenSchema = z.object({ access_token: z.string(), expires_in: z.number().default(3600) });
const keySchema = z.object({ id: z.string(), key: z.string(), expires: z.string().optional() });
const keyStateSchema = z.object({ invalid: z.boolean().optional(), revoked: z.string().optional() });
const deviceSchema = z.object({
  hostname: z.string().default(''),
  addresses: z.array(z.string()).default([]),
  machineKey: z.string().optional(),
});
const devicesSchema = z.object({
  devices: z
    .array(
      z.object({
        nodeId: z.string(),
        hostname: z.string().default(''),
        name: z.string().default(''),
        tags: z.array(z.string()).default([]),
        machineKey: z.string().default(''),
      }),
    )
    .default([]),
});

const serviceSchema = z.object({
  name: z.string(),
  tags: z.array(z.string()).default([]),
  ports: z.array(z.string()).default([]),
  comment: z.string().default(''),
  annotations: z.record(z.string(), z.string()).default({}),
  addrs: z.array(z.string()).default([]),
});
const servicesSchema = z.object({ vipServices: z.array(serviceSchema).default([]) });

/** Time before expiry at which a new token is requested. */
const TOKEN_MARGIN_MS = 60_000;
/** Maximum length of the description of an auth key. */
const MAX_DESCRIPTION = 50;

/** Creates the adapter. The client keeps a token until it expires or is rejected. */
export function createTailscaleControl(options: TailscaleApiOptions): TailnetControl {
  const request = createControlRequest(options.baseUrl, options.signal);
  let token: { readonly value: string; readonly endsAtMs: number } | undefined;

  async function authorization(): Promise<string> {
    if (token === undefined || token.endsAtMs <= options.nowMs()) {
      const answer = await request({
        method: 'POST',
        ...tokenRequest(await options.credentials()),
      });
      if (answer.status !== 200) throw refused('getting an access token', answer);
      const { access_token: value, expires_in: seconds } = tokenSchema.parse(answer.body);
      token = { value, endsAtMs: options.nowMs() + seconds * 1000 - TOKEN_MARGIN_MS };
    }
    return `Bearer ${token.value}`;
  }

  async function call(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    path: string,
    json?: object,
  ): Promise<ControlAnswer> {
    const send = async (): Promise<ControlAnswer> =>
      request({
        method,
        path: `/api/v2${path}`,
        authorization: await authorization(),
        ...(json === undefined ? {} : { json }),
      });
    const answer = await send();
    if (answer.status !== 401) return answer;
    token = undefined;
    return send();
  }

  return {
    loginServer: options.loginServer,
    issuesCertificates: true,
    services: servicesOf(call),
    async createKey({ tags, lifetimeMs, description }) {
      const create = { reusable: false, ephemeral: false, preauthorized: true, tags };
      const answer = await call('POST', '/tailnet/-/keys', {
        capabilities: { devices: { create } },
        expirySeconds: Math.round(lifetimeMs / 1000),
        description: description.slice(0, MAX_DESCRIPTION),
      });
      if (answer.status !== 200) throw refused('creating an auth key', answer);
      const { id, key, expires } = keySchema.parse(answer.body);
      const expiresAtMs = Date.parse(expires ?? '');
      return { id, key, expiresAtMs: Number.isNaN(expiresAtMs) ? options.nowMs() + lifetimeMs : expiresAtMs };
    },
    async keyUsable(id) {
      const answer = await call('GET', `/tailnet/-/keys/${encodeURIComponent(id)}`);
      if (answer.status === 404) return false;
      if (answer.status !== 200) throw refused('reading an auth key', answer);
      const { invalid, revoked } = keyStateSchema.parse(answer.body);
      return invalid !== true && (revoked ?? '') === '';
    },
    async revokeKey(id) {
      const answer = await call('DELETE', `/tailnet/-/keys/${encodeURIComponent(id)}`);
      if (answer.status >= 400 && answer.status !== 404) throw refused('revoking an auth key', answer);
    },
    ...devicesOf(call),
  };
}

/** Returns the request that exchanges credentials for an access token. */
function tokenRequest(credentials: ApiCredentials) {
  const { clientId: client_id } = credentials;
  return 'idToken' in credentials
    ? { path: '/api/v2/oauth/token-exchange', form: { client_id, jwt: credentials.idToken } }
    : {
        path: '/api/v2/oauth/token',
        form: { grant_type: 'client_credentials', client_id, client_secret: credentials.clientSecret },
      };
}

type Call = (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  json?: object,
) => Promise<ControlAnswer>;

function devicesOf(
  call: Call,
): Pick<TailnetControl, 'device' | 'allDevices' | 'deleteDevice' | 'approveRoutes' | 'setTags'> {
  return {
    async device(id) {
      const answer = await call('GET', `/device/${encodeURIComponent(id)}`);
      if (answer.status === 404) return undefined;
      if (answer.status !== 200) throw refused('reading a device', answer);
      return deviceSchema.parse(answer.body);
    },
    async allDevices() {
      const answer = await call('GET', '/tailnet/-/devices');
      if (answer.status !== 200) throw refused('listing the devices', answer);
      return devicesSchema.parse(answer.body).devices.map(({ nodeId: id, hostname, name, ...device }) => ({
        ...device,
        id,
        name: name || hostname,
      }));
    },
    async deleteDevice(id) {
      const answer = await call('DELETE', `/device/${encodeURIComponent(id)}`);
      if (answer.status === 404) return false;
      if (answer.status >= 400) throw refused('deleting a device', answer);
      return true;
    },
    async approveRoutes(id, routes) {
      const answer = await call('POST', `/device/${encodeURIComponent(id)}/routes`, { routes });
      if (answer.status >= 400) throw refused('approving the routes of a device', answer);
    },
    async setTags(id, tags) {
      const answer = await call('POST', `/device/${encodeURIComponent(id)}/tags`, { tags });
      if (answer.status >= 400) throw refused('setting the tags of a device', answer);
    },
  };
}

function servicesOf(call: Call): TailnetServices {
  const path = (name: string): string => `/tailnet/-/vip-services/${encodeURIComponent(name)}`;
  return {
    async get(name) {
      const answer = await call('GET', path(name));
      if (answer.status === 404) return undefined;
      if (answer.status !== 200) throw refused('reading a Tailscale Service', answer);
      return serviceSchema.parse(answer.body);
    },
    async list() {
      const answer = await call('GET', '/tailnet/-/vip-services');
      if (answer.status !== 200) throw refused('listing Tailscale Services', answer);
      return servicesSchema.parse(answer.body).vipServices;
    },
    async put({ addrs, ...service }) {
      const body = addrs.length === 0 ? service : { ...service, addrs };
      const answer = await call('PUT', path(service.name), body);
      if (answer.status >= 400) throw refused('writing a Tailscale Service', answer);
    },
    async remove(name) {
      const answer = await call('DELETE', path(name));
      if (answer.status >= 400 && answer.status !== 404)
        throw refused('deleting a Tailscale Service', answer);
    },
  };
}

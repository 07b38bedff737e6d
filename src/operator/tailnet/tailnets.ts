/** Selects the control server of a resource's nodes: the operator's own, or that of its `Tailnet` resource. */
import { z } from 'zod';
import type { TailnetControl } from '../auth-keys.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import { secretData } from '../workload/node-state.ts';
import { createTailscaleControl, type ApiCredentials } from '../tailscale-api.ts';
import { apiCredentials, createIdTokens } from './credentials.ts';

/** `gone`: the `Tailnet` resource does not exist, so the operator has no credentials for its control server. */
export type TailnetAnswer =
  | { readonly kind: 'found'; readonly control: TailnetControl }
  | { readonly kind: 'gone'; readonly message: string };

export type Tailnets = ReturnType<typeof createTailnets>;

const tailnetSchema = z.object({
  spec: z.object({
    loginUrl: z.string().default(''),
    credentials: z.object({ secretName: z.string() }),
  }),
});

/** Returns an object whose method `of` finds the control server for a `Tailnet` name. */
export function createTailnets(options: {
  readonly client: Pick<KubeClient, 'get' | 'review'>;
  readonly namespace: string;
  readonly own: TailnetControl;
  /** Login server of `Tailnet` resources that do not name one. */
  readonly defaultLoginServer: string;
  readonly nowMs: () => number;
  readonly signal: AbortSignal;
}) {
  const { client, namespace, nowMs, signal } = options;
  const createIdToken = createIdTokens(client);
  /** One client per login server and Secret, so that access tokens are reused. */
  const controls = new Map<string, TailnetControl>();

  async function credentials(secretName: string): Promise<ApiCredentials> {
    const secret = await client.get(KINDS.secret, { namespace, name: secretName });
    return apiCredentials(secretData(secret), `Secret ${namespace}/${secretName}`, createIdToken);
  }

  return {
    /**
     * @param name `spec.tailnet` of a resource; empty for the operator's own tailnet
     * @throws TailcastError or KubeRefusal after a temporary failure
     */
    async of(name: string): Promise<TailnetAnswer> {
      if (name === '') return { kind: 'found', control: options.own };
      const resource = await client.get(KINDS.tailnet, { name });
      if (resource === undefined) return { kind: 'gone', message: `Tailnet "${name}" does not exist` };
      const { loginUrl, credentials: named } = tailnetSchema.parse(resource).spec;
      const loginServer = loginUrl === '' ? options.defaultLoginServer : loginUrl;
      const key = JSON.stringify([loginServer, named.secretName]);
      const known = controls.get(key);
      if (known !== undefined) return { kind: 'found', control: known };
      const control = createTailscaleControl({
        baseUrl: loginServer,
        loginServer,
        credentials: () => credentials(named.secretName),
        nowMs,
        signal,
      });
      controls.set(key, control);
      return { kind: 'found', control };
    },
  };
}

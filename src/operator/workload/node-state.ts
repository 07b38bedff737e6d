/** Reads the tailnet node of a replica from its state Secret. Pure. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { TailnetDevice } from '../auth-keys.ts';
import type { KubeObject } from '../kube-object.ts';
import { nullableList } from './schema.ts';

export interface NodeState {
  /** Stable node ID; undefined until the node has joined. */
  readonly deviceId: string | undefined;
  /** MagicDNS name without the trailing dot. */
  readonly dnsName: string | undefined;
  readonly addresses: readonly string[];
  /** False if the node has reported that it cannot get a certificate. */
  readonly https: boolean;
  /** Tailscale Services that the node advertises. */
  readonly advertised: readonly string[];
  /** Routes that the node advertises. */
  readonly routes: readonly string[];
  /** Uid of the pod that wrote the state, if known. */
  readonly podUid: string | undefined;
  /** Auth key with which the last login failed; `no-authkey` if the pod had none. */
  readonly brokenKey: string | undefined;
}

const profileSchema = z.object({
  AdvertiseServices: nullableList(z.string()),
  AdvertiseRoutes: nullableList(z.string()),
  Config: z
    .object({
      NodeID: z.string().optional(),
      UserProfile: z.object({ LoginName: z.string().optional() }).optional(),
    })
    .nullish(),
});

/**
 * Reads the Secret in which tailscaled stores its state. Tailscale's tsrecorder embeds tailscaled and uses the same
 * format. An invalid field is treated as missing. A node with an invalid profile therefore counts as not joined.
 *
 * @param secret undefined if the Secret does not exist; then all fields are missing
 */
export function readNodeState(secret: KubeObject | undefined): NodeState {
  const data = secretData(secret);
  const profile = readProfile(data);
  const login = profile?.Config?.UserProfile?.LoginName;
  // At Tailscale's control server, the login name of a tagged node is the name of the node. Other control servers may
  // set it to "tagged-devices".
  const fromProfile = login?.includes('.') === true && !login.includes('@') ? login : undefined;
  const dnsName = data.get('device_fqdn') ?? fromProfile;
  return {
    deviceId: nonEmpty(data.get('device_id')) ?? nonEmpty(profile?.Config?.NodeID),
    dnsName: nonEmpty(dnsName?.replace(/\.$/, '')),
    addresses: readAddresses(data.get('device_ips')),
    https: data.get('https_endpoint') !== 'no-https',
    ...offersOf(profile),
    podUid: nonEmpty(data.get('pod_uid')),
    brokenKey: nonEmpty(data.get('reissue_authkey')),
  };
}

/** Prefix of an X25519 key in PKCS #8 (RFC 8410). */
const X25519_PKCS8 = '302e020100300506032b656e04220420';

/**
 * Returns the public half of the machine key in a state Secret, in the format of control servers. tailscaled stores the
 * key before it registers its node. The key therefore identifies the node even if the pod stopped before it stored the
 * node ID.
 */
export function machineKeyOf(secret: KubeObject): string | undefined {
  const hex = /^privkey:([0-9a-f]{64})$/.exec(secretData(secret).get('_machinekey') ?? '')?.[1];
  if (hex === undefined || /^0+$/.test(hex)) return undefined;
  const der = Buffer.from(X25519_PKCS8 + hex, 'hex');
  const { x = '' } = createPublicKey(createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })).export({
    format: 'jwk',
  });
  return `mkey:${Buffer.from(x, 'base64url').toString('hex')}`;
}

/**
 * True if the node belongs to the replica with this state Secret. The node ID in the Secret is no proof, because the
 * pod can write any ID. Only the node's own machine has the private key.
 */
export function isNodeOf(secret: KubeObject, { machineKey = '' }: TailnetDevice): boolean {
  return machineKey === '' || machineKey === machineKeyOf(secret);
}

/** Returns the decoded values in the `data` of a Secret; an empty map if the Secret does not exist. */
export function secretData(secret: KubeObject | undefined): ReadonlyMap<string, string> {
  const data = z.record(z.string(), z.string()).safeParse(secret?.['data'] ?? {});
  if (!data.success) return new Map();
  return new Map(
    Object.entries(data.data).map(([key, value]) => [key, new TextDecoder().decode(decode(value))]),
  );
}

function decode(base64: string): Uint8Array {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

function readProfile(data: ReadonlyMap<string, string>): z.infer<typeof profileSchema> | undefined {
  const text = data.get(data.get('_current-profile') ?? '');
  if (text === undefined) return undefined;
  return profileSchema.safeParse(jsonOrUndefined(text)).data;
}

function offersOf(
  profile: z.infer<typeof profileSchema> | undefined,
): Pick<NodeState, 'advertised' | 'routes'> {
  return { advertised: profile?.AdvertiseServices ?? [], routes: profile?.AdvertiseRoutes ?? [] };
}

function readAddresses(json: string | undefined): readonly string[] {
  return z.array(z.string()).safeParse(jsonOrUndefined(json ?? '')).data ?? [];
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}

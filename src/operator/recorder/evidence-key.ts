/**
 * The signing key that all replicas of a Recorder share. A replica joins its parts of a session with those of other
 * replicas only if it trusts their key.
 */
import { generateKeyPairSync } from 'node:crypto';
import { TailcastError } from '../../errors.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS, labelValue } from '../kube-object.ts';
import type { NodeGroup, SpecOptions } from '../workload/workload.ts';

/** Name of the Secret's field with the signing key, and of the mounted file. */
export const EVIDENCE_KEY = 'key.pem';

const MANAGED_BY = { 'app.kubernetes.io/managed-by': 'tailscale-operator' };
const EVIDENCE_OF = 'tailcast.dev/evidence-of';

/** Returns the name of the Secret with the private key. */
export function evidenceSecretName(groupName: string): string {
  return `${groupName}-evidence`;
}

/**
 * Creates the Secret unless it exists. The Secret has neither an owner nor the labels of the group, so that it outlives
 * the Recorder, as the recordings in the bucket do. A new Recorder with the same name uses the same key, so it trusts
 * the old recordings.
 *
 * @throws TailcastError `OBJECT_NOT_OURS`; KubeRefusal.
 */
export async function ensureEvidenceKey(
  client: Pick<KubeClient, 'get' | 'create'>,
  group: NodeGroup,
  { namespace }: Pick<SpecOptions, 'namespace'>,
): Promise<void> {
  const name = evidenceSecretName(group.name);
  const labels = { ...MANAGED_BY, [EVIDENCE_OF]: labelValue(group.name) };
  const existing = await client.get(KINDS.secret, { namespace, name });
  if (existing === undefined) {
    const pem = generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' });
    const secret = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, namespace, labels },
      immutable: true,
      data: { [EVIDENCE_KEY]: Buffer.from(pem).toString('base64') },
    };
    await client.create(KINDS.secret, secret);
  } else if (Object.entries(labels).some(([label, value]) => existing.metadata.labels?.[label] !== value))
    throw new TailcastError(
      'OBJECT_NOT_OURS',
      `Secret ${namespace}/${name} exists and is not the evidence key of Recorder "${group.name}"`,
    );
}

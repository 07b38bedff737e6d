import { describe, expect, it } from 'vitest';
import { createDryRunClient } from '../../src/operator/dry-run.ts';
import type { KubeClient } from '../../src/operator/kube-client.ts';
import { KINDS } from '../../src/operator/kube-object.ts';

/** Writes a status with the dry-run client, and returns the client's output. The client must not send a request. */
async function printed(status: object): Promise<string> {
  let text = '';
  const client = createDryRunClient({} as KubeClient, (more) => {
    text += more;
  });
  const reference = { namespace: 'prod', name: 'shop', subresource: 'status' } as const;
  const { signal } = new AbortController();
  await client.patch(KINDS.ingress, reference, { kind: 'merge', body: { status } }, signal);
  return text;
}

describe('a dry run', () => {
  const condition = { type: 'Ready', status: 'False', message: 'waiting' };

  it('prints the conditions of a status, wherever they are', async () => {
    expect(await printed({ conditions: [condition] })).toBe('# Ready=False: waiting\n');
    expect(await printed({ parents: [{ conditions: [condition] }] })).toBe('# Ready=False: waiting\n');
  });

  it('goes on where a status has none, as that of an Ingress', async () => {
    expect(await printed({ loadBalancer: { ingress: [{ hostname: 'shop.lab.ts.net' }] } })).toBe('');
  });
});

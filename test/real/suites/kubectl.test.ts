/**
 * Every kubectl of this machine, over both transports, through a gateway of every kind, in front of two API servers.
 * What it sees must be what it sees at the API server itself, and what is recorded must be what it saw.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findKubectls, speaks } from '../rig/kubectl.ts';
import { type Kubernetes, type KubernetesVersion, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { type Gateways, startGateways } from '../support/gateways.ts';
import { type Client, casesFor, runJob } from '../support/matrix.ts';

const kubectls = await findKubectls();
const ends = new Set([kubectls[0], kubectls.at(-1)]);
const clients: readonly Client[] = kubectls.flatMap((kubectl) =>
  (['spdy', 'websocket'] as const)
    .filter((transport) => speaks(kubectl, transport))
    .map((transport) => ({ kubectl, transport })),
);
const jobs = clients.flatMap((client) =>
  casesFor(client, ends.has(client.kubectl) ? 'full' : 'short').map((item) => ({
    name: `kubectl ${client.kubectl.minor} over ${client.transport}: ${item.name}`,
    client,
    item,
  })),
);

/** On 1.36 the node takes WebSockets itself; on 1.34 the API server translates them to SPDY. */
const versions: readonly KubernetesVersion[] = ['1.36', '1.34'];

describe.each(versions)('Kubernetes %s', (version) => {
  let rig: Rig;
  let cluster: Kubernetes;
  let gateways: Gateways;

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, { version, node: { webSockets: version === '1.36' } });
    gateways = await startGateways(rig, cluster);
  });

  afterAll(() => rig.stop());

  it.concurrent.each(jobs)('$name', { timeout: 180_000 }, async ({ client, item }) => {
    const { problems } = await runJob({ client, item, cluster, gateways });
    expect(problems).toEqual([]);
  });
});

/** Hundreds of watches through the gateway to a real API server. */
import { Agent, request } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway } from '../../../src/compose/gateway.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createMetrics } from '../../../src/observe/metrics.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { identityOf } from '../support/product.ts';
import { gatewaySettings } from '../../support/settings.ts';

const WATCHES = 350;
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

/** A watch and the events that it has received. */
interface Watch {
  readonly response: IncomingMessage;
  text: string;
  over: 'no' | 'whole' | 'cut';
}

describe('many watches', () => {
  let rig: Rig;
  let cluster: Kubernetes;
  let port: number;
  let ca: string;
  const metrics = createMetrics();
  const agent = new Agent({ keepAlive: true });

  beforeAll(async () => {
    rig = createRig();
    cluster = await startKubernetes(rig, {
      node: false,
      controllers: false,
    });
    const kubeconfig = cluster.kubeconfig('gateway', { token: cluster.tokens.impersonator });
    const gateway = await startGateway({
      config: gatewaySettings({ kubeconfig, stateDirectory: join(rig.folder, 'gateway') }),
      environment: new Map(),
      log: createSilentLogger(),
      accessSink: process.stderr,
      identity: identityOf({ login: 'alice@example.com' }, undefined),
      metrics,
    });
    rig.onStop(() => gateway.close(500));
    port = gateway.port;
    ca = gateway.caPem ?? '';
  });
  afterAll(async () => {
    agent.destroy();
    await rig.stop();
  });

  function watch(query = ''): Promise<Watch> {
    return new Promise((resolve, reject) => {
      const path = `${CONFIG_MAPS}?watch=true${query}`;
      const asked = request({ host: '127.0.0.1', port, ca, agent, path }, (response) => {
        if (response.statusCode !== 200) return reject(new Error(`answered ${response.statusCode}`));
        const found: Watch = { response, text: '', over: 'no' };
        response.on('data', (chunk: Buffer) => (found.text += chunk.toString()));
        response.on('error', () => {});
        response.on('close', () => (found.over = response.complete ? 'whole' : 'cut'));
        resolve(found);
      });
      asked.on('error', reject);
      asked.end();
    });
  }

  const gauge = async (name: string): Promise<number> =>
    (await metrics.registry.getSingleMetric(name)?.get())?.values[0]?.value ?? Number.NaN;
  const create = (name: string): Promise<unknown> =>
    cluster.api('POST', CONFIG_MAPS, { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });

  it('each get every event under the name of their caller', async () => {
    const open: Watch[] = [];
    for (let count = 0; count < WATCHES; count += 10)
      open.push(...(await Promise.all(Array.from({ length: 10 }, () => watch()))));
    expect(await gauge('tailcast_upstream_connections')).toBeGreaterThanOrEqual(WATCHES);
    for (const name of ['first', 'second']) {
      await create(name);
      await expect
        .poll(() => open.filter(({ text }) => text.includes(`"name":"${name}"`)).length, { timeout: 30_000 })
        .toBe(WATCHES);
    }
    expect(open.filter(({ over }) => over !== 'no')).toEqual([]);
    for (const { response } of open) response.destroy();
    await expect
      .poll(() => gauge('tailcast_upstream_connections'), { timeout: 30_000 })
      .toBeLessThan(WATCHES);
    const asked = cluster
      .audit()
      .filter(
        ({ verb, stage, impersonatedUser }) =>
          verb === 'watch' && stage === 'ResponseStarted' && impersonatedUser,
      );
    expect(asked).toHaveLength(WATCHES);
    expect(new Set(asked.map(({ impersonatedUser }) => impersonatedUser?.username))).toEqual(
      new Set(['alice@example.com']),
    );
  });

  it('end when the API server ends them, and are cut when it dies', async () => {
    const ending = await Promise.all([watch('&timeoutSeconds=2'), watch('&timeoutSeconds=2')]);
    await expect.poll(() => ending.map(({ over }) => over), { timeout: 20_000 }).toEqual(['whole', 'whole']);
    const going = await Promise.all(Array.from({ length: 20 }, () => watch()));
    await cluster.programs.apiServer.stop();
    await expect.poll(() => going.filter(({ over }) => over === 'cut').length, { timeout: 20_000 }).toBe(20);
  });

  it('are never refused for the rights of the gateway while the API server restarts', async () => {
    const seen = new Map<string, number>();
    let isOver = false;
    const list = (): Promise<string> =>
      new Promise((resolve) => {
        const asked = request({ host: '127.0.0.1', port, ca, agent, path: CONFIG_MAPS }, (response) => {
          const { statusCode, headers } = response;
          response
            .resume()
            .on('close', () => resolve(`${statusCode} ${headers['retry-after'] ?? ''}`.trim()));
        });
        asked.on('error', () => resolve('cut'));
        asked.end();
      });
    const clients = Array.from({ length: 8 }, async () => {
      while (!isOver) {
        const answer = await list();
        seen.set(answer, (seen.get(answer) ?? 0) + 1);
      }
    });
    const { apiServer } = cluster.programs;
    for (let round = 0; round < 3; round++) {
      await apiServer.stop();
      apiServer.start();
      const before = seen.get('200') ?? 0;
      await rig.until('lists after the restart', async () =>
        (seen.get('200') ?? 0) > before + 500 ? true : undefined,
      );
    }
    isOver = true;
    await Promise.all(clients);
    process.stderr.write(`watches: lists while the API server restarted: ${JSON.stringify([...seen])}\n`);
    expect([...seen.keys()].filter((answer) => !/^(200|50[234] \d+|502|504|cut)$/.test(answer))).toEqual([]);
  });
});

/** A complete gateway in this process, in front of a double of an API server. */
import { mkdtemp, readdir } from 'node:fs/promises';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startGateway, type RunningGateway } from '../../src/compose/gateway.ts';
import { openPortal } from '../../src/compose/portal.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { GATEWAY_STATE_FORMAT, markFormat } from '../../src/folder-format.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { person } from '../proxy/rig.ts';
import { startApiServerDouble, type ApiServerDouble } from '../support/api-server-double.ts';
import { settingsOf } from '../support/settings.ts';
import { writeKubeconfig } from '../support/kubectl.ts';

interface Started {
  readonly gateway: RunningGateway;
  readonly upstream: ApiServerDouble;
  readonly log: () => string;
  /** Starts another gateway in front of the same API server. */
  start(flags: Readonly<Record<string, unknown>>): Promise<RunningGateway>;
}

async function start(
  flags: Readonly<Record<string, unknown>>,
  environment: ReadonlyMap<string, string> = new Map(),
): Promise<Started> {
  const upstream = await startApiServerDouble();
  onTestFinished(() => upstream.close());
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-gateway-'));
  const url = `https://127.0.0.1:${upstream.port}`;
  const kubeconfig = await writeKubeconfig({ directory, url, caPem: upstream.caPem, token: 'secret' });
  const lines: string[] = [];
  const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } });
  const startOne = async (own: Readonly<Record<string, unknown>>): Promise<RunningGateway> => {
    const config = settingsOf(GATEWAY_SETTINGS, {
      kubeconfig,
      identity: 'static',
      listen: '127.0.0.1:0',
      opsListen: 'off',
      tls: 'self-signed',
      stateDirectory: join(directory, 'state'),
      ...own,
    });
    const accessSink = { write: () => true, writableLength: 0 };
    const gateway = await startGateway({ config, environment, log, accessSink, identity: person() });
    onTestFinished(() => gateway.close(0));
    return gateway;
  };
  return { gateway: await startOne(flags), upstream, log: () => lines.join(''), start: startOne };
}

async function statusOf(
  { host, port, caPem }: RunningGateway,
  path: string,
  agent: Agent | false = false,
): Promise<number | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
  const asked = request({ host, port, path, ca: caPem, agent }, (response) => {
    response.resume();
    response.on('end', () => resolve(response.statusCode));
  });
  asked.on('error', reject);
  asked.end();
  return promise;
}

describe('a gateway', () => {
  it('brings requests to the API server as the caller, from the start to the end', async () => {
    const { gateway, upstream } = await start({ portal: false });
    expect(gateway.opsAddress).toBeUndefined();
    expect(await statusOf(gateway, '/version')).toBe(200);
    expect(upstream.requests).toEqual(['GET /version']);
    expect(upstream.impersonated[0]).toBe('alice@example.com');
    await gateway.close(1000);
    await expect(statusOf(gateway, '/version')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('responds with 429 to a connection above the limit of its user', async () => {
    const { gateway, upstream } = await start({ portal: false, requestsPerUser: 2 });
    const agents = [1, 2].map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
    onTestFinished(() => agents.forEach((agent) => agent.destroy()));
    for (const agent of agents) expect(await statusOf(gateway, '/version', agent)).toBe(200);
    expect(await statusOf(gateway, '/version')).toBe(429);
    expect(await statusOf(gateway, '/version', agents[0])).toBe(200);
    expect(upstream.requests).toHaveLength(3);
  });

  it('that cannot listen is none, and leaves nothing open', async () => {
    const { gateway, start: another } = await start({});
    const listen = `127.0.0.1:${gateway.port}`;
    await expect(another({ listen })).rejects.toMatchObject({
      code: 'START_FAILED',
      message: expect.stringContaining(`gateway: ${listen}: the address is in use`),
    });
    expect(await statusOf(gateway, '/version')).toBe(200);
  });

  it('leaves a folder alone that a newer version wrote', async () => {
    const { start: another } = await start({});
    const stateDirectory = await mkdtemp(join(tmpdir(), 'tailcast-gateway-'));
    const { kind, format } = GATEWAY_STATE_FORMAT;
    await markFormat(stateDirectory, { kind, format: format + 1 });
    await expect(another({ stateDirectory })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('was written by tailcast'),
    });
    expect(await readdir(stateDirectory)).toEqual(['format.json']);
  });

  it('has a portal only where the settings want one', async () => {
    const { gateway, start: another } = await start({ portal: false });
    expect(await statusOf(gateway, '/-/recordings')).toBe(404);
    expect(await statusOf(await another({ portal: true }), '/-/recordings')).not.toBe(404);
    await expect(another({ portal: false, portalRecorders: 'rec.ts.net' })).rejects.toThrow(
      'rec.ts.net is neither a tag nor ip:port',
    );
  });
});

it('a portal that is off is nothing, and still names what is no recorder', async () => {
  const tailnet = {} as Parameters<typeof openPortal>[1];
  const deps = {} as Parameters<typeof openPortal>[2];
  const settings = { portal: false, portalPort: undefined };
  expect(await openPortal({ ...settings, portalRecorders: [] }, tailnet, deps)).toBeUndefined();
  await expect(openPortal({ ...settings, portalRecorders: ['rec'] }, tailnet, deps)).rejects.toThrow(
    'neither a tag nor ip:port',
  );
});

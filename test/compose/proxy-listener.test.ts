import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { INGRESS_SETTINGS } from '../../src/config/ingress.ts';
import { runIngress } from '../../src/compose/ingress.ts';
import { forwardTo } from '../../src/operator/ingress/table.ts';
import { startGateway } from '../../src/compose/gateway.ts';
import { assertPrivateProxyListener } from '../../src/tailnet/proxied-listener.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { readSettings } from '../../src/config/settings.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';
import { writeKubeconfig } from '../support/kubectl.ts';

const REACHABLE = [
  '127.0.0.1',
  '::1',
  '::',
  '0.0.0.0',
  '',
  'localhost',
  'LOCALHOST',
  'Localhost.',
  '::ffff:127.0.0.1',
  '::FFFF:7f00:1',
  '0:0:0:0:0:ffff:127.0.0.1',
  '0:0:0:0:0:0:0:1',
  '0000:0000::0001',
  '[::1]',
  '::1%lo',
  '0:0:0:0:0:0:0:0',
  '::ffff:0.0.0.0',
  '::127.0.0.1',
  '127.1',
  '127.0.0.01',
  '0x7f000001',
  '2130706433',
  '100.64.0.1',
  'gateway.example.ts.net',
];

describe('a listener that believes PROXY headers', () => {
  it.each(REACHABLE)('is refused on "%s"', (host) => {
    expect(() => assertPrivateProxyListener(host)).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID' }),
    );
  });

  it.each(['127.0.0.77', '127.1.2.3', '::ffff:127.0.0.77', '::ffff:7f00:4d'])('may be on %s', (host) => {
    expect(() => assertPrivateProxyListener(host)).not.toThrow();
  });

  it('is private for Ingresses by default, and refused elsewhere when the ingress server starts', async () => {
    const hosts = (['443', '80'] as const).map((port) => {
      const { TCPForward: address } = forwardTo(port) as { readonly TCPForward: string };
      return address.slice(0, address.lastIndexOf(':'));
    });
    for (const host of [INGRESS_SETTINGS.listen.fallback.host, ...hosts])
      expect(() => assertPrivateProxyListener(host)).not.toThrow();
    const config = readSettings(INGRESS_SETTINGS, {
      flags: new Map([['listen', '127.0.0.1:0']]),
      environment: new Map(),
      file: undefined,
    });
    const sink = new PassThrough().resume();
    const context = { stdout: sink, stderr: sink, environment: new Map(), signal: AbortSignal.timeout(5000) };
    await expect(runIngress(config, context)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });

  it('is refused when a gateway starts', async () => {
    const localApi = await startLocalApiDouble();
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-listener-'));
    const { caPem } = await createTestAuthority();
    const kubeconfig = await writeKubeconfig({ directory, url: 'https://127.0.0.1:1', caPem, token: 'none' });
    const starting = startGateway({
      config: readSettings(GATEWAY_SETTINGS, {
        flags: new Map<string, unknown>([
          ['kubeconfig', kubeconfig],
          ['socket', localApi.socketPath],
          ['stateDirectory', join(directory, 'state')],
          ['proxyProtocol', 'require'],
          ['listen', '[::ffff:127.0.0.1]:0'],
          ['opsListen', 'off'],
          ['tls', 'none'],
        ]),
        environment: new Map(),
        file: undefined,
      }),
      environment: new Map(),
      log: createSilentLogger(),
      accessSink: { write: () => true, writableLength: 0 },
    });
    await expect(starting).rejects.toThrow(/listener must be on a loopback address of its own/);
    expect(localApi.requests).toEqual([]);
    await localApi.close();
    await rm(directory, { recursive: true });
  });
});

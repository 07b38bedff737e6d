import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it } from 'vitest';
import { gatewayChecks } from '../../src/compose/doctor-gateway.ts';
import { recorderChecks } from '../../src/compose/doctor-recorder.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { RECORDER_SETTINGS } from '../../src/config/recorder.ts';
import { readSettings } from '../../src/config/settings.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';
import { settingsOf } from '../support/settings.ts';
import { listenOn } from '../support/listen.ts';

const { signal } = new AbortController();
const options = { environment: new Map<string, string>(), signal, caller: undefined };

describe('a doctor', () => {
  it.each([
    [{ tlsCert: import.meta.filename }, false],
    [{ tlsKey: import.meta.filename }, false],
    [{ tlsCert: import.meta.filename, tlsKey: import.meta.filename }, true],
  ])('wants certificate and key of a gateway that has them in files: %j', async (files, isEnough) => {
    const localApi = await startLocalApiDouble();
    const over = new AbortController();
    const flags = { socket: localApi.socketPath, tls: 'files', ...files };
    const config = settingsOf(GATEWAY_SETTINGS, flags);
    const problem = await gatewayChecks(config, { ...options, signal: over.signal }).then(
      () => undefined,
      (error: unknown) => String(error),
    );
    over.abort();
    await localApi.close();
    if (isEnough) expect(problem).toBeUndefined();
    else expect(problem).toContain('tls=files needs both tlsCert and tlsKey');
  });

  it('holds the clock of a bucket against that of this machine', async () => {
    let skewMs = 0;
    const server = createServer((_request, response) => {
      response.writeHead(200, { date: new Date(Date.now() + skewMs).toUTCString() }).end();
    });
    await listenOn(server);
    try {
      const { port } = server.address() as AddressInfo;
      const flags = { store: 's3://sessions', spool: '/tmp', s3Endpoint: `http://127.0.0.1:${port}` };
      const config = readSettings(RECORDER_SETTINGS, {
        flags: new Map<string, unknown>(Object.entries({ identity: 'loopback', ...flags })),
        environment: new Map([
          ['AWS_ACCESS_KEY_ID', 'a'],
          ['AWS_SECRET_ACCESS_KEY', 'b'],
        ]),
        file: undefined,
      });
      const clock = recorderChecks(config, options).find(({ id }) => id === 'clock');
      expect(await clock?.run(signal)).toMatchObject({ status: 'ok' });
      skewMs = 3_600_000;
      expect(await clock?.run(signal)).not.toMatchObject({ status: 'ok' });
    } finally {
      server.closeAllConnections();
      server.close();
    }
  });
});

/**
 * The effect on a session of a recorder's rule with the action `end` or `hold`. Gateway and recorder use real
 * connections.
 */
import type { Duplex } from 'node:stream';
import { Registry } from 'prom-client';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openRig, recordingPolicy } from '../../support/recorded-rig.ts';
import { serverMessage, utf8 } from '../../support/stream-peers.ts';
import { createRig, request, until } from '../../tsrecorder/recorder-rig.ts';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import {
  askUpgrade,
  EXEC_TTY,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
} from '../../support/upgrade-rig.ts';

/** Opens a shell through a gateway with a recorder that has one rule with this action. */
async function openShell(action: 'hold' | 'end') {
  const registry = new Registry();
  const recorder = await createRig({
    registry,
    viewers: ['*', '*=end'].map(parseViewRule),
    searchText: 'commands',
    alerts: {
      rules: [
        {
          name: 'aws-key',
          query: { clauses: [] },
          pattern: { in: 'output', source: 'AKIA[0-9A-Z]{16}' },
          action,
        },
      ],
      webhooks: new Map(),
      giveUpMs: 3_600_000,
    },
  });
  onTestFinished(async () => recorder[Symbol.asyncDispose]());
  await until(async () =>
    (await recorder.get('/api/v1/index')).body.includes('"ready"') ? true : undefined,
  );
  const shell = Promise.withResolvers<Duplex>();
  const script: UpgradeScript = (asked, socket) => {
    socket.write(switching(asked, 'v5.channel.k8s.io'));
    socket.write(serverMessage(1, utf8('# ')));
    socket.resume();
    shell.resolve(socket);
  };
  const { host, port } = recorder.recorder.address;
  const { rig: gateway } = await openRig(script, recordingPolicy('failClosed', [`${host}:${port}`]));
  const client = await askUpgrade(gateway.port, { target: EXEC_TTY, headers: WEBSOCKET_V5 });
  /** Returns the number of rule actions with this outcome. */
  const actions = async (outcome: string): Promise<number> => {
    const metric = await registry.getSingleMetric('tailcast_recorder_rule_actions_total')!.get();
    return metric.values.find(({ labels }) => labels['outcome'] === outcome)?.value ?? 0;
  };
  return { client, gateway, recorder, actions, shell: await shell.promise };
}

describe('a rule with the action end', () => {
  it('ends the session within a second of the output, and names the rule to the user', async () => {
    const { client, gateway, shell } = await openShell('end');
    // waits for the first output, because the recorder then reads the session
    shell.write(serverMessage(1, utf8('hay\r\n')));
    await client.reader.until(() => client.reader.bytes.includes('hay'));
    const startMs = performance.now();
    shell.write(serverMessage(1, utf8('key: AKIAABCDEFGHIJKLMNOP\r\n')));
    await client.reader.untilClosed();
    const tookMs = performance.now() - startMs;
    expect(client.reader.bytes.toString('latin1')).toContain('rule aws-key');
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
    // the action takes one second on an idle machine
    expect(tookMs).toBeLessThan(5_000);
  });
});

describe('a rule with the action hold', () => {
  it('pauses the session until a viewer resumes it', async () => {
    const { client, recorder, actions, shell } = await openShell('hold');
    shell.write(serverMessage(1, utf8('key: AKIAABCDEFGHIJKLMNOP\r\n')));
    await until(async () => ((await actions('held')) === 1 ? true : undefined));
    const { id } = (await recorder.list())[0]!;
    shell.write(serverMessage(1, utf8('later\r\n')));
    await until(async () =>
      (await recorder.get(`/api/v1/recordings/${id}/cast`)).body.includes('later') ? true : undefined,
    );
    expect(client.reader.bytes.includes('later')).toBe(false);
    const path = `/api/v1/recordings/${id}/orders/resume`;
    expect((await request(recorder.recorder, { path, method: 'POST' })).status).toBe(200);
    await client.reader.until(() => client.reader.bytes.includes('later'));
  });
});

/** Attack corpus: grants with the address of a tailnet node that is not a recorder, or is no longer a recorder. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { findRecorders } from '../../src/recording/find-recorders.ts';
import { openRecorder, openRig, recordingPolicy } from '../support/recorded-rig.ts';
import { startRecorderDouble } from '../support/recorder-double.ts';
import { clientMessage, serverMessage, utf8 } from '../support/stream-peers.ts';
import { askUpgrade, EXEC_TTY, switching, WEBSOCKET_V5, type UpgradeScript } from '../support/upgrade-rig.ts';
import { introduce, openArena, type Caller } from './arena.ts';
import { honest, send } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const DAVE: Caller = { address: '100.64.0.7', login: 'dave@example.com', groups: ['devs'] };
const TAGS = { recorder: ['tag:recorder'] };

const node = (tags: readonly string[] | undefined, address = '127.0.0.1'): unknown => ({
  ID: 'nOwner',
  DNSName: 'owner.lab.ts.net.',
  TailscaleIPs: [address],
  Tags: tags,
  Online: true,
});
const status = (
  Peer: Readonly<Record<string, unknown>>,
  more: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> => ({
  BackendState: 'Running',
  Peer,
  ...more,
});

describe('the address of a grant that names a tag', () => {
  it.each<readonly [string, Record<string, unknown>]>([
    ['nobody has', status({})],
    ['a person has', status({ a: node(undefined) })],
    ['a node with another tag has', status({ a: node(['tag:recorder2']) })],
    ['a node with the tag has not', status({ a: node(['tag:recorder'], '100.64.0.9') })],
    ['the gateway has, which is no recorder', status({}, { Self: node(['tag:gateway']) })],
    ['tailscaled says nothing about', { BackendState: 'Running' }],
    ['tailscaled cannot be asked about', { odd: true }],
  ])('is not dialled when %s: no shell, and no event', async (_who, said) => {
    const arena = await openArena();
    try {
      arena.localApi.status = said;
      const rule = { impersonate: { groups: DAVE.groups }, recorderAddrs: [arena.recorder.address], ...TAGS };
      introduce(arena.localApi, DAVE, [{ ...rule, enforceRecorder: true, enableEvents: true }]);
      const ask = { caller: DAVE };
      expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', ask)), [403]);
      expectDenied(await observe(arena, () => send(arena, 'h1 request', ask)), [403]);
      expect(arena.recorder.uploads).toHaveLength(0);
    } finally {
      await arena.close();
    }
  });

  it.each([
    ['a peer', status({ a: node(['tag:other', 'tag:recorder']) })],
    ['the node of the gateway itself', status({}, { Self: node(['tag:recorder']) })],
  ])('is dialled when %s has it, with the tag', async (_who, said) => {
    const arena = await openArena();
    try {
      arena.localApi.status = said;
      const rule = { impersonate: { groups: DAVE.groups }, recorderAddrs: [arena.recorder.address], ...TAGS };
      introduce(arena.localApi, DAVE, [{ ...rule, enforceRecorder: true }]);
      const ask = { caller: DAVE };
      expectForwarded(await observe(arena, () => send(arena, 'h1 upgrade', ask)), honest('h1 upgrade', ask));
      await arena.recorder.until(() => arena.recorder.uploads.length > 0);
    } finally {
      await arena.close();
    }
  });
});

it('the address of a lost recorder is checked again before the session moves to it', async () => {
  const recorder = await startRecorderDouble();
  const { port, address } = recorder;
  let hasTag = true;
  const shell = Promise.withResolvers<Duplex>();
  const script: UpgradeScript = (asked, socket) => {
    socket.write(switching(asked, 'v5.channel.k8s.io'));
    socket.resume();
    shell.resolve(socket);
  };
  const tagsOf = { [address]: ['tag:recorder'] };
  const policy = { ...recordingPolicy('failClosed', [address]), tagsOf };
  const carriesTag = async (): Promise<boolean> => hasTag;
  const { rig } = await openRig(script, policy, {
    deps: { findRecorders: (named, signal) => findRecorders(named, { carriesTag }, signal) },
    recorderLimits: { moveTimeoutMs: 1_000 },
  });
  const client = await askUpgrade(rig.port, { target: EXEC_TTY, headers: WEBSOCKET_V5 });
  client.socket.write(clientMessage(4, utf8('{"Width":80,"Height":24}\n')));
  const output = await shell.promise;
  output.write(serverMessage(1, utf8('one\r\n')));
  await recorder.until(() => recorder.uploads[0]?.lines().join('').includes('one') === true);
  hasTag = false;
  await recorder.close();
  const other = await openRecorder({}, port);
  output.write(serverMessage(1, utf8('password: hunter2\r\n')));
  await once(client.socket, 'close');
  expect(other.uploads).toEqual([]);
});

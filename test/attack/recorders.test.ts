/** Attack corpus: grants with the address of a node that is not a recorder, or is no longer a recorder. */
import { describe, expect, it } from 'vitest';
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

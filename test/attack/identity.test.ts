/** Attack corpus A: identities and grants from a hostile or broken tailnet. */
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { userNode, taggedNode } from '../support/local-api-double.ts';
import {
  ALICE,
  introduce,
  BOB,
  CAPABILITY,
  connectPlain,
  openArena,
  proxyHeader,
  type Arena,
  type Caller,
  type Outcome,
} from './arena.ts';
import { valuesOf } from './echo-api-server.ts';
import { honest, LIST, send, type Transport } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const TRANSPORTS = ['h1 request', 'h1 upgrade', 'h2 request'] as const satisfies readonly Transport[];
const LEGACY = 'https://tailscale.com/cap/kubernetes';

interface WhoisAttack {
  readonly id: string;
  readonly what: string;
  /** Body of a whois response. A string is sent unchanged; `undefined` means that the node is unknown. */
  readonly answer: unknown;
}

const login = (name: unknown): unknown => ({ ...userNode(), UserProfile: { ID: 1, LoginName: name } });
const grant = (rules: unknown, capability = CAPABILITY): unknown => ({
  ...userNode(),
  CapMap: { [capability]: rules },
});
const groups = (...names: unknown[]): unknown => grant([{ impersonate: { groups: names } }]);

const ATTACKS: readonly WhoisAttack[] = [
  { id: 'A1', what: 'nobody behind the address', answer: undefined },
  { id: 'A1', what: 'an empty answer', answer: {} },
  { id: 'A1', what: 'no JSON', answer: 'alice' },
  { id: 'A1', what: 'null', answer: 'null' },
  {
    id: 'A1',
    what: 'a node without owner and tags',
    answer: { ...userNode({ User: 0 }), UserProfile: null },
  },
  { id: 'A2', what: 'an empty login', answer: login('') },
  { id: 'A2', what: 'a login of spaces', answer: login('   ') },
  { id: 'A2', what: 'the placeholder of tagged nodes', answer: login('tagged-devices') },
  { id: 'A2', what: 'the placeholder in other letters', answer: login('Tagged-Devices') },
  { id: 'A2', what: 'no login', answer: login(undefined) },
  { id: 'A2', what: 'a number for a login', answer: login(7) },
  {
    id: 'A3',
    what: 'a line break in the login',
    answer: login('alice\r\nImpersonate-Group: system:masters'),
  },
  { id: 'A3', what: 'a line feed in the login', answer: login('alice\nX: y') },
  { id: 'A3', what: 'a NUL in the login', answer: login('alice\0') },
  { id: 'A3', what: 'a login outside ASCII', answer: login('аlice@example.com') },
  { id: 'A3', what: 'a login of 257 bytes', answer: login('a'.repeat(257)) },
  { id: 'A3', what: 'a space before the login', answer: login(' alice') },
  { id: 'A3', what: 'a space behind the login', answer: login('alice ') },
  { id: 'A3', what: 'a line break in a group', answer: groups('devs\r\nImpersonate-User: root') },
  { id: 'A3', what: 'a NUL in a group', answer: groups('devs\0') },
  { id: 'A3', what: 'an empty group', answer: groups('') },
  { id: 'A3', what: 'a space before a group', answer: groups(' devs') },
  { id: 'A3', what: 'a group of 257 bytes', answer: groups('a'.repeat(257)) },
  { id: 'A3', what: 'a bidirectional mark in a group', answer: groups('devs\u202e') },
  { id: 'A3', what: 'a lone surrogate in a group', answer: groups('devs\ud800') },
  { id: 'A4', what: 'system:admin', answer: login('system:admin') },
  { id: 'A4', what: 'a service account', answer: login('system:serviceaccount:kube-system:x') },
  { id: 'A4', what: 'a node', answer: login('SYSTEM:node:worker-1') },
  { id: 'A4', what: 'system:masters', answer: login('system:masters') },
  { id: 'A5', what: 'a grant that is no list', answer: grant({}) },
  { id: 'A5', what: 'a rule that is no object', answer: grant([[]]) },
  { id: 'A5', what: 'a rule that is text', answer: grant(['x']) },
  { id: 'A5', what: 'groups that are no list', answer: grant([{ impersonate: { groups: 'devs' } }]) },
  { id: 'A5', what: 'a group that is a number', answer: groups(7) },
  { id: 'A5', what: 'one good and one bad rule', answer: grant([{ impersonate: { groups: ['devs'] } }, 1]) },
  { id: 'A5', what: 'enforceRecorder that is text', answer: grant([{ enforceRecorder: 'true' }]) },
  {
    id: 'A5',
    what: 'members that differ in case',
    answer: grant([{ enforceRecorder: true, EnforceRecorder: false }]),
  },
  { id: 'A5', what: 'a recorder that is no address', answer: grant([{ recorderAddrs: ['evil.example'] }]) },
  { id: 'A5', what: 'too many groups', answer: groups(...Array.from({ length: 513 }, (_, n) => `g${n}`)) },
  { id: 'A5', what: 'too many rules', answer: grant(Array.from({ length: 1001 }, () => ({}))) },
  { id: 'A5', what: 'a malformed legacy grant', answer: grant([[]], LEGACY) },
  {
    id: 'A5',
    what: 'a member twice',
    answer: `{"Node":{"StableID":"n","Name":"a.","User":1},"UserProfile":{"LoginName":"a","LoginName":"b"}}`,
  },
  { id: 'A10', what: 'a node shared in from elsewhere', answer: userNode({ Sharer: 77 }) },
  { id: 'A13', what: 'a node whose key has expired', answer: userNode({ Expired: true }) },
  { id: 'A14', what: 'an invalid tag', answer: taggedNode(['admin']) },
  { id: 'A14', what: 'a line break in a tag', answer: taggedNode(['tag:a\r\nX: y']) },
];

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

let callers = 0;
function stranger(answer: unknown): Caller {
  callers += 1;
  const address = `100.65.${Math.floor(callers / 250)}.${(callers % 250) + 1}`;
  if (answer !== undefined) arena.localApi.whois.set(address, answer);
  return { address, login: '', groups: [] };
}

describe('callers', () => {
  for (const [index, { id, what, answer }] of ATTACKS.entries()) {
    it.each(TRANSPORTS)(`${id}.${index} ${what} gets nowhere (%s)`, async (transport) => {
      const caller = stranger(answer);
      const observed = await observe(arena, () => send(arena, transport, { caller }));
      expectDenied(observed, [401, 403]);
    });
  }

  it.each(TRANSPORTS)('A6 without a grant is nobody but themselves (%s)', async (transport) => {
    const caller = { ...stranger({ ...userNode(), CapMap: null }), login: 'alice@example.com' };
    const observed = await observe(arena, () => send(arena, transport, { caller }));
    expectForwarded(observed, honest(transport, { caller }));
  });

  it.each(TRANSPORTS)(
    'A7 with two grants have all groups, and the stricter recording (%s)',
    async (transport) => {
      const answer = grant([
        { impersonate: { groups: ['devs', 'ops'] } },
        { impersonate: { groups: ['ops', 'all'] }, enforceRecorder: true },
      ]);
      const caller = { ...stranger(answer), login: 'alice@example.com', groups: ['devs', 'ops', 'all'] };
      const observed = await observe(arena, () => send(arena, transport, { caller }));
      if (transport === 'h1 upgrade') expectDenied(observed, [403]);
      else expectForwarded(observed, honest(transport, { caller }));
    },
  );

  it.each(TRANSPORTS)('A12 wait in vain for a tailscaled that fails (%s)', async (transport) => {
    arena.localApi.failure = { status: 500, body: 'broken' };
    try {
      const caller = stranger(userNode());
      const { outcome, bytes } = await observe(arena, () => send(arena, transport, { caller }));
      expect(bytes).toBe(0);
      expect(outcome).toMatchObject({ kind: 'response', status: 503 });
    } finally {
      arena.localApi.failure = undefined;
    }
  });

  it.each(TRANSPORTS)('A14 that are tagged nodes act under their own name (%s)', async (transport) => {
    const caller = { ...stranger(taggedNode(['tag:ci'])), login: 'ci.lab.ts.net', groups: ['tag:ci'] };
    const observed = await observe(arena, () => send(arena, transport, { caller }));
    expectForwarded(observed, honest(transport, { caller }));
  });

  it('A11 are asked for anew when the tailnet changes, on the same connection too', async () => {
    const caller = { ...stranger(userNode()), login: 'alice@example.com', groups: ['readers'] };
    const { connectAs } = await import('./arena.ts');
    const { ByteReader } = await import('../support/byte-reader.ts');
    const socket = await connectAs(arena, caller, 'http/1.1');
    const reader = new ByteReader(socket);
    const ask = async (): Promise<string> => {
      socket.write(`GET ${LIST} HTTP/1.1\r\nHost: gateway.lab.ts.net\r\n\r\n`);
      const head = await reader.takeThrough('\r\n\r\n');
      await reader.take(Number(/content-length: (\d+)/i.exec(head)?.[1]));
      return head;
    };
    expect(await ask()).toContain(' 200 ');
    arena.localApi.whois.set(caller.address, login('mallory@example.com'));
    arena.localApi.notify({ PeersChanged: [] });
    await expect
      .poll(async () => {
        await ask();
        const last = arena.apiServer.requests.at(-1);
        return last === undefined ? [] : valuesOf(last, 'impersonate-user');
      })
      .toEqual(['mallory@example.com']);
    arena.localApi.whois.delete(caller.address);
    arena.localApi.notify({ PeersRemoved: [1] });
    await expect.poll(ask).toContain(' 401 ');
    socket.destroy();
  });
});

describe('PROXY headers', () => {
  const request = `GET ${LIST} HTTP/1.1\r\nHost: gateway.lab.ts.net\r\n\r\n`;
  const signature = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');

  async function through(preamble: string | Uint8Array): Promise<Outcome> {
    const tcp = await connectPlain(arena, preamble);
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    tcp.once('close', () => resolve({ kind: 'closed' }));
    const socket = connectTls({ socket: tcp, servername: 'gateway.lab.ts.net', ca: arena.caPem });
    socket.on('error', () => resolve({ kind: 'closed' }));
    socket.once('secureConnect', () => socket.write(request));
    socket.once('data', (data: Buffer) => {
      const status = Number(data.toString('latin1', 9, 12));
      resolve({ kind: 'response', status, head: '', body: '' });
    });
    const outcome = await promise;
    tcp.destroy();
    return outcome;
  }

  const v2 = (command: number, family: number, body: Uint8Array): Buffer =>
    Buffer.concat([signature, Buffer.of(command, family, body.length >> 8, body.length & 255), body]);
  const addresses = Buffer.from([100, 64, 0, 4, 100, 64, 0, 1, 156, 64, 1, 187]);

  const bad: readonly (readonly [string, string | Uint8Array])[] = [
    ['none at all', ''],
    ['two of them', proxyHeader(ALICE.address) + proxyHeader(ALICE.address)],
    [
      'one of each version',
      Buffer.concat([Buffer.from(proxyHeader(ALICE.address)), v2(0x21, 0x11, addresses)]),
    ],
    ['no address', 'PROXY TCP4\r\n'],
    ['a port too many', `PROXY TCP4 ${ALICE.address} 100.64.0.1 40000 443 1\r\n`],
    ['an invalid address', 'PROXY TCP4 100.64.0.400 100.64.0.1 40000 443\r\n'],
    ['the wrong family', 'PROXY TCP6 100.64.0.4 100.64.0.1 40000 443\r\n'],
    ['a bare line feed', `PROXY TCP4 ${ALICE.address} 100.64.0.1 40000 443\n`],
    ['lower case', `proxy tcp4 ${ALICE.address} 100.64.0.1 40000 443\r\n`],
    ['leading zeros', 'PROXY TCP4 100.064.000.004 100.64.0.1 40000 443\r\n'],
    ['no end', `PROXY TCP4 ${' '.repeat(200)}`],
    ['version 2, no addresses', v2(0x21, 0x11, Buffer.alloc(0))],
    ['version 2, another version', v2(0x31, 0x11, addresses)],
  ];
  it.each(bad)('A9 close the connection: %s', async (_what, preamble) => {
    const { outcome, bytes } = await observe(arena, () => through(preamble));
    expect(outcome).toEqual({ kind: 'closed' });
    expect(bytes).toBe(0);
  });

  const own: readonly (readonly [string, string | Uint8Array])[] = [
    ['UNKNOWN', 'PROXY UNKNOWN\r\n'],
    ['version 2, LOCAL', v2(0x20, 0x11, addresses)],
    ['version 2, unspecified family', v2(0x21, 0x00, addresses)],
  ];
  it.each(own)(
    'A9 that speak for the proxy itself make nobody of the client: %s',
    async (_what, preamble) => {
      const { outcome, bytes } = await observe(arena, () => through(preamble));
      expect(outcome).toMatchObject({ kind: 'response', status: 401 });
      expect(bytes).toBe(0);
    },
  );

  it('A9 of version 2 are read to their end, TLVs included', async () => {
    const tlv = Buffer.from([0x05, 0, 3, 1, 2, 3]);
    const { outcome } = await observe(arena, () => through(v2(0x21, 0x11, Buffer.concat([addresses, tlv]))));
    expect(outcome.kind).toBe('response');
    expect(valuesOf(arena.apiServer.requests.at(-1)!, 'impersonate-user')).toEqual([ALICE.login]);
  });
});

describe('groups of Kubernetes itself', () => {
  it('A4 are claimed when a grant says so, and warned of once by name', async () => {
    const arena = await openArena();
    try {
      introduce(arena.localApi, ALICE, [{ impersonate: { groups: ['system:masters'] } }]);
      const caller = { ...ALICE, groups: ['system:masters'] };
      for (const transport of ['h1 request', 'h2 request'] as const)
        expectForwarded(
          await observe(arena, () => send(arena, transport, { caller })),
          honest(transport, { caller }),
        );
      const warnings = arena.logged().split('to which Kubernetes itself gives rights').length - 1;
      expect(warnings).toBe(1);
    } finally {
      await arena.close();
    }
  });

  it.each([['h1 request'], ['h1 upgrade'], ['h2 request']] as const)(
    'A4 are not claimed beyond claimableGroups (%s)',
    async (transport) => {
      const arena = await openArena({ claimableGroups: 'devs,ops' });
      try {
        expectForwarded(await observe(arena, () => send(arena, transport)), honest(transport));
        introduce(arena.localApi, BOB, [{ impersonate: { groups: ['devs', 'system:masters'] } }]);
        expectDenied(await observe(arena, () => send(arena, transport, { caller: BOB })), [403]);
      } finally {
        await arena.close();
      }
    },
  );
});

/** Attack corpus on moderated sessions: without a moderator, no shell may start and no command may run. */
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { followOrders } from '../../src/proxy/session/orders.ts';
import { Moderation } from '../../src/proxy/session/moderation.ts';
import { ACCESS_CAPABILITY } from '../../src/tailnet/access-rules.ts';
import { createAckParser } from '../../src/wire/recorder-api/ack.ts';
import type { SessionOrder } from '../../src/wire/recorder-api/session-order.ts';
import type { Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { userNode } from '../support/local-api-double.ts';
import { BOB, closeAll, openShell, RULE } from '../support/moderated-rig.ts';
import { clientMessage, utf8 } from '../support/stream-peers.ts';
import { ALICE as OWNER } from '../support/upgrade-rig.ts';
import { CAPABILITY, GATEWAY_HOST, openArena, sendHttp1, type Arena, type Caller } from './arena.ts';
import { send, SPDY, WEBSOCKET, type Ask } from './transports.ts';
import { expectDenied, observe } from './verdict.ts';

afterEach(closeAll);

describe('a viewer who is no moderator', () => {
  const ALICE: Viewer = { node: 'phone.tail1.ts.net', nodeId: 'nPHONE', user: 'alice@example.com' };
  const EVE: Viewer = { node: 'eve.tail1.ts.net', nodeId: 'nEVE', user: 'eve@example.com' };
  it.each<[string, Viewer, Record<string, string>, readonly string[], number]>([
    ['M1 the user at another node', ALICE, {}, ['*'], 403],
    ['M1 the user with other letters', { ...ALICE, user: 'Alice@Example.com' }, {}, ['*'], 403],
    ['M2 a stranger', EVE, {}, ['*'], 403],
    ['M2 a viewer without any view of the session', EVE, {}, ['bob@example.com'], 404],
    ['M2 a viewer of other sessions', EVE, {}, ['bob@example.com', '*=user:eve@example.com'], 404],
    ['M3 a page of another site', BOB, { origin: 'https://evil.example' }, ['*'], 403],
    ['M3 a page of another site, as browsers name it', BOB, { 'sec-fetch-site': 'cross-site' }, ['*'], 403],
  ])('%s does not start it', async (_, attacker, headers, viewers, status) => {
    let viewer = BOB;
    const { watch, apiServer, gateway } = await openShell({ viewer: () => viewer, viewers });
    viewer = attacker;
    expect((await watch(headers)).status).toBe(status);
    expect([apiServer.connections, gateway.sessions.size]).toEqual([0, 1]);
  });
});

describe('a hostile recorder', () => {
  /** Passes these lines to the gateway's code as acknowledgements of a recorder. */
  function receive(...lines: readonly unknown[]) {
    const notes: string[] = [];
    const state = { starts: 0, end: '' };
    let follow: ((order: SessionOrder) => void) | undefined;
    const session = {
      order: ({ action, by }: { action: string; by: string }) => void notes.push(`${action} ${by}`),
    };
    const end = (error: Error): void => void (state.end = error.message);
    const moderation = new Moderation({
      rules: [RULE],
      owner: OWNER,
      session,
      start: () => void (state.starts += 1),
      end,
    });
    const upload = {
      onOrder: (given: typeof follow) => void (follow = given),
      lost: new Promise<never>(() => {}),
    };
    const stop = followOrders({ session, upload, moderation }, { setPaused: () => {} }, end);
    const parser = createAckParser();
    let failure = '';
    try {
      for (const line of lines)
        for (const { order } of parser.push(utf8(JSON.stringify(line))))
          if (order !== undefined) follow?.(order);
    } catch (error) {
      failure = String(error);
    }
    stop();
    moderation.stop();
    return { ...state, notes, failure };
  }
  const watch = (watcher: unknown, fields = {}): unknown => ({
    order: { id: 'o-1', action: 'watch', by: 'bob@example.com', reason: '', watcher, ...fields },
  });
  const BOBS = { nodeId: 'nBOB', user: 'bob@example.com' };

  it('M4 has an order that starts the session, unlike the following', () => {
    expect(receive(watch(BOBS))).toMatchObject({ starts: 1, notes: ['watch bob@example.com'] });
  });

  it.each<[string, unknown]>([
    ['without a watcher', watch(undefined)],
    ['with an incomplete watcher', watch({ user: 'bob@example.com' })],
    ['with two users', watch({ ...BOBS, user: ['bob@example.com', 'eve@example.com'] })],
    ['without an id', watch(BOBS, { id: '' })],
    ['that leaves', watch(BOBS, { action: 'leave' })],
    ['of an unknown kind', watch(BOBS, { action: 'start' })],
  ])('M4 sends an order %s: the recorder counts as broken', (_, line) => {
    expect(receive(line)).toMatchObject({
      starts: 0,
      notes: [],
      failure: expect.stringContaining('WireError'),
    });
  });

  it.each<[string, unknown]>([
    ['of the user at another node', watch({ nodeId: 'nPHONE', user: 'alice@example.com' })],
    ['of the node of the user', watch({ nodeId: OWNER.nodeId, user: 'bob@example.com' })],
    ['that names the moderator only for people', watch({ nodeId: 'nEVE', user: 'eve@example.com' })],
    ['with a control character in the name', watch({ ...BOBS, user: 'bob@example.com\u0000' })],
    ['with a tag that is a user', watch({ nodeId: 'nEVE', tags: ['bob@example.com'] })],
  ])('M4 sends an order %s: no session starts', (_, line) => {
    expect(receive(line)).toMatchObject({ starts: 0, notes: ['leave bob@example.com'], failure: '' });
  });

  it('M4 writes no control characters into the recording', () => {
    const { notes } = receive(watch(BOBS, { by: 'bob\u001b[2J\r\nroot' }));
    expect(notes).toHaveLength(1);
    expect(notes[0]).not.toMatch(/\p{Cc}/u);
  });

  it('M4 ignores fields of later versions', () => {
    expect(receive(watch({ ...BOBS, isModerator: true, tags: [] }, { force: true })).starts).toBe(1);
    expect(receive(watch({ nodeId: 'nEVE', isModerator: true }, { force: true })).starts).toBe(0);
  });

  it('M5 names thousands of watchers: memory and notes have a limit', () => {
    vi.useFakeTimers();
    try {
      const strangers = Array.from({ length: 5_000 }, (_, count) =>
        watch({ nodeId: `n${count}` }, { id: `o-${count}` }),
      );
      const { starts, notes } = receive(...strangers);
      expect([starts, notes.length]).toEqual([0, 256]);
      const moderators = Array.from({ length: 5_000 }, (_, count) =>
        watch({ nodeId: `n${count}`, user: 'bob@example.com' }, { id: `o-${count}` }),
      );
      const many = receive(...moderators);
      expect([many.starts, many.notes.filter((note) => note.startsWith('watch')).length]).toEqual([1, 32]);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('a gateway', () => {
  /** A caller whose shells are moderated, and whose recording is not enforced. */
  const DAVE: Caller = { address: '100.64.0.21', login: 'dave@example.com', groups: ['devs'] };
  const HOST = ['Host', GATEWAY_HOST] as const;
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
    arena.localApi.whois.set(DAVE.address, {
      ...userNode(),
      UserProfile: { ID: 1, LoginName: DAVE.login, DisplayName: '' },
      CapMap: {
        [CAPABILITY]: [{ impersonate: { groups: DAVE.groups }, recorderAddrs: [arena.recorder.address] }],
        [ACCESS_CAPABILITY]: [{ moderate: ['exec', 'attach'], moderators: { users: ['bob@example.com'] } }],
      },
    });
  });
  afterAll(() => arena.close());

  const NODE = '/api/v1/nodes/worker-1/proxy';
  const POD = '/api/v1/namespaces/n/pods/p';
  const COMMANDS = [`${NODE}/run/n/p/c?cmd=id`, `${NODE}/exec/n/p/c?command=id`, `${NODE}/cri/exec/token`];
  it.each([
    ...COMMANDS,
    '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/api/v1/nodes/n/proxy/run/n/p/c?cmd=id',
    `/any/prefix${POD}/exec?command=sh`,
  ])('M6 refuses commands without an upgrade: %s', async (target) => {
    for (const transport of ['h1 request', 'h2 request'] as const)
      expectDenied(
        await observe(arena, () => send(arena, transport, { caller: DAVE, method: 'POST', target })),
        [403],
      );
  });

  it.each([
    ...COMMANDS,
    `${POD}/proxy/terminal`,
    '/api/v1/namespaces/n/services/s/proxy/shell',
    `/api/v1/namespaces/default/services/https:kubernetes:443/proxy${POD}/exec?command=sh`,
    '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console',
    '/apis/x.example/v1/namespaces/n/machines',
    `/any/prefix${POD}/exec?command=sh`,
    '/healthz',
    '/',
  ])('M7 refuses upgrades that nobody could watch: %s', async (target) => {
    const upgrades: readonly Ask[] = [{ target }, { target, method: 'POST', base: [HOST, ...SPDY] }];
    for (const ask of upgrades)
      expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', { caller: DAVE, ...ask })), [403]);
  });

  it.each([`${POD}/exec?command=sh&`, `/clusters/c${POD}/exec?command=sh&`, `${POD}/attach?`])(
    'M8 never starts a session whose recorder sends no orders: %s',
    async (path) => {
      const before = arena.apiServer.requests.length;
      const request = `GET ${path}stdin=true&stdout=true HTTP/1.1\r\n`;
      const head = [HOST, ...WEBSOCKET].map(([name, value]) => `${name}: ${value}\r\n`).join('');
      const uploads = arena.recorder.uploads.length;
      const outcome = await sendHttp1(arena, DAVE, `${request}${head}\r\n`, async (socket) => {
        socket.write(clientMessage(0, utf8('id\n')));
        await arena.recorder.until(() => (arena.recorder.uploads[uploads]?.size ?? 0) > 0);
        for (let ack = 0; ack < 3; ack += 1) arena.recorder.uploads[uploads]!.ack(1);
      });
      expect(outcome).toMatchObject({ status: 101 });
      await arena.recorder.until(() => {
        const upload = arena.recorder.uploads[uploads]!;
        return upload.ended || upload.aborted;
      });
      expect(arena.apiServer.requests.length).toBe(before);
    },
  );
});

/** Attack corpus E: every path to a shell, for a caller with enforced recording. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  ALICE,
  BOB,
  CAROL,
  ERIN,
  GATEWAY_HOST,
  openArena,
  sendHttp1,
  type Arena,
  type Caller,
} from './arena.ts';
import type { Field } from './raw-http2.ts';
import { honest, LIST, send, SPDY, WEBSOCKET, type Ask } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const POD = '/api/v1/namespaces/n/pods/p';
const HOST: Field = ['Host', GATEWAY_HOST];
const upgradeTo = (value: string, ...more: readonly Field[]): readonly Field[] => [
  HOST,
  ['Connection', 'Upgrade'],
  ['Upgrade', value],
  ...more,
];
const websocket = (...protocols: readonly string[]): readonly Field[] => [
  HOST,
  ...WEBSOCKET.slice(0, 4),
  ...protocols.map((name): Field => ['Sec-WebSocket-Protocol', name]),
];
const spdy = (...protocols: readonly string[]): readonly Field[] =>
  upgradeTo('SPDY/3.1', ...protocols.map((name): Field => ['X-Stream-Protocol-Version', name]));

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

/** Checks that the session runs, and that the recorder got the session's header before the session started. */
async function expectRecorded(ask: Ask): Promise<void> {
  const before = arena.recorder.uploads.length;
  const full = { caller: BOB, ...ask };
  const observed = await observe(arena, () => send(arena, 'h1 upgrade', full));
  expectForwarded(observed, honest('h1 upgrade', full));
  await arena.recorder.until(() => arena.recorder.uploads.length > before);
}

async function expectRefused(ask: Ask, statuses?: readonly number[]): Promise<void> {
  const full = { caller: BOB, ...ask };
  expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', full)), statuses);
}

describe('exec and attach', () => {
  const RECORDED: readonly (readonly [string, string, string, readonly Field[]])[] = [
    ['E1', 'POST', `${POD}/exec?command=sh`, spdy('v4.channel.k8s.io', 'v3.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, spdy('v4.channel.k8s.io')],
    ['E1', 'POST', `${POD}/exec?command=sh`, spdy('v2.channel.k8s.io')],
    ['E1', 'POST', `${POD}/exec?command=sh`, spdy('channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('v5.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('v4.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('v3.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('v2.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket('base64.channel.k8s.io')],
    ['E1', 'GET', `${POD}/exec?command=sh`, websocket()],
    ['E2', 'GET', `${POD}/exec?command=sh`, upgradeTo('WebSocket', ...WEBSOCKET.slice(2))],
    [
      'E2',
      'POST',
      `${POD}/exec?command=sh`,
      upgradeTo('spdy/3.1', ['X-Stream-Protocol-Version', 'v4.channel.k8s.io']),
    ],
    [
      'E2',
      'POST',
      `${POD}/exec?command=sh`,
      upgradeTo('SPDY/3.1, foo', ['X-Stream-Protocol-Version', 'v4.channel.k8s.io']),
    ],
    [
      'E2',
      'GET',
      `${POD}/exec?command=sh`,
      [HOST, ['Connection', 'keep-alive, Upgrade'], ...WEBSOCKET.slice(1)],
    ],
    [
      'E2',
      'GET',
      `${POD}/exec?command=sh`,
      [HOST, ['connection', 'UPGRADE'], ['upgrade', 'WEBSOCKET'], ...WEBSOCKET.slice(2)],
    ],
    ['E3', 'GET', `${POD}/attach?stdin=true&tty=true`, [HOST, ...WEBSOCKET]],
    ['E3', 'POST', `${POD}/attach`, [HOST, ...SPDY]],
    ['E5', 'POST', `${POD}/attach?container=debugger`, [HOST, ...SPDY]],
    ['E11', 'POST', `${POD}/exec?command=sh&stdin=true`, [HOST, ...SPDY]],
    ['E11', 'POST', `${POD}/exec?command=sh&command=-c&command=id`, [HOST, ...SPDY]],
    ['E11', 'GET', `${POD}/exec?command=tar&command=cf&command=-&stdout=true`, [HOST, ...WEBSOCKET]],
  ];
  it.each(RECORDED.map((row, index) => [`${row[0]}.${index}`, ...row.slice(1)] as unknown as typeof row))(
    '%s %s %s is recorded: %j',
    async (_id, method, target, base) => {
      await expectRecorded({ method, target, base });
    },
  );

  const BELOW_A_PREFIX = [
    `/clusters/root:org:team-a${POD}`,
    `/clusters/root%3Aorg%3Ateam-a${POD}`,
    `/clusters/2v6gnkq8xyz${POD}`,
    `/clusters/api${POD}`,
    `/k8s/clusters/c-m-1a2b3c${POD}`,
    `/k8s/clusters/local/api/v1/namespaces/n/pods/p`,
    `/clusters/c/api/v1/namespaces/n/pods:0a1b2c/p`,
    `/clusters/c/apis/x.example/v1/namespaces/n/machines/m`,
  ];
  it.each(BELOW_A_PREFIX)('E9 are recorded below the prefix of a cluster: %s', async (pod) => {
    for (const caller of [BOB, ERIN]) {
      await expectRecorded({ caller, target: `${pod}/exec?command=sh` });
      await expectRecorded({
        caller,
        method: 'POST',
        target: `${pod}/exec?command=sh`,
        base: [HOST, ...SPDY],
      });
      await expectRecorded({ caller, target: `${pod}/attach` });
    }
    await expectRefused({ caller: CAROL, target: `${pod}/exec?command=sh` }, [403]);
  });

  it('E9 below the prefix of a cluster are reviewed by that cluster', async () => {
    await using reviewing = await openArena({ accessReview: true });
    const review = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';
    const asked: string[] = [];
    reviewing.apiServer.script = ({ requestLine, body }) => {
      if (!requestLine.includes(review)) return undefined;
      asked.push(`${requestLine} ${body}`);
      const answer = '{"status":{"allowed":true}}';
      return (
        'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: ' +
        `${answer.length}\r\n\r\n${answer}`
      );
    };
    const full = { caller: ERIN, target: `/clusters/root:a${POD}/exec?command=sh`, method: 'GET' };
    const outcome = await send(reviewing, 'h1 upgrade', full);
    expect(outcome).toMatchObject({ status: 101 });
    expect(asked).toEqual([expect.stringContaining(`POST /clusters/root:a${review} HTTP/1.1 `)]);
    expect(asked[0]).not.toContain('clusterPrefix');
  });

  it('E9 of a cluster below a prefix name pod, namespace and path in the recording', async () => {
    const before = arena.recorder.uploads.length;
    await expectRecorded({ target: `/clusters/root:a${POD}/exec?command=sh` });
    const upload = arena.recorder.uploads[before];
    await arena.recorder.until(() => (upload?.lines().length ?? 0) > 0);
    const lines = upload?.lines().join('\n') ?? '';
    expect(lines).toContain('"PodName":"p","Namespace":"n"');
    expect(lines).toContain(`"path":"/clusters/root:a${POD}/exec"`);
  });

  const REFUSED: readonly (readonly [string, string, readonly Field[]])[] = [
    ['E1', 'GET', websocket('v6.channel.k8s.io')],
    ['E1', 'GET', websocket('chat')],
    ['E1', 'POST', spdy()],
    ['E1', 'POST', spdy('v9.channel.k8s.io')],
    ['E1', 'POST', spdy('base64.channel.k8s.io')],
    ['E2', 'GET', upgradeTo('websocket/13', ...WEBSOCKET.slice(2))],
    ['E2', 'GET', upgradeTo('web socket', ...WEBSOCKET.slice(2))],
    ['E2', 'GET', upgradeTo('SPDY/3.1, websocket', ...SPDY.slice(2))],
    ['E2', 'GET', upgradeTo('SPDY/3', ...SPDY.slice(2))],
    ['E2', 'GET', upgradeTo('SPDY/4', ...SPDY.slice(2))],
    ['E2', 'GET', upgradeTo('xSPDY/3.1', ...SPDY.slice(2))],
    ['E2', 'GET', upgradeTo('foo')],
    ['E2', 'GET', [...upgradeTo('websocket', ...WEBSOCKET.slice(2)), ['Upgrade', 'SPDY/3.1']]],
    ['E2', 'POST', [HOST, ...WEBSOCKET]],
    ['E2', 'PUT', [HOST, ...SPDY]],
    ['E2', 'DELETE', [HOST, ...WEBSOCKET]],
  ];
  it.each(REFUSED.map((row, index) => [`${row[0]}.${index}`, row[1], row[2]] as const))(
    '%s %s is refused when it is asked for like this: %j',
    async (_id, method, base) => {
      await expectRefused({ method, target: `${POD}/exec?command=sh`, base });
      await expectRefused({ method, target: `${POD}/attach`, base });
    },
  );

  it('E2 over HTTP/1.0 is refused', async () => {
    const lines = [HOST, ...WEBSOCKET].map(([name, value]) => `${name}: ${value}\r\n`).join('');
    const bytes = `GET ${POD}/exec?command=sh HTTP/1.0\r\n${lines}\r\n`;
    const { outcome, requests } = await observe(arena, () => sendHttp1(arena, BOB, bytes));
    // the gateway may forward the request without its upgrade headers
    for (const request of requests) expect(request.head.toLowerCase()).not.toContain('upgrade');
    if (requests.length === 0) expect(outcome).toMatchObject({ status: 400 });
  });

  it('E16 says before any time limit why a session cannot be recorded', async () => {
    const startedMs = performance.now();
    const observed = await observe(arena, () => send(arena, 'h1 upgrade', { caller: CAROL }));
    expectDenied(observed, [403]);
    expect(performance.now() - startedMs).toBeLessThan(5000);
    expect(observed.outcome).toMatchObject({ body: expect.stringContaining('must be recorded') as unknown });
  });
});

describe('other roads', () => {
  const NODE = '/api/v1/nodes/worker-1/proxy';
  const UPGRADES: readonly (readonly [string, string])[] = [
    ['E6', `${NODE}/exec/n/p/c?command=sh`],
    ['E6', `${NODE}/attach/n/p/c`],
    ['E6', `${NODE}/portForward/n/p`],
    ['E6', `${NODE}/cri/exec/token`],
    ['E6', '/api/v1/nodes/https:worker-1:10250/proxy/exec/n/p/c?command=sh'],
    ['E6', `${NODE}/metrics`],
    ['E6', `${NODE}/`],
    ['E7', `${POD}/proxy/terminal`],
    ['E7', '/api/v1/namespaces/n/pods/https:p:8443/proxy/ws'],
    ['E7', '/api/v1/namespaces/n/services/s/proxy/shell'],
    ['E7', `/api/v1/namespaces/default/services/https:kubernetes:443/proxy${POD}/exec?command=sh`],
    ['E9', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console'],
    ['E9', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/vnc'],
    ['E9', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/portforward/22'],
    ['E9', '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/api/v1/namespaces/n/pods/p/exec'],
    ['E9', '/apis/x.example/v1/namespaces/n/machines/m/ssh'],
    ['E9', '/k8s/clusters/c-1/v1/management.cattle.io.clusters/local?shell=true'],
    ['E9', `/services/workspaces/root:org/clusters/c${POD}/exec?command=sh`],
    ['E9', `/clusters/a/clusters/b${POD}/exec?command=sh`],
    ['E9', `/clusters/-a${POD}/exec?command=sh`],
    ['E9', `/kubernetes/cluster/c${POD}/exec?command=sh`],
    ['E9', `/any/prefix${POD}/exec?command=sh`],
    ['E9', '/clusters/c/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console'],
    ['E9', `/clusters/c${NODE}/exec/n/p/c?command=sh`],
    ['E10', LIST],
    ['E10', `${POD}`],
    ['E10', '/healthz'],
    ['E10', '/openapi/v3'],
    ['E10', '/version'],
    ['E10', '/'],
    ['E10', '/api/v1/namespaces/n/secrets/s'],
  ];
  it.each(UPGRADES.map(([id, target], index) => [`${id}.${index}`, target] as const))(
    '%s are closed to upgrades that would not be recorded: %s',
    async (_id, target) => {
      await expectRefused({ target }, [403]);
      await expectRefused({ target, method: 'POST', base: [HOST, ...SPDY] }, [403]);
      await expectRefused({ target, base: upgradeTo('foo') }, [400, 403]);
    },
  );

  it.each(UPGRADES.filter(([id]) => id === 'E9' || id === 'E10').map(([, target]) => [target]))(
    'E9 are closed to unknown upgrades of everybody whose grants name a recorder: %s',
    async (target) => {
      // upgrades to a node are tested elsewhere, because the policy section `others` applies to them
      if (target.includes('/nodes/')) return;
      await expectRefused({ caller: ERIN, target }, [403]);
      await expectRefused({ caller: ERIN, target, method: 'POST', base: [HOST, ...SPDY] }, [403]);
      const free = { caller: ALICE, target };
      const observed = await observe(arena, () => send(arena, 'h1 upgrade', free));
      expectForwarded(observed, honest('h1 upgrade', free));
    },
  );

  const KUBELET = [
    'exec/n/p/c?command=id',
    'run/n/p/c',
    'attach/n/p/c',
    'portForward/n/p',
    'cri/x',
    'checkpoint/n/p/c',
    'debug/pprof/',
  ];
  it.each(KUBELET.flatMap((path) => ['GET', 'POST'].map((method) => [method, path] as const)))(
    'E6 are closed to commands without an upgrade: %s nodes/worker-1/proxy/%s',
    async (method, path) => {
      for (const transport of ['h1 request', 'h2 request'] as const) {
        const ask = { caller: BOB, method, target: `${NODE}/${path}` };
        expectDenied(await observe(arena, () => send(arena, transport, ask)), [403]);
      }
    },
  );

  const OTHER_PROXIES = [
    '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/api/v1/nodes/n/proxy/run/n/p/c?cmd=id',
    '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy/api/v1/namespaces/n/pods/p/proxy/run',
    '/apis/cluster.karmada.io/v1alpha1/clusters/c/proxy',
    '/apis/x.example/v1/namespaces/n/pods/p/proxy/api/v1/nodes/n/proxy/run/n/p/c',
    '/apis/x.example/v1/namespaces/n/services/s/proxy/run/n/p/c',
    '/apis/x.example/v1/nodes/n/proxy/metrics',
    '/apis/x.example/v1/gates/g/through/api/v1/nodes/n/proxy/run/n/p/c',
    '/apis/x.example/v1/gates/g/a/b/c/proxy',
    '/api/v1/namespaces/n/things/t/proxy/api/v1/nodes/n/proxy/run/n/p/c',
    '/clusters/c/api/v1/nodes/n/proxy/run/n/p/c?cmd=id',
    '/clusters/proxy/proxy/api/v1/namespaces/n/pods/p',
    '/x/clusters/c-1/api/v1/namespaces/n/pods/p/proxy/x',
    '/base/proxy',
  ];
  it.each(OTHER_PROXIES.flatMap((path) => ['GET', 'POST', 'PUT'].map((method) => [method, path] as const)))(
    'E9 lead nowhere through a proxy that nobody can read: %s %s',
    async (method, target) => {
      for (const transport of ['h1 request', 'h2 request'] as const) {
        const ask = { caller: BOB, method, target };
        expectDenied(await observe(arena, () => send(arena, transport, ask)), [403]);
        const free = { caller: ALICE, method, target };
        const observed = await observe(arena, () => send(arena, transport, free));
        expectForwarded(observed, honest(transport, free));
      }
    },
  );

  it.each([
    `${NODE}/logs/?query=kubelet`,
    `${NODE}/logs/?query=kubelet&pattern=x`,
    `${NODE}/logs?query=kubelet`,
    `${NODE}/logs/x?a=1`,
    `${NODE}/logs/?;query=kubelet`,
    `${NODE}/logs/?%71uery=kubelet`,
    '/api/v1/nodes/https:worker-1:10250/proxy/logs/?query=kubelet',
  ])('E6 ask no node to run a command for its logs: GET %s', async (target) => {
    for (const transport of ['h1 request', 'h2 request'] as const)
      expectDenied(await observe(arena, () => send(arena, transport, { caller: BOB, target })), [403]);
  });

  const RECORDED: readonly (readonly [string, string])[] = [
    ['POST', '/apis/x.example/v1/namespaces/n/machines/m/connect'],
    ['PUT', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/v/start'],
    ['PATCH', '/apis/x.example/v1/machines/m/run'],
    ['OPTIONS', '/apis/x.example/v1/machines/m/run'],
    ['GET', '/apis/x.example/v1/machines/m/run'],
    ['GET', '/api/v1/watch/namespaces/n/pods/p/vnc'],
    ['GET', '/apis/x.example/v1/machines/m/through/api/v1/nodes/n'],
    ['POST', '/apis/x.example/v1/machines/m/status/more'],
    ['POST', '/api/v1/namespaces/n/pods/p/unheard-of'],
    ['POST', '/clusters/c/api/v1/namespaces/n/pods'],
    ['POST', '/x/c/api/v1/namespaces/n/pods'],
    ['GET', '/k8s/clusters/c-1/api/v1/namespaces/n/pods/p/proxy/x'],
    ['DELETE', '/elsewhere'],
    ['POST', '/apis/apiregistration.k8s.io/v1/apiservices'],
    ['PATCH', '/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example/status'],
    ['POST', '/api/v1/namespaces/n/secrets'],
    ['PUT', '/api/v1/namespaces/n/secrets/s'],
    ['DELETE', '/api/v1/namespaces/n/secrets/s'],
    ['GET', '/api/v1/namespaces/n/secrets/s'],
    ['GET', '/api/v1/secrets?limit=500'],
    ['GET', '/api/v1/secrets?watch=true'],
    ['GET', '/api/v1/watch/namespaces/n/secrets'],
    ['GET', '/clusters/c/api/v1/namespaces/n/secrets:0a1b/s'],
    ['POST', '/apis/certificates.k8s.io/v1/certificatesigningrequests'],
    ['PUT', '/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval'],
    ['POST', '/api/v1/namespaces/n/serviceaccounts/s/token'],
    ['PUT', '/apis/argoproj.io/v1/namespaces/n/workflows/w/status'],
    ['POST', '/apis/x.example/v1/namespaces/n/foos/f/token'],
    ['PUT', '/apis/x.example/v1/namespaces/n/foos/f/binding'],
    ['PATCH', '/apis/x.example/v1/namespaces/n/foos/f/scale'],
    ['POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings'],
  ];
  it.each(RECORDED)('E9 are sent to a recorder first: %s %s', async (method, target) => {
    for (const transport of ['h1 request', 'h2 request'] as const) {
      const before = arena.recorder.events.length;
      const ask = { caller: BOB, method, target };
      expectForwarded(await observe(arena, () => send(arena, transport, ask)), honest(transport, ask));
      expect(arena.recorder.events.length).toBe(before + 1);
      expect(JSON.parse(arena.recorder.events.at(-1) ?? '')).toMatchObject({
        request: { method, path: target },
      });
      const unheard = { caller: CAROL, method, target };
      expectDenied(await observe(arena, () => send(arena, transport, unheard)), [403]);
    }
  });

  it.each([
    ['GET', '/apis/apps/v1/namespaces/kube-system/deployments/proxy'],
    ['GET', '/api/v1/namespaces/proxy/configmaps/proxy'],
    ['GET', '/api/v1/namespaces/proxy'],
    ['PATCH', '/apis/apps/v1/namespaces/n/deployments/d/scale'],
    ['POST', '/api/v1/namespaces/n/pods/p/eviction'],
    ['GET', '/apis/custom.metrics.k8s.io/v1beta1/namespaces/n/pods/p/requests'],
    ['GET', '/api/v1/namespaces/n/configmaps/s'],
    ['GET', '/apis/apps/v1/namespaces/n/deployments'],
    ['DELETE', '/api/v1/namespaces/n/pods/p'],
    ['PUT', '/apis/coordination.k8s.io/v1/namespaces/n/leases/l'],
    ['GET', '/openapi/v3/apis/apps/v1'],
  ])('E10 do not close what is none: %s %s', async (method, target) => {
    const before = arena.recorder.events.length;
    const ask = { caller: BOB, method, target };
    expectForwarded(await observe(arena, () => send(arena, 'h1 request', ask)), honest('h1 request', ask));
    expect(arena.recorder.events.length).toBe(before);
  });

  const OPEN: readonly (readonly [string, string, Caller])[] = [
    ['E15', `${LIST}?watch=true`, BOB],
    ['E15', '/api/v1/watch/pods', BOB],
    ['E15', `${POD}/log?follow=true`, BOB],
    ['E9', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console', ALICE],
    ['E7', `${POD}/proxy/terminal`, ALICE],
  ];
  it.each(OPEN)(
    '%s stay open where nothing is a session or nothing must be recorded: %s',
    async (_id, target, caller) => {
      const ask = { caller, target };
      expectForwarded(await observe(arena, () => send(arena, 'h1 upgrade', ask)), honest('h1 upgrade', ask));
    },
  );

  const WITHOUT_UPGRADE = [
    `${POD}/exec?command=sh`,
    `${POD}/attach`,
    '/apis/x.example/v1/namespaces/n/machines/m/exec?command=sh',
  ];
  it.each(WITHOUT_UPGRADE.flatMap((target) => ['GET', 'POST', 'HEAD'].map((method) => [method, target])))(
    'E10 %s %s cannot be recorded without an upgrade, so it goes nowhere where it must be',
    async (method, target) => {
      for (const transport of ['h1 request', 'h2 request'] as const) {
        const { outcome, bytes } = await observe(arena, () =>
          send(arena, transport, { caller: BOB, method, target }),
        );
        expect(bytes).toBe(0);
        expect(outcome).toMatchObject({ kind: 'response', status: 403 });
        const free = { caller: ALICE, method, target };
        const observed = await observe(arena, () => send(arena, transport, free));
        expectForwarded(observed, honest(transport, free));
      }
    },
  );

  it.each(['GET', 'POST'])('E15 %s with another protocol than WebSocket is no stream', async (method) => {
    await expectRefused({ method, target: `${LIST}?watch=true`, base: [HOST, ...SPDY] }, [400, 403]);
  });
});

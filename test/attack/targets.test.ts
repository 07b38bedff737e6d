/** Attack corpus D: request targets that two parsers could interpret differently. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import { BOB, GATEWAY_HOST, openArena, type Arena } from './arena.ts';
import { honest, LIST, send, SPDY, type Transport } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const TRANSPORTS = ['h1 request', 'h1 upgrade', 'h2 request'] as const satisfies readonly Transport[];
const POD = '/api/v1/namespaces/n/pods/p';

/** Targets that are refused for all callers, before the gateway identifies the caller. */
const AMBIGUOUS: readonly (readonly [string, string])[] = [
  ['D1', `//api/v1/namespaces/n/pods/p/exec`],
  ['D1', '/api//v1/namespaces/n/pods/p/exec'],
  ['D1', '/api/v1//namespaces/n/pods/p/exec'],
  ['D1', '/api/v1/namespaces/n/pods//p/exec'],
  ['D1', `${POD}/./exec`],
  ['D1', `${POD}/x/../exec`],
  ['D1', `/x/..${POD}/exec`],
  ['D1', `${POD}/exec//`],
  ['D1', '/..'],
  ['D2', `${POD}/%2e%2e/exec`],
  ['D2', `${POD}/%2E/exec`],
  ['D2', '/api/v1/namespaces/n/pods/p%2Fexec'],
  ['D2', '/api/v1/namespaces/n/pods/p%2fexec'],
  ['D2', '/api/v1/namespaces/n/pods/p%5Cexec'],
  ['D2', `${POD}%00/exec`],
  ['D2', `${POD}%0a/exec`],
  ['D2', `${POD}%0d%0aX:%20y/exec`],
  ['D2', `${POD}/%252e%252e/exec`],
  ['D2', `${POD}%252Fexec`],
  ['D2', `${POD}/%c0%aeexec`],
  ['D2', `${POD}/%ff/exec`],
  ['D2', `${POD}/%/exec`],
  ['D2', `${POD}/%zz/exec`],
  ['D2', `${POD}/exec%`],
  ['D2', `${POD}/%7f/exec`],
  ['D4', '/api/v1/namespaces/n/pods/p\\exec'],
  ['D4', `${POD};x/exec`],
  ['D4', `${POD}/exec;command=sh`],
  ['D4', `${POD}%3bx/exec`],
  ['D4', `${POD}/exec#f`],
  ['D4', `${POD}/exec?command=sh#f`],
  ['D4', `${POD}/ex\tec`],
  ['D5', 'http://kubernetes/api/v1/namespaces/n/pods/p/exec'],
  ['D5', 'https://gateway.lab.ts.net/api/v1/pods'],
  ['D5', 'gateway.lab.ts.net:443'],
  ['D5', '*'],
  ['D5', 'api/v1/pods'],
  ['D6', '/api/v1/proxy/namespaces/n/pods/p/exec'],
  ['D6', '/api/v1/proxy/nodes/n/run/a/b/c'],
  ['D10', `${POD}/exec?${'command=a&'.repeat(4100)}`],
  ['D10', `${POD}/exec?command=${'a'.repeat(300_000)}`],
  ['D10', `/${'a'.repeat(20_000)}`],
  ['D12', '/clusters/a/../b/api/v1/pods'],
  ['D12', '/clusters/a%2fb/api/v1/pods'],
];

describe('ambiguous targets', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
  });
  afterAll(() => arena.close());

  for (const [index, [id, target]] of AMBIGUOUS.entries()) {
    it.each(TRANSPORTS)(`${id}.${index} ${target.slice(0, 80)} is refused (%s)`, async (transport) => {
      const observed = await observe(arena, () => send(arena, transport, { target }));
      expectDenied(observed);
    });
  }

  const PLAIN: readonly (readonly [string, string])[] = [
    ['D1', `${LIST}/`],
    ['D3', '/Api/V1/Pods'],
    ['D7', '/api/v1/namespaces/n/status'],
    ['D7', '/api/v1/namespaces/pods/pods/exec'],
    ['D7', '/api/v1/namespaces/n/pods/proxy'],
    ['D7', '/api/v1/namespaces/n/pods/attach.exec'],
    ['D11', `${LIST}?watch=1`],
    ['D11', `${LIST}?watch=&timeoutSeconds=999999999`],
    ['D6', '/api/v1/watch/pods'],
    ['D10', `${LIST}?labelSelector=a%0Ab&fieldSelector=%00`],
    ['D10', `${LIST}?a;b=c&%zz=1`],
  ];
  for (const [id, target] of PLAIN) {
    it.each(['h1 request', 'h2 request'] as const)(
      `${id} ${target} goes on as it is (%s)`,
      async (transport) => {
        const observed = await observe(arena, () => send(arena, transport, { target }));
        expectForwarded(observed, honest(transport, { target }));
      },
    );
  }

  /**
   * With enforced recording, each of these requests is a session. The recorder must get the session's header before the
   * API server gets the request.
   */
  const SESSIONS: readonly (readonly [string, string])[] = [
    ['D1', `${POD}/exec/`],
    ['D3', `${POD}/%65xec`],
    ['D3', '/api/v1/namespaces/n/p%6fds/p/exec'],
    ['D3', '/%61pi/v1/namespaces/n/pods/p/attach'],
    ['D7', '/api/v1/namespaces/pods/pods/exec/exec'],
    ['D7', '/api/v1/namespaces/n/pods/attach/attach'],
    ['D8', '/apis/x.io/v9/namespaces/n/pods/p/exec'],
    ['D8', '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/attach'],
    ['D9', `${POD}/exec?tty=1`],
    ['D9', `${POD}/exec?tty=`],
    ['D9', `${POD}/exec?tty=true&tty=false&TTY=false`],
    ['D10', `${POD}/exec?container=a&container=b&command=sh`],
    ['D10', `${POD}/exec?command=a%0Ab&command=%00`],
  ];
  for (const [id, target] of SESSIONS) {
    it.each(['websocket', 'spdy'] as const)(`${id} ${target} is recorded (%s)`, async (protocol) => {
      const before = arena.recorder.uploads.length;
      const fields = protocol === 'spdy' ? SPDY : undefined;
      const base = fields === undefined ? {} : { base: [['Host', GATEWAY_HOST], ...fields] as const };
      const ask = { caller: BOB, target, ...base };
      const observed = await observe(arena, () => send(arena, 'h1 upgrade', ask));
      expectForwarded(observed, honest('h1 upgrade', ask));
      await arena.recorder.until(() => arena.recorder.uploads.length > before);
    });
  }
});

import { describe, expect, it } from 'vitest';
import { TailcastError, type ErrorCode } from '../../../src/errors.ts';
import {
  createGate,
  HEADER_LINE_BYTES,
  MAX_HEAD_BYTES,
  MAX_HEADER_NAME_BYTES,
  type GateDeps,
  type InboundRequest,
} from '../../../src/proxy/gate/gate.ts';
import { parsePolicy } from '../../../src/proxy/gate/policy-file.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import { CAPABILITY, person } from '../rig.ts';
import { codeOf } from '../../support/error-code.ts';

const signal = new AbortController().signal;

function gateFor(identity: Identity | TailcastError, overrides: Partial<GateDeps> = {}) {
  return createGate({
    mode: 'auth',
    identities: {
      whois: () => (identity instanceof TailcastError ? Promise.reject(identity) : Promise.resolve(identity)),
    },
    upstreamHost: 'kubernetes.test:6443',
    authorization: () => Promise.resolve('Bearer token'),
    nowMs: () => 42,
    createId: () => 'id-1',
    ...overrides,
  });
}

function inbound(overrides: Partial<InboundRequest> = {}): InboundRequest {
  return {
    method: 'GET',
    target: '/api/v1/namespaces/n/pods',
    rawHeaders: ['Host', 'gateway', 'Accept', 'application/json'],
    peer: { address: '100.64.0.1', port: 1234, source: 'socket' },
    upgrade: false,
    ...overrides,
  };
}

describe('the gate', () => {
  it('returns all facts about an admitted request', async () => {
    const identity = person();
    const admission = await gateFor(identity).admit(inbound(), signal);
    expect(admission).toMatchObject({
      id: 'id-1',
      startedAtMs: 42,
      requestClass: 'plain',
      info: { verb: 'list', resource: 'pods', namespace: 'n' },
      impersonation: { user: 'alice@example.com', groups: ['devs'] },
      recording: { mode: 'off' },
    });
    expect(admission.identity).toBe(identity);
    const text =
      'Host: kubernetes.test:6443|Accept: application/json|Authorization: Bearer token|Audit-ID: id-1';
    const impersonation = 'Impersonate-User: alice@example.com|Impersonate-Group: devs';
    expect(admission.headers).toEqual(
      `${text}|${impersonation}`.split('|').flatMap((line) => line.split(': ')),
    );
  });

  it('uses only the value of Host, even if other names are equally long', async () => {
    const rawHeaders = [
      'Host',
      'gateway',
      'Date',
      'today',
      'From',
      'a@b',
      'X-Ray!',
      'z',
      'X-Fetch-Siteds',
      'y',
    ];
    expect(await codeOf(gateFor(person()).admit(inbound({ rawHeaders }), signal))).toBeUndefined();
    for (const hosts of [[], ['HOST', 'gateway', 'host', 'gateway']])
      expect(await codeOf(gateFor(person()).admit(inbound({ rawHeaders: hosts }), signal))).toBeDefined();
  });

  it('reads refused ports only where the oldest port-forward protocol names them', async () => {
    const policy = parsePolicy(new Map([['portForward', { refusePorts: [22] }]]), 'policy.yaml');
    const ask = (target: string): Promise<string | undefined> =>
      codeOf(
        gateFor(person(), { policy }).admit(
          inbound({ target: `/api/v1/namespaces/n/pods/p/${target}`, upgrade: true }),
          signal,
        ),
      );
    expect(await ask('portforward?ports=22')).toBe('POLICY_REFUSED');
    expect(await ask('portforward?ports=80,22')).toBe('POLICY_REFUSED');
    expect(await ask('portforward?ports=80&ports=22')).toBe('POLICY_REFUSED');
    expect(await ask('portforward?ports=80')).toBeUndefined();
    expect(await ask('exec?command=sh&ports=22')).toBeUndefined();
  });

  it('reads the credential for every request, so that a rotated credential is used', async () => {
    let count = 0;
    const gate = gateFor(person(), { authorization: () => Promise.resolve(`Bearer ${++count}`) });
    await gate.admit(inbound(), signal);
    expect((await gate.admit(inbound(), signal)).headers).toContain('Bearer 2');
  });

  it('applies a changed identity of the caller to the next request', async () => {
    let identity = person();
    const gate = gateFor(identity, { identities: { whois: () => Promise.resolve(identity) } });
    await gate.admit(inbound(), signal);
    identity = person([{ impersonate: { groups: ['ops'] } }]);
    expect((await gate.admit(inbound(), signal)).headers).toContain('ops');
  });

  it.each<[string, Identity | TailcastError, Partial<InboundRequest>, ErrorCode]>([
    ['an unknown caller', new TailcastError('IDENTITY_UNKNOWN'), {}, 'IDENTITY_UNKNOWN'],
    [
      'a caller that cannot be asked about',
      new TailcastError('IDENTITY_UNAVAILABLE'),
      {},
      'IDENTITY_UNAVAILABLE',
    ],
    ['an empty login', { ...person(), login: '' } as Identity, {}, 'IDENTITY_MALFORMED'],
    [
      'a login with a line break',
      { ...person(), login: 'a\r\nImpersonate-User: root' } as Identity,
      {},
      'IDENTITY_MALFORMED',
    ],
    [
      'a grant that does not parse',
      { ...person(), capabilities: new Map([[CAPABILITY, [[]]]]) },
      {},
      'GRANT_MALFORMED',
    ],
    [
      'a legacy grant that does not parse',
      { ...person(), capabilities: new Map([[`https://${CAPABILITY}`, ['x']]]) },
      {},
      'GRANT_MALFORMED',
    ],
    ['CONNECT', person(), { method: 'CONNECT' }, 'METHOD_REFUSED'],
    ['a lower-case method', person(), { method: 'get' }, 'METHOD_REFUSED'],
    ['no Host', person(), { rawHeaders: [] }, 'HEADER_REFUSED'],
    ['two Hosts', person(), { rawHeaders: ['Host', 'a', 'hOST', 'a'] }, 'HEADER_REFUSED'],
    ['an encoded slash', person(), { target: '/api/v1/namespaces/n/pods/p%2Fexec' }, 'REQUEST_NOT_CANONICAL'],
    ['a dot segment', person(), { target: '/api/v1/../v1/pods' }, 'REQUEST_NOT_CANONICAL'],
    ['the legacy proxy verb', person(), { target: '/api/v1/proxy/nodes/n/run' }, 'POLICY_REFUSED'],
  ])('refuses %s', async (_, identity, overrides, code) => {
    expect(await codeOf(gateFor(identity).admit(inbound(overrides), signal))).toBe(code);
  });

  it('accepts headers exactly at the limits, and refuses one more', async () => {
    const gate = gateFor(person());
    const target = '/api/v1/namespaces/n/pods';
    // returns `count` headers and one more whose value fills the rest of `total`
    const lines = (count: number, total: number): string[] => {
      const raw = ['Host', 'a', ...Array.from({ length: count - 1 }, () => ['X-A', 'v']).flat()];
      const rest = total - target.length - (raw.length / 2) * HEADER_LINE_BYTES - raw.join('').length;
      return [...raw, 'X-B', 'v'.repeat(rest - HEADER_LINE_BYTES - 3)];
    };
    for (const count of [1, 130, 6000]) {
      const codeFor = (total: number): Promise<string | undefined> =>
        codeOf(gate.admit(inbound({ target, rawHeaders: lines(count, total) }), signal));
      expect(await codeFor(MAX_HEAD_BYTES)).toBeUndefined();
      expect(await codeFor(MAX_HEAD_BYTES + 1)).toBe('HEADERS_TOO_LARGE');
    }
    const name = (length: number): string[] => ['Host', 'a', 'n'.repeat(length), 'v'];
    expect(
      await codeOf(gate.admit(inbound({ rawHeaders: name(MAX_HEADER_NAME_BYTES) }), signal)),
    ).toBeUndefined();
    expect(await codeOf(gate.admit(inbound({ rawHeaders: name(MAX_HEADER_NAME_BYTES + 1) }), signal))).toBe(
      'HEADERS_TOO_LARGE',
    );
  });

  it.each([
    'Accept',
    'Connection',
    'Cookie',
    'Expect',
    'Impersonate-Group',
    'Origin',
    'Sec-WebSocket-Protocol',
    'X-Stream-Protocol-Version',
    'X-{}',
  ])('spends little CPU on a head full of %s lines', async (name) => {
    const raw = ['Host', 'a'];
    while (raw.length < 40_000) raw.push(name.replace('{}', String(raw.length)), 'v1');
    const gate = gateFor(person(), { mode: 'noauth' });
    const before = process.cpuUsage();
    await codeOf(gate.admit(inbound({ rawHeaders: raw }), signal));
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(500);
  });

  const enforced = { recorderAddrs: ['100.64.0.9:80'], enforceRecorder: true };
  it.each<[string, Partial<InboundRequest>, boolean]>([
    ['/api/v1/nodes/n/proxy/exec/ns/p/c', {}, true],
    ['/api/v1/nodes/n/proxy/exec/ns/p/c', { upgrade: true }, true],
    ['/api/v1/namespaces/n/pods/p/proxy/', { upgrade: true }, true],
    ['/api/v1/namespaces/n/pods/p/proxy/', {}, false],
    ['/api/v1/namespaces/n/services/s/proxy/', { upgrade: true }, true],
    [
      '/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console',
      { upgrade: true },
      true,
    ],
    ['/healthz', { upgrade: true }, true],
    ['/api/v1/namespaces/n/pods?watch=1', { upgrade: true }, false],
    ['/api/v1/namespaces/n/pods/p/exec', { upgrade: true }, false],
    ['/api/v1/namespaces/n/pods', {}, false],
  ])('decides with enforced recording about %s %j: closed is %s', async (target, overrides, closed) => {
    const request = inbound({ target, ...overrides });
    expect(await codeOf(gateFor(person([enforced])).admit(request, signal))).toBe(
      closed ? 'POLICY_REFUSED' : undefined,
    );
    // if recording is not enforced, the gateway forwards these requests
    expect(await codeOf(gateFor(person()).admit(request, signal))).toBeUndefined();
  });

  describe('with a dashboard whose server forwards headers of the browser', () => {
    const gate = gateFor(person(), {
      dashboardOrigins: new Set(['https://dash.example', 'http://localhost:4466']),
    });
    const admit = (...fields: readonly string[]): Promise<string | undefined> =>
      codeOf(gate.admit(inbound({ rawHeaders: ['Host', 'gateway', ...fields] }), signal));

    it.each([
      [['Origin', 'https://dash.example']],
      [['Origin', 'HTTPS://DASH.example', 'Sec-Fetch-Site', 'same-origin']],
      [['Origin', 'http://localhost:4466', 'X-Forwarded-Host', 'gateway']],
      [['Sec-Fetch-Site', 'same-origin']],
    ])('accepts the requests of its page: %j', async (fields) => {
      expect(await admit(...fields)).toBeUndefined();
    });

    it.each([
      ['its page, past its server', ['Origin', 'https://dash.example', 'Sec-Fetch-Site', 'cross-site']],
      ['a sibling', ['Origin', 'https://dash.example', 'Sec-Fetch-Site', 'same-site']],
      ['another scheme', ['Origin', 'http://dash.example']],
      ['another port', ['Origin', 'https://dash.example:8443']],
      ['a longer name', ['Origin', 'https://dash.example.evil.example']],
      ['no origin that can be named', ['Origin', 'null']],
      ['a second origin', ['Origin', 'https://dash.example', 'Origin', 'https://evil.example']],
    ])('refuses %s', async (_who, fields) => {
      expect(await admit(...fields)).toBe('POLICY_REFUSED');
    });

    it('refuses the dashboard unless a setting names its origin', async () => {
      const rawHeaders = ['Host', 'gateway', 'Origin', 'https://dash.example'];
      expect(await codeOf(gateFor(person()).admit(inbound({ rawHeaders }), signal))).toBe('POLICY_REFUSED');
    });
  });
});

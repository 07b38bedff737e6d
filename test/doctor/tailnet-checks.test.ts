import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { once, runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { trustedGatewaysCheck, uploadersCheck } from '../../src/doctor/recorder-role-checks.ts';
import { tailnetChecks } from '../../src/doctor/tailnet-checks.ts';
import { createLocalApi } from '../../src/tailnet/local-api.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';

const never = new AbortController().signal;
let double: LocalApiDouble;

beforeEach(async () => {
  double = await startLocalApiDouble();
  double.status = {
    BackendState: 'Running',
    Version: '1.102.5',
    CurrentTailnet: { MagicDNSSuffix: 'lab.ts.net' },
    Self: node('gateway', ['tag:k8s-gateway']),
    Peer: { a: node('recorder', ['tag:recorder']) },
  };
});
afterEach(() => double.close());

function node(name: string, tags: readonly string[]): Record<string, unknown> {
  return {
    ID: `n-${name}`,
    DNSName: `${name}.lab.ts.net.`,
    TailscaleIPs: ['100.64.0.9'],
    Tags: tags,
    Online: true,
  };
}

async function examine(
  options: {
    socketPath?: string;
    proxyProtocol?: boolean;
    uploaders?: readonly string[];
    gateways?: readonly string[];
  } = {},
) {
  const socketPath = options.socketPath ?? double.socketPath;
  const localApi = createLocalApi({ socketPath });
  const status = once(() => localApi.status(never));
  try {
    const findings = await runChecks(
      [
        ...tailnetChecks({ socketPath, status, proxyProtocol: options.proxyProtocol ?? false }),
        uploadersCheck(options.uploaders ?? ['tag:recorder'], status),
        trustedGatewaysCheck(options.gateways ?? ['tag:recorder'], status),
      ],
      never,
    );
    return Object.fromEntries(findings.map((finding) => [finding.id, finding])) as Record<
      string,
      CheckFinding
    >;
  } finally {
    localApi.close();
  }
}

describe('the tailnet checks', () => {
  it('find nothing to complain about in a good set-up, and ask once', async () => {
    const findings = await examine();
    expect(Object.values(findings).map(({ status }) => status)).toEqual(['ok', 'ok', 'ok', 'ok', 'ok', 'ok']);
    expect(findings['tailscaled']?.summary).toContain('1.102.5');
    expect(findings['node']?.summary).toBe('gateway.lab.ts.net (100.64.0.9) is tag:k8s-gateway');
    expect(double.requests).toHaveLength(1);
  });

  it('say where the socket should be when it is not there', async () => {
    const findings = await examine({ socketPath: '/nowhere/tailscaled.sock' });
    expect(findings['tailscaled']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('no socket at /nowhere/tailscaled.sock'),
      remedy: expect.stringContaining('TS_SOCKET'),
    });
    expect(findings['connected']?.status).toBe('skipped');
    expect(findings['magic-dns']?.status).toBe('skipped');
  });

  it.each([
    ['NeedsLogin', 'TS_AUTHKEY'],
    ['NeedsMachineAuth', 'approve this node'],
    ['Stopped', 'tailscale up'],
    ['Starting', 'wait'],
    ['NoState', 'log of tailscaled'],
    ['SomethingNew', 'log of tailscaled'],
  ])('say what to do in state %s', async (state, remedy) => {
    double.status['BackendState'] = state;
    const findings = await examine();
    expect(findings['connected']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining(remedy),
    });
  });

  it('pass on what tailscaled complains about', async () => {
    double.status['Health'] = ['no DERP home'];
    const findings = await examine();
    expect(findings['connected']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining('no DERP home'),
      remedy: expect.stringContaining('tailscale status'),
    });
  });

  it('want a tailscaled that writes PROXY headers where they are required', async () => {
    double.status['Version'] = '1.90.2';
    expect((await examine())['tailscaled']?.status).toBe('ok');
    expect((await examine({ proxyProtocol: true }))['tailscaled']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('1.92'),
    });
  });

  it('want a tag on the node', async () => {
    double.status['Self'] = node('laptop', []);
    expect((await examine())['node']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('--advertise-tags'),
    });
  });

  it('want a name for the node', async () => {
    double.status['Self'] = null;
    expect((await examine())['node']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('tailscale up'),
    });
  });

  it('want MagicDNS', async () => {
    double.status['CurrentTailnet'] = {};
    expect((await examine())['magic-dns']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('MagicDNS'),
    });
    double.status['CurrentTailnet'] = { MagicDNSSuffix: 'other.ts.net' };
    expect((await examine())['magic-dns']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining('not in other.ts.net'),
    });
  });

  it('want uploaders that exist', async () => {
    expect((await examine({ uploaders: [] }))['uploaders']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('--uploaders'),
    });
    expect((await examine({ uploaders: ['tag:typo'] }))['uploaders']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('tag:typo'),
      remedy: expect.stringContaining('--uploaders'),
    });
    expect((await examine({ uploaders: ['tag:typo', 'n-recorder'] }))['uploaders']?.summary).toBe(
      'n-recorder',
    );
  });

  it('want gateways for portals that exist', async () => {
    expect((await examine())['trusted-gateways']).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('shown by recorder'),
    });
    expect((await examine({ gateways: ['tag:typo', 'nTypo'] }))['trusted-gateways']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('tag:typo or nTypo'),
      remedy: expect.stringContaining('--trusted-gateways'),
    });
  });
});

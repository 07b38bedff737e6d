import { afterEach, describe, expect, it } from 'vitest';
import { createLocalApi } from '../../src/tailnet/local-api.ts';
import { joinTailnet, parseVpnAuth } from '../../src/tailnet/vpn-auth.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';

describe('the string of --vpn-auth', () => {
  it('has a key, and optionally a control server and arguments', () => {
    expect(parseVpnAuth('name=tailscale,joinKey=tskey-1')).toEqual({ joinKey: 'tskey-1', preferences: {} });
    const text =
      'joinKey=tskey-1?a=b,name=tailscale,controlServerURL=https://c.example,extraArgs=--hostname=h --accept-routes ' +
      '--advertise-tags k3s,tag:x -accept-dns=false --advertise-routes 10.0.0.0/8 --timeout=3s';
    expect(parseVpnAuth(text)).toEqual({
      joinKey: 'tskey-1?a=b',
      preferences: {
        ControlURL: 'https://c.example',
        ControlURLSet: true,
        Hostname: 'h',
        HostnameSet: true,
        AdvertiseTags: ['tag:k3s', 'tag:x'],
        AdvertiseTagsSet: true,
        CorpDNS: false,
        CorpDNSSet: true,
      },
    });
  });

  it.each([
    ['', 'a part has no "="'],
    ['name=tailscale', 'joinKey is missing'],
    ['joinKey=tskey-1', 'name is not "tailscale"'],
    ['name=wireguard,joinKey=tskey-1', 'name is not "tailscale"'],
    ['name=tailscale,joinKey', 'a part has no "="'],
    ['name=tailscale,joinKey=', 'joinKey is missing'],
    ['name=tailscale,joinKey=tskey-1,joinKey=tskey-2', 'joinKey occurs twice'],
    ['name=tailscale,joinKey=tskey-1,key=x', 'a part has an unknown name'],
    ['name=tailscale,joinKey=tskey-1,=x', 'a part has an unknown name'],
    ['name=tailscale,joinKey=tskey-1,controlServerURL=c', 'controlServerURL is not a URL'],
    ['name=tailscale,joinKey=tskey-1,extraArgs=--exit-node=x', 'extraArgs: --exit-node=x is not supported'],
    ['name=tailscale,joinKey=tskey-1,extraArgs=--accept-dns=maybe', 'neither true nor false'],
  ])('%s is refused, without the key in the message', (text, problem) => {
    const parse = (): unknown => parseVpnAuth(text);
    expect(parse).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringContaining(problem) }),
    );
    expect(parse).not.toThrow('tskey');
  });
});

describe('logging in', () => {
  const closers: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).toReversed()) await close();
  });
  const auth = parseVpnAuth('name=tailscale,joinKey=tskey-1,controlServerURL=https://c.example');
  const { signal } = new AbortController();

  async function open(state: string) {
    const double = await startLocalApiDouble();
    closers.push(() => double.close());
    double.status = {
      BackendState: state,
      Self: { DNSName: 'k3s.lab.ts.net.', TailscaleIPs: ['100.64.0.9'] },
    };
    const localApi = createLocalApi({ socketPath: double.socketPath });
    closers.push(() => localApi.close());
    return { double, localApi };
  }

  it('changes nothing at a node that runs', async () => {
    const { double, localApi } = await open('Running');
    expect(await joinTailnet(localApi, auth, signal)).toMatchObject({ name: 'k3s.lab.ts.net' });
    expect(double.changes).toEqual([]);
  });

  it('sends the preferences and the key to a node that needs a login', async () => {
    const { double, localApi } = await open('NeedsLogin');
    expect(await joinTailnet(localApi, auth, signal)).toMatchObject({ addresses: ['100.64.0.9'] });
    const preferences = {
      ControlURL: 'https://c.example',
      ControlURLSet: true,
      WantRunning: true,
      WantRunningSet: true,
    };
    expect(double.changes).toEqual([
      `PATCH prefs ${JSON.stringify(preferences)}`,
      'POST start {"AuthKey":"tskey-1"}',
      'POST login-interactive ',
    ]);
  });

  it('needs a key for a node that needs a login', async () => {
    const { double, localApi } = await open('NeedsLogin');
    await expect(joinTailnet(localApi, undefined, signal)).rejects.toThrow(
      'the node needs a login; set vpnAuth',
    );
    expect(double.changes).toEqual([]);
  });

  it.each(['Stopped', 'NeedsMachineAuth'])('does not change a node in state %s', async (state) => {
    const { double, localApi } = await open(state);
    const joining = joinTailnet(localApi, auth, signal, 300);
    await expect(joining).rejects.toThrow(`the node is not connected; tailscaled reports ${state}`);
    expect(double.changes).toEqual([]);
  });
});

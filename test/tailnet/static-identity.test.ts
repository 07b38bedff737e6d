import { describe, expect, it } from 'vitest';
import type { UserIdentity } from '../../src/tailnet/identity.ts';
import { assertLoopbackListener, createStaticIdentity } from '../../src/tailnet/static-identity.ts';

const identity: UserIdentity = {
  kind: 'user',
  nodeId: 'n1',
  nodeName: 'demo.example.ts.net',
  addresses: [],
  capabilities: new Map([['tailscale.com/cap/kubernetes', [{}]]]),
  userId: 1n,
  login: 'demo@example.com',
  displayName: 'Demo',
};
const never = new AbortController().signal;

describe('a static identity', () => {
  it('is everybody on this machine', async () => {
    const source = createStaticIdentity({ identity });
    expect(await source.whois({ address: '127.0.0.1', port: 1, source: 'socket' }, never)).toBe(identity);
  });

  it('is nobody from elsewhere', async () => {
    const source = createStaticIdentity({ identity });
    await expect(
      source.whois({ address: '100.64.0.4', port: 1, source: 'socket' }, never),
    ).rejects.toMatchObject({
      code: 'IDENTITY_UNKNOWN',
    });
  });

  it.each(['127.0.0.1', '::1', 'localhost'])('may stand behind a listener on %s', (host) => {
    expect(() => assertLoopbackListener(host)).not.toThrow();
  });

  it.each(['0.0.0.0', '::', '', '100.64.0.1', 'example.com'])('may not stand behind one on "%s"', (host) => {
    expect(() => assertLoopbackListener(host)).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }));
  });
});

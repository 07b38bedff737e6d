import { describe, expect, it } from 'vitest';
import { findHost } from '../../src/tailnet/find-host.ts';
import { parseTailnetStatus } from '../../src/tailnet/tailnet-status.ts';

const status = parseTailnetStatus({
  BackendState: 'Running',
  Self: { ID: 'n1', DNSName: 'me.lab.ts.net.', TailscaleIPs: ['100.64.0.1'], AllowedIPs: ['100.64.0.1/32'] },
  Peer: {
    a: {
      ID: 'n2',
      DNSName: 'prod-0.lab.ts.net.',
      TailscaleIPs: ['100.64.0.2', 'fd7a::2'],
      AllowedIPs: ['100.64.0.2/32', 'fd7a::2/128', '100.100.0.7/32'],
    },
    exit: {
      ID: 'n3',
      DNSName: 'exit.lab.ts.net.',
      TailscaleIPs: ['100.64.0.3'],
      AllowedIPs: ['100.64.0.3/32', '0.0.0.0/0', '::/0', 'nonsense', '1.2.3.4/99'],
    },
  },
});
const RECORDS = [
  { name: 'prod.lab.ts.net', address: '100.100.0.7' },
  { name: 'lonely.lab.ts.net', address: '100.100.0.8' },
  { name: 'lonely.lab.ts.net', address: 'fd7a::8' },
  { name: 'prod-0.lab.ts.net', address: '100.100.0.8' },
];

describe('a host of the tailnet', () => {
  it.each([
    ['prod-0', 'node', 'prod-0.lab.ts.net'],
    ['PROD-0.lab.ts.net.', 'node', 'prod-0.lab.ts.net'],
    ['me', 'node', 'me.lab.ts.net'],
    ['fd7a::2', 'node', 'prod-0.lab.ts.net'],
    ['prod', 'service', 'prod.lab.ts.net'],
    ['100.100.0.7', 'service', 'prod.lab.ts.net'],
    ['lonely', 'unreachable', 'lonely.lab.ts.net'],
  ])('is found by %s: %s', (wanted, kind, name) => {
    expect(findHost(wanted, status, RECORDS)).toEqual({ kind, name });
  });

  it.each(['pro', 'lab', 'prod-1.lab.ts.net', '100.64.0.9', '100.64.0', ''])('is not %j', (wanted) => {
    expect(findHost(wanted, status, RECORDS)).toEqual({ kind: 'unknown' });
  });
});

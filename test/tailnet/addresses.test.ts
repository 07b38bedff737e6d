import { describe, expect, it } from 'vitest';
import {
  formatAddressPort,
  isLoopback,
  normaliseAddress,
  parseAddressPort,
} from '../../src/tailnet/addresses.ts';

describe('addresses', () => {
  it.each([
    ['100.64.0.1', '100.64.0.1'],
    ['::ffff:100.64.0.1', '100.64.0.1'],
    ['::FFFF:6440:1', '100.64.0.1'],
    ['FD7A:115C:A1E0:0:0:0:0:1', 'fd7a:115c:a1e0::1'],
    ['[fd7a::1]', 'fd7a::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['example.com', undefined],
    ['', undefined],
    ['1.2.3', undefined],
    ['0x7f.1', undefined],
  ])('spell %s as %s', (text, expected) => {
    expect(normaliseAddress(text)).toBe(expected);
  });

  it.each([
    ['127.0.0.1', true],
    ['127.255.255.254', true],
    ['::1', true],
    ['[::1]', true],
    ['::ffff:127.0.0.1', true],
    ['localhost', true],
    ['LOCALHOST', true],
    ['0.0.0.0', false],
    ['::', false],
    ['', false],
    ['100.64.0.1', false],
    ['128.0.0.1', false],
    ['localhost.example.com', false],
    ['127.0.0.1.example.com', false],
  ])('know whether %s stays on this machine: %s', (host, expected) => {
    expect(isLoopback(host)).toBe(expected);
  });

  it('split and join address and port', () => {
    for (const text of ['100.64.0.1:80', '[fd7a::1]:65535']) {
      const { address, port } = parseAddressPort(text)!;
      expect(formatAddressPort(address, port)).toBe(text);
    }
  });
});

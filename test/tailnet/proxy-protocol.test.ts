import { describe, expect, it } from 'vitest';
import {
  createProxyHeaderParser,
  ProxyHeaderError,
  type ProxyHeader,
} from '../../src/tailnet/proxy-protocol.ts';

const SIGNATURE = '0d0a0d0a000d0a515549540a';

function hex(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text.replaceAll(' ', ''), 'hex'));
}

function v1(line: string): Uint8Array {
  return new Uint8Array(Buffer.from(line, 'latin1'));
}

/** Returns a header of version 2 from its parts in hex: the byte with version and command, the family, the payload. */
function v2(command: string, family: string, payload: string): Uint8Array {
  const length = (payload.replaceAll(' ', '').length / 2).toString(16).padStart(4, '0');
  return hex(SIGNATURE + command + family + length + payload);
}

function parse(bytes: Uint8Array): ProxyHeader | undefined {
  return createProxyHeaderParser().push(bytes);
}

const TCP4 = '64400003 64400002 8380 01bb';
const TCP6 = 'fd7a115ca1e00000000000000000 0003 fd7a115ca1e00000000000000000 0002 8380 01bb'.replaceAll(
  ' ',
  '',
);

const V1_TCP4 = v1('PROXY TCP4 100.64.0.3 100.64.0.2 33664 40757\r\n');
const SOURCE4 = { address: '100.64.0.3', port: 33_664 };

describe('the PROXY header, version 1', () => {
  it('names an IPv4 peer', () => {
    expect(parse(V1_TCP4)).toMatchObject({
      kind: 'proxied',
      source: SOURCE4,
      destination: { address: '100.64.0.2', port: 40_757 },
    });
  });

  it('names an IPv6 peer in its shortest spelling', () => {
    expect(parse(v1('PROXY TCP6 FD7A:115C:0:0::3 fd7a::2 1 65535\r\n'))).toMatchObject({
      source: { address: 'fd7a:115c::3', port: 1 },
    });
  });

  it('lets the sender speak for itself', () => {
    expect(parse(v1('PROXY UNKNOWN\r\n'))).toMatchObject({ kind: 'local' });
    expect(parse(v1('PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n'))).toMatchObject({ kind: 'local' });
  });

  it('leaves what follows', () => {
    const header = parse(v1('PROXY TCP4 100.64.0.3 100.64.0.2 33664 40757\r\n\x16\x03\x01'));
    expect([...header!.rest]).toEqual([0x16, 3, 1]);
  });

  it('takes a line of 107 bytes and refuses one of 108', () => {
    const line = (length: number): Uint8Array => v1(`PROXY UNKNOWN ${'x'.repeat(length - 16)}\r\n`);
    expect(line(107)).toHaveLength(107);
    expect(parse(line(107))).toMatchObject({ kind: 'local' });
    expect(() => parse(line(108))).toThrow(ProxyHeaderError);
    expect(() => parse(line(5000).subarray(0, 107))).toThrow(ProxyHeaderError);
  });

  it.each([
    ['lower case', 'proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n'],
    ['two spaces', 'PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n'],
    ['a bare line feed', 'PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n'],
    ['a port over 65535', 'PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n'],
    ['a port with a leading zero', 'PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n'],
    ['a negative port', 'PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n'],
    ['a missing port', 'PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n'],
    ['one field more', 'PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n'],
    ['an invalid address', 'PROXY TCP4 1.2.3.256 1.2.3.4 1 1\r\n'],
    ['a name', 'PROXY TCP4 localhost 1.2.3.4 1 1\r\n'],
    ['IPv6 called TCP4', 'PROXY TCP4 fd7a::1 fd7a::2 1 1\r\n'],
    ['IPv4 called TCP6', 'PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n'],
    ['a zone', 'PROXY TCP6 fe80::1%eth0 fd7a::2 1 1\r\n'],
    ['UDP', 'PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n'],
    ['UNKNOWNX', 'PROXY UNKNOWNX\r\n'],
    ['HTTP', 'GET / HTTP/1.1\r\n'],
    ['TLS', '\x16\x03\x01\x02\x00\x01'],
    ['nothing but a line', '\r\n'.repeat(3)],
  ])('refuses %s', (_name, line) => {
    expect(() => parse(v1(line))).toThrow(ProxyHeaderError);
  });
});

describe('the PROXY header, version 2', () => {
  it('names an IPv4 peer', () => {
    expect(parse(v2('21', '11', TCP4))).toMatchObject({
      kind: 'proxied',
      source: SOURCE4,
      destination: { address: '100.64.0.2', port: 443 },
    });
  });

  it('names an IPv6 peer', () => {
    expect(parse(v2('21', '21', TCP6))).toMatchObject({
      source: { address: 'fd7a:115c:a1e0::3', port: 33_664 },
    });
  });

  it('unmaps an IPv4 address inside IPv6', () => {
    const mapped = '00000000000000000000ffff64400003'.repeat(2);
    expect(parse(v2('21', '21', `${mapped}838001bb`))).toMatchObject({ source: SOURCE4 });
  });

  it('skips TLVs', () => {
    const header = parse(
      hex(Buffer.from(v2('21', '11', `${TCP4} 04 0003 aabbcc 05 0000`)).toString('hex') + '1603'),
    );
    expect(header).toMatchObject({ source: SOURCE4 });
    expect([...header!.rest]).toEqual([0x16, 0x03]);
  });

  it('lets the sender speak for itself with LOCAL or an unspecified family', () => {
    expect(parse(v2('20', '00', ''))).toMatchObject({ kind: 'local' });
    expect(parse(v2('20', '11', TCP4))).toMatchObject({ kind: 'local' });
    expect(parse(v2('21', '00', 'ffff'))).toMatchObject({ kind: 'local' });
  });

  it.each([
    ['another version', v2('11', '11', TCP4)],
    ['an unknown command', v2('22', '11', TCP4)],
    ['UDP', v2('21', '12', TCP4)],
    ['a unix socket', v2('21', '31', '00'.repeat(216))],
    ['a short address block', v2('21', '11', '64400003 64400002 8380 01')],
    ['an IPv4 block called IPv6', v2('21', '21', TCP4)],
    ['a TLV cut in its head', v2('21', '11', `${TCP4} 04 00`)],
    ['a TLV cut in its value', v2('21', '11', `${TCP4} 04 0004 aabbcc`)],
    ['a wrong signature', hex(`${SIGNATURE.replace(/0a$/, '0b')}2111000c${TCP4}`)],
  ])('refuses %s', (_name, bytes) => {
    expect(() => parse(bytes)).toThrow(ProxyHeaderError);
  });

  it('takes a header as long as the limit and refuses one byte more, before it arrives', () => {
    const limit = 16 + 12 + 3 + 10;
    const header = v2('21', '11', `${TCP4} 04 000a ${'00'.repeat(10)}`);
    expect(createProxyHeaderParser({ maxBytes: limit }).push(header)).toBeDefined();
    const parser = createProxyHeaderParser({ maxBytes: limit - 1 });
    expect(() => parser.push(header.subarray(0, 16))).toThrow('too long');
  });
});

describe('reading a PROXY header', () => {
  it('stays dead after an error', () => {
    const parser = createProxyHeaderParser();
    expect(() => parser.push(v1('GET'))).toThrow(ProxyHeaderError);
    expect(() => parser.push(V1_TCP4)).toThrow(ProxyHeaderError);
  });
});

import { decode, encode, type OptAnswer, type Packet } from 'dns-packet';
import { describe, expect, it } from 'vitest';
import { answerQuery } from '../../src/nameserver/answer.ts';
import { parseRecords } from '../../src/nameserver/records.ts';

const records = parseRecords(
  JSON.stringify({
    version: 'v1alpha1',
    ip4: {
      'db.lab.ts.net': ['10.0.0.1', '10.0.0.2'],
      'Shop.Example.org.': ['10.0.0.3'],
      'many.lab.ts.net': Array.from({ length: 60 }, (_, n) => `10.0.1.${n}`),
    },
    ip6: { 'db.lab.ts.net': ['fd00::1'], 'only6.lab.ts.net': ['fd00::6'] },
    domains: ['headscale.example.net'],
  }),
);

const OPT: OptAnswer = {
  type: 'OPT',
  name: '.',
  udpPayloadSize: 4096,
  extendedRcode: 0,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
};

function ask(name: string, type: string, more: Packet = {}, transport: 'udp' | 'tcp' = 'udp') {
  const packet = { type: 'query', id: 4711, flags: 0x0100, questions: [{ name, type }], ...more } as Packet;
  const answered = answerQuery(encode(packet), records, transport);
  if (answered === undefined) throw new Error('no answer');
  return { code: answered.code, length: answered.message.length, ...decode(Buffer.from(answered.message)) };
}
const dataOf = ({ answers = [] }: Packet): unknown[] => answers.map((one) => ('data' in one ? one.data : ''));

describe('a question', () => {
  it.each<[string, string, string, unknown[]]>([
    ['db.lab.ts.net', 'A', 'NOERROR', ['10.0.0.1', '10.0.0.2']],
    ['db.lab.ts.net', 'AAAA', 'NOERROR', ['fd00::1']],
    ['db.lab.ts.net', 'ANY', 'NOERROR', ['10.0.0.1', '10.0.0.2', 'fd00::1']],
    ['dB.LAB.ts.Net', 'A', 'NOERROR', ['10.0.0.1', '10.0.0.2']],
    ['shop.example.org', 'A', 'NOERROR', ['10.0.0.3']],
    ['only6.lab.ts.net', 'A', 'NOERROR', []],
    ['db.lab.ts.net', 'TXT', 'NOERROR', []],
    ['db.lab.ts.net', 'UNKNOWN_65', 'NOERROR', []],
    ['lab.ts.net', 'A', 'NOERROR', []],
    ['ts.net', 'A', 'NOERROR', []],
    ['headscale.example.net', 'A', 'NOERROR', []],
    ['nobody.lab.ts.net', 'A', 'NXDOMAIN', []],
    ['x.db.lab.ts.net', 'A', 'NXDOMAIN', []],
    ['nobody.headscale.example.net', 'TXT', 'NXDOMAIN', []],
    ['nobody.example.org', 'A', 'NXDOMAIN', []],
    ['example.com', 'A', 'REFUSED', []],
    ['net', 'A', 'REFUSED', []],
    ['.', 'A', 'REFUSED', []],
    ['lab.ts.net', 'AXFR', 'REFUSED', []],
  ])('for %s %s is answered with %s', (name, type, code, data) => {
    const answer = ask(name, type);
    expect(answer.code).toBe(code);
    expect(dataOf(answer)).toEqual(data);
    expect(answer.id).toBe(4711);
    expect(answer.flag_rd).toBe(true);
    expect(answer.flag_ra).toBe(false);
    expect(answer.flag_aa).toBe(code !== 'REFUSED');
    expect((answer as { rcode?: string }).rcode).toBe(code);
    expect(answer.questions?.[0]?.name).toBe(name);
  });

  it('is answered under the name as it was asked, for nobody to keep', () => {
    const { answers } = ask('Db.lAb.ts.net', 'A');
    for (const one of answers ?? [])
      expect(one).toMatchObject({ name: 'Db.lAb.ts.net', ttl: 0, class: 'IN' });
  });

  it('that has no answer gets the start of its domain, which says for how long that holds', () => {
    for (const name of ['nobody.lab.ts.net', 'only6.lab.ts.net']) {
      expect(ask(name, 'A').authorities).toMatchObject([{ type: 'SOA', name: 'lab.ts.net', ttl: 0 }]);
    }
    expect(ask('lab.ts.net', 'SOA').answers).toMatchObject([{ type: 'SOA', name: 'lab.ts.net' }]);
  });

  it('about the longest name gets a valid response', () => {
    const label = 'a'.repeat(63);
    const domain = [label, label, label, 'b'.repeat(59)].join('.');
    const long = parseRecords(
      JSON.stringify({ version: 'v1alpha1', ip4: { [`x.${domain}`]: ['10.0.0.1'] } }),
    );
    for (const [name, type] of [
      [`x.${domain}`, 'AAAA'],
      [`y.${domain}`, 'A'],
      [domain, 'SOA'],
    ] as const) {
      const query = encode({ type: 'query', id: 1, questions: [{ name, type }] });
      const { message } = answerQuery(query, long, 'tcp') ?? { message: new Uint8Array() };
      const { answers = [], authorities = [] } = decode(Buffer.from(message));
      expect([...answers, ...authorities]).toMatchObject([{ type: 'SOA', name: domain }]);
    }
  });

  it('of another class is refused', () => {
    expect(
      ask('db.lab.ts.net', 'A', { questions: [{ name: 'db.lab.ts.net', type: 'A', class: 'CH' }] }).code,
    ).toBe('REFUSED');
  });

  it('gets what fits over UDP, or is told to come back over TCP', () => {
    const plain = ask('many.lab.ts.net', 'A');
    expect(plain).toMatchObject({ flag_tc: true, answers: [] });
    expect(plain.length).toBeLessThanOrEqual(512);
    const small = ask('many.lab.ts.net', 'A', { additionals: [{ ...OPT, udpPayloadSize: 100 }] });
    expect(small).toMatchObject({ flag_tc: true });
    const tcp = ask('many.lab.ts.net', 'A', {}, 'tcp');
    expect(tcp.flag_tc).toBe(false);
    expect(dataOf(tcp)).toHaveLength(60);
    const two = ask('db.lab.ts.net', 'A', { additionals: [OPT] });
    expect(two.flag_tc).toBe(false);
    expect(two.additionals).toMatchObject([{ type: 'OPT', udpPayloadSize: 1232, ednsVersion: 0 }]);
    expect(ask('many.lab.ts.net', 'A', { additionals: [OPT] }).flag_tc).toBe(true);
  });

  it('with EDNS of a version that nobody has is told so', () => {
    const answer = ask('db.lab.ts.net', 'A', { additionals: [{ ...OPT, ednsVersion: 1 }] });
    expect(answer.code).toBe('BADVERS');
    expect(answer.additionals).toMatchObject([{ type: 'OPT', extendedRcode: 1 }]);
  });

  it('is failed while nothing is known', () => {
    const query = encode({ type: 'query', id: 1, questions: [{ name: 'db.lab.ts.net', type: 'A' }] });
    expect(answerQuery(query, undefined, 'udp')?.code).toBe('SERVFAIL');
  });
});

describe('what is no question', () => {
  const header = (flags: number, ...counts: readonly number[]): Buffer => {
    const bytes = Buffer.alloc(12);
    bytes.writeUInt16BE(99, 0);
    bytes.writeUInt16BE(flags, 2);
    counts.forEach((count, index) => bytes.writeUInt16BE(count, 4 + index * 2));
    return bytes;
  };
  const codeOf = (message: Uint8Array): string | undefined => answerQuery(message, records, 'udp')?.code;
  const A = Buffer.from([0, 1, 0, 1]);

  it('gets no answer when it is none, or an answer itself', () => {
    expect(codeOf(Buffer.alloc(11))).toBeUndefined();
    expect(codeOf(header(0x8000, 1))).toBeUndefined();
  });

  it.each<[string, Buffer, string]>([
    ['another operation', header(0x2800, 1), 'NOTIMP'],
    ['no question', header(0, 0), 'FORMERR'],
    [
      'two questions',
      Buffer.concat([header(0, 2), Buffer.from('\x01a\x00\x00\x01\x00\x01\x01b\x00\x00\x01\x00\x01')]),
      'FORMERR',
    ],
    ['a question that is promised', header(0, 1), 'FORMERR'],
    ['answers in a question', Buffer.concat([header(0, 1, 65_535), Buffer.from('\x01a\x00'), A]), 'FORMERR'],
    ['a pointer to itself', Buffer.concat([header(0, 1), Buffer.from([0xc0, 12]), A]), 'FORMERR'],
    ['a pointer into the head', Buffer.concat([header(0, 1), Buffer.from([0xc0, 0]), A]), 'FORMERR'],
    [
      'a label of a kind that nobody uses',
      Buffer.concat([header(0, 1), Buffer.from([0x41, 0x61, 0]), A]),
      'FORMERR',
    ],
    [
      'a dot within a label',
      Buffer.concat([header(0, 1), Buffer.from('\x06db.lab\x02ts\x03net\x00'), A]),
      'FORMERR',
    ],
    ['bytes that are no text', Buffer.concat([header(0, 1), Buffer.from([2, 0xff, 0xfe, 0]), A]), 'FORMERR'],
    [
      'a name that is too long',
      Buffer.concat([
        header(0, 1),
        Buffer.concat(Array.from({ length: 5 }, () => Buffer.from(`\x3f${'a'.repeat(63)}`))),
        Buffer.from([0]),
        A,
      ]),
      'FORMERR',
    ],
    [
      'more than a question can be',
      Buffer.concat([header(0, 1), Buffer.from('\x01a\x00'), A, Buffer.alloc(4097 - 19)]),
      'FORMERR',
    ],
  ])('is refused: %s', (_what, message, code) => {
    expect(codeOf(message)).toBe(code);
    const said = decode(Buffer.from(answerQuery(message, records, 'udp')!.message));
    expect(said).toMatchObject({ id: 99, type: 'response', questions: [], answers: [] });
  });
});

it('is a question with as many bytes behind it as one may have', () => {
  const asked = Buffer.from(
    encode({ type: 'query', id: 1, questions: [{ name: 'db.lab.ts.net', type: 'A' }] }),
  );
  const padded = (bytes: number): Buffer => Buffer.concat([asked, Buffer.alloc(bytes - asked.length)]);
  expect(answerQuery(padded(4096), records, 'udp')?.code).toBe('NOERROR');
  expect(answerQuery(padded(4097), records, 'udp')?.code).toBe('FORMERR');
});

describe('the file of names', () => {
  it.each<[string, unknown]>([
    ['no JSON', undefined],
    ['another version', { version: 'v2' }],
    ['a list of numbers', { version: 'v1alpha1', ip4: { 'a.ts.net': [1] } }],
  ])('is refused with %s', (_what, file) => {
    expect(() => parseRecords(file === undefined ? '{' : JSON.stringify(file))).toThrow('records:');
  });

  it.each<[string, object]>([
    ['an address of the other family', { ip4: { 'a.ts.net': ['fd00::1'] } }],
    ['an invalid address', { ip6: { 'a.ts.net': ['here'] } }],
    ['a name of one label', { ip4: { net: ['10.0.0.1'] } }],
    ['a name with a space', { ip4: { 'a b.ts.net': ['10.0.0.1'] } }],
    ['a name of 254 characters', { ip4: { [`${'a.'.repeat(126)}ab`]: ['10.0.0.1'] } }],
    ['an invalid domain', { domains: ['net'] }],
  ])('serves all other names in spite of %s', (_what, bad: { ip4?: object }) => {
    const text = JSON.stringify({
      version: 'v1alpha1',
      ...bad,
      ip4: { ...bad.ip4, 'db.ts.net': ['10.0.0.2'] },
    });
    const parsed = parseRecords(text);
    expect(parsed.find('db.ts.net')?.ip4).toEqual(['10.0.0.2']);
    expect(parsed.find('a.ts.net') ?? { ip4: [], ip6: [] }).toEqual({ ip4: [], ip6: [] });
  });

  it('gives a name at most as many addresses as fit into a response', () => {
    const ip4 = { 'a.ts.net': Array.from({ length: 257 }, (_, n) => `10.0.${n >> 8}.${n & 255}`) };
    expect(parseRecords(JSON.stringify({ version: 'v1alpha1', ip4 })).find('a.ts.net')?.ip4).toHaveLength(
      256,
    );
  });

  it('may have neither family, as the reference writes it', () => {
    expect(parseRecords('{"version":"v1alpha1","ip4":null}').size).toBe(0);
  });
});

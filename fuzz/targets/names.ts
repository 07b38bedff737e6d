/** Target for DNS queries from pods. */
import { decode, encode } from 'dns-packet';
import { answerQuery } from '../../src/nameserver/answer.ts';
import { parseRecords } from '../../src/nameserver/records.ts';
import { ensure, type FuzzTarget } from '../target.ts';

const RECORDS = parseRecords(
  JSON.stringify({
    version: 'v1alpha1',
    ip4: {
      'db.lab.ts.net': ['10.0.0.1'],
      'many.lab.ts.net': Array.from({ length: 100 }, (_, n) => `10.0.1.${n}`),
    },
    ip6: { 'db.lab.ts.net': ['fd00::1'] },
  }),
);

const question = (name: string, type: 'A' | 'AAAA' | 'SOA' | 'TXT', more: object = {}): Uint8Array =>
  new Uint8Array(encode({ type: 'query', id: 7, flags: 0x0100, questions: [{ name, type }], ...more }));
const OPT = {
  additionals: [
    {
      type: 'OPT',
      name: '.',
      udpPayloadSize: 4096,
      extendedRcode: 0,
      ednsVersion: 0,
      flags: 0,
      flag_do: false,
      options: [],
    },
  ],
};

const dnsQuery: FuzzTarget = {
  name: 'dns-query',
  words: [
    '\x02db',
    '\x03lab',
    '\x02ts\x03net\x00',
    '\x04many',
    '\x00\x01\x00\x01',
    '\x00\x1c',
    '\xc0\x0c',
    '\x00\x00\x29\x10\x00',
  ],
  seeds: [
    question('db.lab.ts.net', 'A'),
    question('DB.lab.ts.net', 'AAAA', OPT),
    question('many.lab.ts.net', 'A'),
    question('lab.ts.net', 'SOA'),
    question('nobody.lab.ts.net', 'TXT'),
    question('example.com', 'A'),
  ],
  run(input) {
    const outcomes = (['udp', 'tcp'] as const).map((transport) => {
      const answered = answerQuery(input, RECORDS, transport);
      if (answered === undefined) {
        ensure(input.length < 12 || (input[2] ?? 0) >= 0x80, 'a question got no answer');
        return 'none';
      }
      const { message, code } = answered;
      ensure(message.length <= (transport === 'udp' ? 1232 : 65_535), 'an answer that is too long');
      const said = decode(Buffer.from(message));
      ensure(said.type === 'response', 'an answer that says it is a question');
      ensure(said.id === (input[0] ?? 0) * 256 + (input[1] ?? 0), 'an answer to another question');
      for (const { name } of said.questions ?? []) {
        const asked = Buffer.from(input).toString('latin1');
        for (const label of name.split('.'))
          ensure(label === '' || asked.includes(Buffer.from(label).toString('latin1')), 'another name');
      }
      if ((said.answers ?? []).length > 0) ensure(code === 'NOERROR', 'addresses with a refusal');
      return `${code} ${said.flag_tc} ${(said.answers ?? []).length}`;
    });
    return outcomes.join(' ');
  },
};

export const NAME_TARGETS: readonly FuzzTarget[] = [dnsQuery];

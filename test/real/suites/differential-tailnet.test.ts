/** Compares how tailcast, a Go library and the reference's own types parse PROXY headers and grants. */
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { normaliseAddress, parseAddressPort } from '../../../src/tailnet/addresses.ts';
import {
  KUBERNETES_CAPABILITY,
  LEGACY_KUBERNETES_CAPABILITY,
  parseKubernetesRules,
  type KubernetesRule,
} from '../../../src/tailnet/capabilities.ts';
import { createProxyHeaderParser, type ProxyHeader } from '../../../src/tailnet/proxy-protocol.ts';
import { parseWhoisAnswer } from '../../../src/tailnet/whois-answer.ts';
import { damage, join, segments } from '../../support/damage.ts';
import { createTally } from '../differential/compare.ts';
import { askOracle, base64 } from '../differential/oracle.ts';
import { createRandom, runSeed, type Random } from '../../support/random.ts';

const HEADERS = 40_000;
const GRANTS = 20_000;
const seed = runSeed();
const latin1 = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));

interface GoProxyHeader {
  readonly error?: string;
  readonly local?: boolean;
  readonly protocol?: string;
  readonly source?: string;
  readonly sourcePort?: number;
  readonly destination?: string;
  readonly destinationPort?: number;
  readonly rest?: string;
}

const ADDRESSES = [
  ...'1.2.3.4 100.64.0.1 255.255.255.255 0.0.0.0 01.2.3.4 1.2.3 1.2.3.4.5 256.1.1.1 ::1 :: fd7a:115c:a1e0::1'.split(
    ' ',
  ),
  ...'::ffff:1.2.3.4 ::1.2.3.4 FD7A::A 2001:db8:0:0:1:0:0:1 fe80::1%eth0 [::1] 1::2::3 localhost x'.split(
    ' ',
  ),
  '',
];
const PORTS = '0 1 443 65535 65536 00 01 -1 +1 1e2 99999999999 x'.split(' ');

function randomV1(random: Random): Uint8Array {
  if (random.oneIn(3)) {
    const wide = random.oneIn(2);
    const of = (): string =>
      random.pick(wide ? ['::1', 'fd7a:115c:a1e0::1', '2001:DB8:0:0:1::1'] : ['1.2.3.4', '100.64.0.1']);
    return latin1(
      `PROXY TCP${wide ? 6 : 4} ${of()} ${of()} ${random.below(65_536)} ${random.below(65_536)}\r\n`,
    );
  }
  const address = (): string => random.pick(ADDRESSES);
  const family = random.pick(['TCP4', 'TCP4', 'TCP6', 'TCP6', 'UNKNOWN', 'UDP4', 'tcp4', 'TCP']);
  const gap = random.oneIn(12) ? random.pick(['  ', '\t', '']) : ' ';
  const end = random.oneIn(12) ? random.pick(['\n', '\r', ' \r\n', '\r\r\n', '']) : '\r\n';
  const words = ['PROXY', family, address(), address(), random.pick(PORTS), random.pick(PORTS)];
  const kept = random.oneIn(10) ? words.slice(0, 1 + random.below(6)) : words;
  return latin1(`${kept.join(gap)}${end}`);
}

function randomV2(random: Random): Uint8Array {
  const signature = Uint8Array.of(0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a);
  const command = random.pick([0x21, 0x21, 0x21, 0x20, 0x22, 0x11, 0x31]);
  const family = random.pick([0x11, 0x11, 0x21, 0x21, 0, 0x12, 0x22, 0x31, 0x32, 0x10, 0x01, 0x41]);
  const addressBytes = family >>> 4 === 1 ? 12 : family >>> 4 === 2 ? 36 : family >>> 4 === 3 ? 216 : 0;
  const mapped = join(new Uint8Array(10), Uint8Array.of(255, 255), random.bytes(4));
  const addresses =
    addressBytes === 36 && random.oneIn(4)
      ? join(mapped, mapped, random.bytes(4))
      : random.bytes(addressBytes);
  const tlvs = random.list(3, () => {
    const value = random.bytes(random.below(20));
    return join(Uint8Array.of(random.pick([1, 2, 3, 4, 5, 0x20, 0xe0]), 0, value.length), value);
  });
  const payload = join(
    addresses,
    ...tlvs,
    random.oneIn(10) ? random.bytes(random.below(4)) : new Uint8Array(0),
  );
  const length = random.oneIn(10) ? random.below(300) : payload.length;
  return join(signature, Uint8Array.of(command, family, length >>> 8, length & 255), payload);
}

function readProxyHeader(chunks: readonly Uint8Array[]): {
  header?: ProxyHeader;
  rest?: Uint8Array;
  refused: boolean;
} {
  const parser = createProxyHeaderParser();
  try {
    for (const [index, chunk] of chunks.entries()) {
      const header = parser.push(chunk);
      if (header !== undefined)
        return { header, rest: join(header.rest, ...chunks.slice(index + 1)), refused: false };
    }
    return { refused: false };
  } catch {
    return { refused: true };
  }
}

/** Returns the expected response of the oracle for a header. */
function proxyReading(header: ProxyHeader, rest: Uint8Array): object {
  const end = { rest: base64(rest) };
  if (header.kind === 'local') return { local: true, ...end };
  const { source, destination } = header;
  return {
    protocol: 'tcp',
    source: source.address,
    sourcePort: source.port,
    destination: destination.address,
    destinationPort: destination.port,
    ...end,
  };
}

function goReading(go: GoProxyHeader): object {
  const { rest = '' } = go;
  if (go.local === true) return { local: true, rest };
  return {
    protocol: go.protocol,
    source: normaliseAddress(go.source ?? ''),
    sourcePort: go.sourcePort ?? 0,
    destination: normaliseAddress(go.destination ?? ''),
    destinationPort: go.destinationPort ?? 0,
    rest,
  };
}

describe(`PROXY headers (TEST_SEED=${seed})`, () => {
  it('mean to us what they mean to go-proxyproto, if we accept them', { timeout: 60_000 }, async () => {
    const random = createRandom(seed);
    const inputs = Array.from({ length: HEADERS }, () => {
      const header = random.oneIn(2) ? randomV1(random) : randomV2(random);
      const bytes = join(header, random.bytes(random.below(30)));
      return random.oneIn(2) ? bytes : damage(random, bytes);
    });
    const answers = await askOracle<GoProxyHeader>(
      'proxy-header',
      inputs.map((bytes) => ({ bytes: base64(bytes) })),
    );
    const outcomes = createTally();
    const problems: object[] = [];
    for (const [index, bytes] of inputs.entries()) {
      const go = answers[index]!;
      const { header, rest, refused } = readProxyHeader(segments(random, bytes));
      if (header === undefined || rest === undefined) {
        const ours = refused ? 'refused' : 'waiting';
        outcomes.add(go.error === undefined ? `${ours} by us alone` : `${ours}, Go refuses`);
        if (go.error === undefined && !refused)
          problems.push({ bytes: Buffer.from(bytes).toString('latin1'), ours, go });
        continue;
      }
      const ours = proxyReading(header, rest);
      const same = go.error === undefined && JSON.stringify(ours) === JSON.stringify(goReading(go));
      // The specification (§2.2) accepts LOCAL and AF_UNSPEC with any content. The library validates the content.
      // Neither parser uses an address from such a header.
      const local = header.kind === 'local' && go.error !== undefined;
      outcomes.add(
        same ? 'equal' : go.error === undefined ? 'different' : `accepted by us alone, ${header.kind}`,
      );
      if (!same && !local) problems.push({ bytes: Buffer.from(bytes).toString('latin1'), ours, go });
    }
    console.log('PROXY headers', outcomes.counts);
    expect(problems.slice(0, 5)).toEqual([]);
    expect(outcomes.counts['equal']).toBeGreaterThan(HEADERS / 20);
  });
});

interface GoGrants {
  readonly whoisError?: string;
  readonly impersonationError?: string;
  readonly recordingError?: string;
  readonly login: string;
  readonly nodeName: string;
  readonly tagged: boolean;
  readonly impersonation: readonly KubernetesRule[];
  readonly recording: readonly KubernetesRule[];
}

/** Reasons for which only tailcast's parser rejects an input, as patterns of its error messages. */
const STRICTER: readonly (readonly [name: string, pattern: RegExp])[] = [
  // tailscaled never writes such values.
  ['a member in other letter case', /is spelled in other letter case/],
  [
    'two members of one name, or of names that differ in case only',
    /differ in letter case only|not unambiguous JSON/,
  ],
  ['a group that is empty or too long', /impersonate\.groups\[\d+\] is not/],
  ['a recorder that is no tag', /\.recorder\[\d+\] is not/],
  ['a recorder address with a zone, port 0 or a leading zero', /recorderAddrs\[\d+\] is not/],
  ['a rule that is null', /\[\d+\] is not an object/],
  ['more rules, members or elements than anybody writes', /more than \d+/],
  [
    'a node without name, address or owner that can be used',
    /IDENTITY_|Node|Name|Addresses|Tags|tag of the node|StableID/,
  ],
  ['a CapMap that is no map of lists', /CapMap/],
];

interface OurGrants {
  readonly login: string;
  readonly nodeName: string;
  readonly tagged: boolean;
  readonly impersonation: readonly KubernetesRule[];
  readonly recording: readonly KubernetesRule[];
}

function readGrants(whois: string): OurGrants | TailcastError {
  try {
    const identity = parseWhoisAnswer(whois, { allowShared: true });
    const rules = parseKubernetesRules(identity.capabilities);
    const tagged = identity.kind === 'tagged';
    return { login: tagged ? '' : identity.login, nodeName: identity.nodeName, tagged, ...rules };
  } catch (error) {
    if (error instanceof TailcastError) return error;
    throw error;
  }
}

function sameGrants(ours: OurGrants, go: GoGrants): boolean {
  if (ours.tagged !== go.tagged || ours.nodeName !== go.nodeName.replace(/\.$/, '')) return false;
  if (!ours.tagged && ours.login !== go.login) return false;
  return (
    JSON.stringify(spelled(ours.impersonation)) === JSON.stringify(spelled(go.impersonation)) &&
    JSON.stringify(spelled(ours.recording)) === JSON.stringify(spelled(go.recording))
  );
}

/** Counts an error under the first pattern of `STRICTER` that matches it. Returns true if no pattern matches. */
function unlistedRefusal(ours: TailcastError, stricter: ReturnType<typeof createTally>): boolean {
  const known = STRICTER.find(([, pattern]) => pattern.test(`${ours.code} ${ours.message}`));
  stricter.add(known?.[0] ?? 'UNKNOWN');
  return known === undefined;
}

function spelled(rules: readonly KubernetesRule[]): readonly KubernetesRule[] {
  return rules.map((rule) => ({
    ...rule,
    recorderAddresses: rule.recorderAddresses.map((text) => {
      const { address, port } = parseAddressPort(text) ?? { address: text, port: -1 };
      return `${normaliseAddress(address)} ${port}`;
    }),
  }));
}

describe(`grants (TEST_SEED=${seed})`, () => {
  it(
    'mean to us what they mean to the types of the reference, if we accept them',
    { timeout: 60_000 },
    async () => {
      const random = createRandom(seed + 1);
      const inputs = Array.from({ length: GRANTS }, () => randomWhois(random));
      const answers = await askOracle<GoGrants>(
        'grants',
        inputs.map((whois) => ({ whois })),
      );
      const outcomes = createTally();
      const stricter = createTally();
      const problems: object[] = [];
      for (const [index, whois] of inputs.entries()) {
        const go = answers[index]!;
        const goFails = go.whoisError ?? go.impersonationError ?? go.recordingError;
        const ours = readGrants(whois);
        if (ours instanceof TailcastError) {
          outcomes.add(goFails === undefined ? 'refused by us alone' : 'refused by both');
          if (goFails === undefined && unlistedRefusal(ours, stricter)) {
            problems.push({ whois, ours: ours.message, go });
          }
          continue;
        }
        const same = goFails === undefined && sameGrants(ours, go);
        outcomes.add(same ? 'equal' : goFails === undefined ? 'different' : 'accepted by us alone');
        if (!same) problems.push({ whois, ours, go });
      }
      console.log('grants', outcomes.counts, 'stricter:', stricter.counts);
      expect(problems.slice(0, 5)).toEqual([]);
      expect(outcomes.counts['equal']).toBeGreaterThan(GRANTS / 10);
    },
  );
});

/** Returns JSON text of a whois response with parts that may be missing, repeated, invalid or of another type. */
function randomWhois(random: Random): string {
  const odd = random.oneIn(2);
  const rules = (): string => list(random, odd, random.below(4), () => randomRule(random, odd));
  const capabilities = members(random, odd, [
    [KUBERNETES_CAPABILITY, rules()],
    ...(random.oneIn(3) ? [[LEGACY_KUBERNETES_CAPABILITY, rules()] as const] : []),
    ...(random.oneIn(3) ? [['https://example.com/cap/other', '[1,"x",{"a":null}]'] as const] : []),
  ]);
  const tagged = random.oneIn(3);
  const node = members(random, odd && random.oneIn(3), [
    ['StableID', '"n4"'],
    ['Name', '"alice.lab.ts.net."'],
    ['User', '1234567890123456789'],
    ['Addresses', '["100.64.0.4/32","fd7a:115c:a1e0::4/128"]'],
    ...(tagged ? [['Tags', '["tag:ci","tag:web"]'] as const] : []),
  ]);
  const profile = members(random, odd && random.oneIn(3), [
    ['LoginName', tagged ? '"tagged-devices"' : random.pick(['"alice@example.com"', '"bob@github"'])],
    ['DisplayName', '"Alice"'],
  ]);
  return members(random, odd && random.oneIn(4), [
    ['Node', node],
    ['UserProfile', profile],
    ['CapMap', capabilities],
  ]);
}

function randomRule(random: Random, odd: boolean): string {
  const text = (texts: readonly string[]): string => JSON.stringify(random.pick(texts));
  const groups = [
    'system:masters',
    'readers',
    'a b',
    'Grüppe',
    ...(odd ? ['', '\u0000', 'x'.repeat(1100)] : []),
  ];
  const tags = ['tag:recorder', 'tag:a-1', ...(odd ? ['recorder', 'tag:', ''] : [])];
  const addresses = [
    '100.64.0.1:80',
    '[fd7a::1]:443',
    '[::ffff:1.2.3.4]:80',
    ...(odd
      ? ['100.64.0.1', '100.64.0.1:0', '100.64.0.1:080', '[fe80::1%eth0]:80', 'h:80', '', '1.2.3.4:65536']
      : []),
  ];
  const all: readonly Member[] = [
    ['impersonate', members(random, odd, [['groups', list(random, odd, 3, () => text(groups))]])],
    ['recorder', list(random, odd, random.below(2), () => text(tags))],
    ['recorderAddrs', list(random, odd, random.below(3), () => text(addresses))],
    ['enforceRecorder', random.pick(['true', 'false'])],
    ['enableEvents', random.pick(['true', 'false'])],
    ['unknown', '{"a":[1,2,null]}'],
  ];
  return members(
    random,
    odd,
    all.filter(() => !random.oneIn(3)),
  );
}

type Member = readonly [name: string, json: string];

const ODD_VALUES = [
  'null',
  '{}',
  '[]',
  '""',
  '0',
  'true',
  '"x"',
  '[null]',
  '{"groups":null}',
  '[[]]',
  '1e400',
  '',
];

/** Returns a JSON object, possibly with an error if `odd` is set. */
function members(random: Random, odd: boolean, list: readonly Member[]): string {
  const spelled = list.flatMap(([name, json]): Member[] => {
    if (!odd || !random.oneIn(8)) return [[name, json]];
    switch (random.below(4)) {
      case 0:
        return [
          [
            random.pick([name.toUpperCase(), name.toLowerCase(), name.replace('s', 'ſ').replace('k', 'K')]),
            json,
          ],
        ];
      case 1:
        return [[name, random.pick(ODD_VALUES)]];
      case 2:
        return random.oneIn(2)
          ? [
              [name, json],
              [name, random.pick(ODD_VALUES)],
            ]
          : [
              [name, json],
              [name.toUpperCase(), json],
            ];
      default:
        return [];
    }
  });
  return `{${spelled.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(',')}}`;
}

/** Returns a JSON array, possibly with items of other types if `odd` is set. */
function list(random: Random, odd: boolean, length: number, make: () => string): string {
  const elements = Array.from({ length }, () => (odd && random.oneIn(20) ? random.pick(ODD_VALUES) : make()));
  return odd && random.oneIn(20) ? random.pick(ODD_VALUES) : `[${elements.join(',')}]`;
}

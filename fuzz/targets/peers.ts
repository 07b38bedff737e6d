/** Targets for data from tailscaled, the API server and uploaders. */
import { parseKubernetesRules } from '../../src/tailnet/capabilities.ts';
import {
  createProxyHeaderParser,
  ProxyHeaderError,
  type ProxyHeader,
} from '../../src/tailnet/proxy-protocol.ts';
import { parseWhoisAnswer } from '../../src/tailnet/whois-answer.ts';
import { ChunkedScanner } from '../../src/proxy/upstream/chunked.ts';
import {
  headerList,
  parseResponseHead,
  reasonPhrase,
  type ResponseHead,
} from '../../src/proxy/upstream/response-head.ts';
import { ResponseReader } from '../../src/proxy/upstream/response-reader.ts';
import { LineSplitter, type UploadPiece } from '../../src/tsrecorder/intake/line-splitter.ts';
import { isIP } from 'node:net';
import { join } from '../../test/support/damage.ts';
import {
  attempt,
  checkStream,
  cutAtRandom,
  ensure,
  ensureEqual,
  textOf,
  utf8,
  words,
  type FuzzTarget,
} from '../target.ts';
import { refusals } from './requests.ts';

function proxyRefusal(error: unknown): string | undefined {
  return error instanceof ProxyHeaderError ? 'refused' : undefined;
}

const V2 = Uint8Array.from(Buffer.from('0d0a0d0a000d0a515549540a', 'hex'));

const proxyHeader: FuzzTarget = {
  name: 'proxy-protocol',
  words: [
    'PROXY ',
    'TCP4 ',
    'TCP6 ',
    'UNKNOWN',
    '1.2.3.4 ',
    '::1 ',
    '65535',
    '\r\n',
    Buffer.from(V2).toString('latin1'),
  ],
  seeds: [
    utf8('PROXY TCP4 100.64.0.3 100.64.0.2 33664 443\r\nrest'),
    utf8('PROXY TCP6 fd7a::3 fd7a::2 33664 443\r\n'),
    utf8('PROXY UNKNOWN\r\n'),
    join(V2, Uint8Array.of(0x21, 0x11, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 1, 187), utf8('rest')),
    join(V2, Uint8Array.of(0x21, 0x21, 0, 40), new Uint8Array(36), Uint8Array.of(4, 0, 1, 0)),
    join(V2, Uint8Array.of(0x20, 0, 0, 0)),
    join(V2, Uint8Array.of(0x20, 0, 0x10, 0x10), new Uint8Array(0x1010)),
  ],
  run(input, random) {
    const whole = readHeader([input]);
    const bytewise = readHeader(Array.from(input, (byte) => Uint8Array.of(byte)));
    const cut = readHeader(cutAtRandom(input, random));
    ensureEqual(cut, whole, 'the reading depends on where the input is cut');
    ensureEqual(bytewise, whole, 'the reading depends on where the input is cut');
    if (typeof whole === 'string') return whole;
    ensure(input.length - whole.rest.length <= 4096, 'a header longer than its limit');
    ensureEqual(
      [...whole.rest],
      Array.from(input.slice(input.length - whole.rest.length)),
      'bytes behind the header changed',
    );
    if (whole.kind === 'local') return 'local';
    for (const { address, port } of [whole.source, whole.destination]) {
      ensure(isIP(address) !== 0 && port >= 0 && port <= 65_535, `not an address: ${address}`);
    }
    return `proxied ${isIP(whole.source.address)}`;
  },
};

function readHeader(chunks: readonly Uint8Array[]): ProxyHeader | string {
  const parser = createProxyHeaderParser();
  for (const [index, chunk] of chunks.entries()) {
    const { value: header, refused } = attempt(() => parser.push(chunk), proxyRefusal);
    if (refused === undefined && header === undefined) continue;
    ensure(attempt(() => parser.push(chunk), proxyRefusal).refused === 'refused', 'the end was not final');
    if (header === undefined) return 'refused';
    return { ...header, rest: new Uint8Array(join(header.rest, ...chunks.slice(index + 1))) };
  }
  return 'waiting';
}

const WHOIS =
  '{"Node":{"ID":4,"StableID":"n4","Name":"alice.lab.ts.net.","User":9007199254740993,"Addresses":["100.64.0.4/32"]},' +
  '"UserProfile":{"ID":1,"LoginName":"alice@example.com","DisplayName":"Alice"},"CapMap":{"tailscale.com/cap/kubernetes":' +
  '[{"impersonate":{"groups":["system:masters"]},"recorder":["tag:recorder"],"recorderAddrs":["100.64.0.1:80"],"enforceRecorder":true}]}}';

const whois: FuzzTarget = {
  name: 'whois-answer',
  words: words(
    '{ } [ ] , : null true "" "Tags":["tag:a"] "impersonate": "Sharer":1 "groups":[ "recorderAddrs":[" "__proto__":',
    '"tailscale.com/cap/kubernetes":[ "https://tailscale.com/cap/kubernetes":[ \\u0041',
  ),
  seeds: [
    utf8(WHOIS),
    utf8(
      '{"Node":{"StableID":"n","Name":"ci.ts.net.","Tags":["tag:ci"]},"CapMap":{"https://tailscale.com/cap/kubernetes":[{}]}}',
    ),
    utf8('{"Node":{"StableID":"n","Name":"x.","User":1},"UserProfile":{"LoginName":"a@b"},"CapMap":null}'),
  ],
  run(input) {
    const text = textOf(input);
    const refusal = refusals('IDENTITY_MALFORMED', 'IDENTITY_UNKNOWN', 'GRANT_MALFORMED');
    const { value: identity, refused } = attempt(
      () => parseWhoisAnswer(text, { allowShared: false }),
      refusal,
    );
    if (refused !== undefined) return refused;
    const name = identity.kind === 'user' ? identity.login : identity.nodeName;
    ensure(/^[!-~]+$/.test(name) && name !== 'tagged-devices', 'a name that no header may hold');
    if (identity.kind === 'tagged') ensure(identity.tags.length > 0, 'a tagged node without tags');
    const { value: rules, refused: malformed } = attempt(
      () => parseKubernetesRules(identity.capabilities),
      refusal,
    );
    if (malformed !== undefined) return malformed;
    for (const rule of rules.impersonation) ensure(!rule.groups.includes(''), 'an empty group');
    return `${identity.kind} ${rules.impersonation.length} ${rules.recording.length}`;
  },
};

const upstreamRefusal = refusals('UPSTREAM_BROKEN');

const responseHead: FuzzTarget = {
  name: 'response-head',
  words: [
    'HTTP/1.1 200 OK\r\n',
    '\r\n',
    '\r\n\r\n',
    'Content-Length: 5',
    'Transfer-Encoding: chunked',
    'Connection: close',
    ': ',
    '\n',
  ],
  seeds: [
    utf8('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello'),
    utf8('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n'),
    utf8('HTTP/1.0 404 \r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=b\r\n\r\n'),
  ],
  run(input, random) {
    const bytes = Buffer.from(input);
    const { value: head, refused } = attempt(() => parseResponseHead(bytes, 0), upstreamRefusal);
    // The parser may reject an incomplete head only if it also rejects the complete head.
    const part = attempt(
      () => parseResponseHead(bytes.subarray(0, random.below(bytes.length + 1)), 0),
      upstreamRefusal,
    );
    if (part.refused !== undefined) ensure(refused !== undefined, 'a part was refused and the whole was not');
    if (refused !== undefined) return refused;
    if (head === undefined) {
      ensure(part.value === undefined, 'a part was read and the whole was not');
      return 'waiting';
    }
    if (part.value !== undefined) ensure(part.value.end === head.end, 'a head ends in two places');
    const shifted = parseResponseHead(Buffer.concat([utf8('junk'), bytes]), 4);
    ensureEqual(shifted === undefined ? undefined : shifted.end - 4, head.end, 'the place of a head matters');
    const fields = headerList(head);
    ensure(fields.length % 2 === 0, 'a name without a value');
    for (const text of [reasonPhrase(head), ...fields])
      ensure(!/[\r\n\0]/.test(text), 'a line break got through');
    ensure(!(head.chunked && head.contentLength !== undefined), 'two kinds of framing');
    return `${head.status >= 200} ${head.chunked} ${head.contentLength !== undefined} ${head.keepAlive} ${head.clean}`;
  },
};

const chunked: FuzzTarget = {
  name: 'chunked',
  words: ['0\r\n\r\n', '5\r\nhello\r\n', '\r\n', ';ext', 'ffffffff', 'Trailer: x\r\n', '0\r\n'],
  seeds: [
    utf8('5\r\nhello\r\n0\r\n\r\nrest'),
    utf8('a;x=y\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n'),
    utf8('1\r\na\r\n1\r\nb\r\n'),
  ],
  run(input, random) {
    const bytewise = scanChunks(Array.from(input, (byte) => Uint8Array.of(byte)));
    ensureEqual(
      scanChunks(cutAtRandom(input, random)),
      bytewise,
      'the reading depends on where the input is cut',
    );
    if (bytewise.end === -1) return bytewise.refused ?? 'waiting';
    // without the bytes after the body, the parser must find the same end of the body
    ensureEqual(
      scanChunks([input.slice(0, bytewise.end)]).end,
      bytewise.end,
      'the end depends on what follows',
    );
    return `read ${bytewise.trailers.length}`;
  },
};

interface Chunks {
  /** Offset of the end of the body; -1 if the body is incomplete or was rejected. */
  readonly end: number;
  readonly refused: string | undefined;
  readonly payload: string;
  readonly trailers: readonly string[];
}

function scanChunks(chunks: readonly Uint8Array[]): Chunks {
  const scanner = new ChunkedScanner();
  let payload = '';
  let before = 0;
  for (const chunk of chunks) {
    const bytes = Buffer.from(chunk);
    const { value: end, refused } = attempt(
      () => scanner.scan(bytes, 0, (from, to) => (payload += bytes.toString('latin1', from, to))),
      upstreamRefusal,
    );
    if (refused !== undefined) return { end: -1, refused, payload: '', trailers: [] };
    if (end !== -1) return { end: before + end, refused, payload, trailers: scanner.trailers };
    before += bytes.length;
  }
  return { end: -1, refused: undefined, payload, trailers: scanner.trailers };
}

interface Answer {
  refused: string | undefined;
  readonly heads: string[];
  payload: string;
  trailers: readonly string[];
  ended: boolean;
  reusable: boolean;
}

const responseReader: FuzzTarget = {
  name: 'response-reader',
  words: [
    'HTTP/1.1 200 OK\r\n',
    'HTTP/1.1 100 Continue\r\n\r\n',
    'HTTP/1.1 204 No Content\r\n\r\n',
    'Content-Length: 5\r\n\r\n',
    'Transfer-Encoding: chunked\r\n\r\n',
    'Connection: close\r\n',
    '5\r\nhello\r\n',
    '0\r\n\r\n',
    '\r\n',
  ],
  seeds: [
    utf8('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello'),
    utf8(
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: ' +
        'chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n',
    ),
    utf8('HTTP/1.1 200 OK\r\n\r\nuntil the end'),
    utf8('HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n'),
    utf8('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore'),
  ],
  run(input, random) {
    const method = random.pick(['GET', 'HEAD', 'POST']);
    const bytewise = readAnswer(
      Array.from(input, (byte) => Uint8Array.of(byte)),
      method,
    );
    const cut = readAnswer(cutAtRandom(input, random), method);
    if (bytewise.refused === undefined)
      ensureEqual(cut, bytewise, 'the reading depends on where the input is cut');
    ensureEqual(cut.refused, bytewise.refused, 'the refusal depends on where the input is cut');
    ensure(bytewise.payload.startsWith(cut.payload), 'bytes were lost or changed before the refusal');
    const text = Buffer.from(input).toString('latin1');
    for (const head of bytewise.heads) ensure(text.includes(head), 'a head was made up');
    return `${bytewise.refused} ${bytewise.ended} ${bytewise.heads.length} ${bytewise.payload.length > 0}`;
  },
};

/** Reads one response from the pieces of a connection that then closes. */
function readAnswer(chunks: readonly Uint8Array[], method: string): Answer {
  const reader = new ResponseReader();
  const answer: Answer = {
    refused: undefined,
    heads: [],
    payload: '',
    trailers: [],
    ended: false,
    reusable: false,
  };
  const sayHead = (head: ResponseHead): void => {
    ensure(!answer.ended, 'a head behind the end');
    answer.heads.push(head.bytes.toString('latin1', head.start, head.end));
  };
  reader.begin(
    {
      needsPayload: true,
      informational: sayHead,
      head: sayHead,
      body(bytes, start, end) {
        ensure(!answer.ended && end > start, 'a body behind the end, or none');
        answer.payload += bytes.toString('latin1', start, end);
      },
      end(trailers) {
        ensure(!answer.ended, 'two ends');
        answer.ended = true;
        answer.trailers = trailers;
      },
    },
    method,
  );
  const { refused } = attempt(() => {
    for (const chunk of chunks) reader.push(Buffer.from(chunk));
    reader.finish();
  }, upstreamRefusal);
  answer.refused = refused;
  answer.reusable = reader.reusable;
  return answer;
}

const LINE_LIMITS = { maxLineBytes: 200, maxObjectBytes: 400 };

function mergeLines(pieces: readonly UploadPiece[]): readonly unknown[] {
  const merged: { kind: string; text: string; odd: number }[] = [];
  for (const piece of pieces) {
    const last = merged.at(-1);
    const text = Buffer.from(piece.kind === 'cast' ? piece.bytes : piece.line).toString('latin1');
    if (piece.kind === 'cast' && last?.kind === 'cast') {
      last.text += text;
      last.odd += piece.oddLines;
    } else if (piece.kind === 'cast') {
      merged.push({ kind: 'cast', text, odd: piece.oddLines });
    } else {
      merged.push({ kind: 'object', text, odd: 0 });
    }
  }
  return merged;
}

const lineSplitter: FuzzTarget = {
  name: 'line-splitter',
  words: ['{', '[', '\n', '{}\n', '[1,"o","x"]\n', '\n\n'],
  seeds: [
    utf8('{"version":2}\n[0,"o","a"]\n[1,"o","b"]\n{"kind":"end"}\n'),
    utf8('{"version":2}\n[0,"o","a"]\nodd\n[1'),
    utf8('\n\n{'),
  ],
  run(input, random) {
    const { merged, refused } = checkStream(input, random, {
      create: () => new LineSplitter(LINE_LIMITS),
      refusal: refusals('UPLOAD_TOO_LARGE'),
      afterRefusal: (name) => name,
      merge: mergeLines,
    });
    const pieces = merged as readonly { kind: string; text: string }[];
    const text = pieces.map((piece) => piece.text).join('');
    ensure(Buffer.from(input).toString('latin1').startsWith(text), 'bytes were lost or changed');
    for (const piece of pieces) {
      ensure((piece.kind === 'object') === piece.text.startsWith('{'), 'an object among cast lines');
    }
    return `${refused} ${pieces.length}`;
  },
};

export const PEER_TARGETS: readonly FuzzTarget[] = [
  proxyHeader,
  whois,
  responseHead,
  responseReader,
  chunked,
  lineSplitter,
];

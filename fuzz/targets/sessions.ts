/** Targets for taps, which parse complete connections. */
import { TailcastError } from '../../src/errors.ts';
import { parseUpgradeRequest } from '../../src/proxy/session/upgrade-http.ts';
import { createTap, type StreamProtocol } from '../../src/recording/stream-plan.ts';
import { createPortForwardInput } from '../../src/recording/tap-port-forward.ts';
import { createReceiveOnlyInput } from '../../src/recording/tap-unrecorded.ts';
import { NO_BYTES, type TappedSession } from '../../src/recording/tap.ts';
import { encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';
import { encodeWebSocketFrame } from '../../src/wire/websocket/frame.ts';
import { join } from '../../test/support/damage.ts';
import { clientMessage, createSpdyPeer, serverMessage } from '../../test/support/stream-peers.ts';
import {
  attempt,
  cutAtRandom,
  ensure,
  ensureEqual,
  latin1Of,
  utf8,
  words,
  type FuzzTarget,
} from '../target.ts';
import { refusals } from './requests.ts';

/** Data that a tap has passed to its session. The data must not depend on how the input was cut into pieces. */
interface Heard {
  readonly stdout: string;
  readonly stderr: string;
  readonly inputBytes: number;
  readonly sizes: readonly string[];
  readonly exits: readonly string[];
  readonly refused: string | undefined;
}

const refusal = refusals('SESSION_VIOLATED');

/** Passes the client's chunks to a tap, and then the server's chunks, because the server responds to the client. */
function listen(
  protocol: StreamProtocol,
  chosen: string,
  chunks: { readonly client: readonly Uint8Array[]; readonly server: readonly Uint8Array[] },
): Heard {
  const output = { stdout: '', stderr: '' };
  const [sizes, exits]: [string[], string[]] = [[], []];
  let inputBytes = 0;
  const session: TappedSession = {
    output: (stream, bytes) => void (output[stream] += latin1Of(bytes)),
    input: (count) => void (inputBytes += count),
    resize: ({ columns, rows }) => void sizes.push(`${columns}x${rows}`),
    exit: (status) => void exits.push(JSON.stringify(status)),
    flush() {},
  };
  const tap = createTap(session, protocol, chosen);
  const { refused } = attempt(() => {
    for (const chunk of chunks.client) tap.input(chunk.slice(), NO_BYTES);
    for (const chunk of chunks.server) {
      void tap.output(chunk.slice());
      tap.mark().delivered(0);
    }
  }, refusal);
  tap.farewell('over', 503);
  return { ...output, inputBytes, sizes, exits, refused };
}

const bytewise = (bytes: Uint8Array): readonly Uint8Array[] =>
  Array.from(bytes, (byte) => Uint8Array.of(byte));

/**
 * The same bytes in other pieces must give the same session. A rejected session may lack output, but must not contain
 * other output.
 */
function compare(
  name: string,
  protocol: StreamProtocol,
  chosen: (selector: number) => string,
  seeds: readonly Uint8Array[],
): FuzzTarget {
  return {
    name,
    words: ['\x82\x05', '\x88\x02', '\x80\x03\0\x01', 'streamtype', 'stdout', '{"Width":1}', '\xff\0'],
    seeds,
    run(input, random) {
      const [selector = 0, high = 0, low = 0] = input;
      const bytes = input.subarray(3);
      const middle = Math.min(high * 256 + low, bytes.length);
      const [client, server] = [bytes.subarray(0, middle), bytes.subarray(middle)];
      const subprotocol = chosen(selector);
      const expected = listen(protocol, subprotocol, {
        client: bytewise(client),
        server: bytewise(server),
      });
      const cut = { client: cutAtRandom(client, random), server: cutAtRandom(server, random) };
      const actual = listen(protocol, subprotocol, cut);
      if (actual.refused === undefined || expected.refused === undefined) {
        ensureEqual(actual, expected, 'the reading depends on where the input is cut');
      }
      // if the tap rejects the end of a chunk, the chunk is not delivered, so output may be missing
      ensure(expected.stdout.startsWith(actual.stdout), 'output was made up');
      ensure(expected.stderr.startsWith(actual.stderr), 'errors were made up');
      ensure(actual.stdout.length + actual.stderr.length <= server.length, 'more came out than went in');
      ensure(actual.inputBytes <= client.length, 'more was counted than came');
      return `${actual.refused} ${Math.min(actual.stdout.length, 9)} ${actual.exits.join(' ')}`.slice(0, 60);
    },
  };
}

function conversation(selector: number, client: Uint8Array, server: Uint8Array): Uint8Array {
  return join(Uint8Array.of(selector, client.length >>> 8, client.length & 0xff), client, server);
}

const [ours, theirs] = [createSpdyPeer(), createSpdyPeer()];
const spdyClient = join(
  ours.open(1, 'error'),
  ours.open(3, 'stdin'),
  ours.open(5, 'stdout'),
  ours.open(7, 'resize'),
  ours.data(7, utf8('{"Width":80,"Height":24}\n')),
  ours.data(3, utf8('id\n'), true),
);
const spdyServer = join(
  ...[1, 3, 5, 7].map((id) => theirs.reply(id)),
  theirs.data(5, utf8('uid=0\n')),
  theirs.data(5, utf8(''), true),
  theirs.data(1, utf8('{"metadata":{},"status":"Success"}'), true),
);
const webSocketClient = join(
  clientMessage(4, utf8('{"Width":80,"Height":24}')),
  clientMessage(0, utf8('id\n')),
  clientMessage(255, Uint8Array.of(0)),
);
const webSocketServer = join(
  serverMessage(1, utf8('uid=0\n')),
  encodeWebSocketFrame({ opcode: 2, fin: false, payload: utf8('\x02a') }),
  encodeWebSocketFrame({ opcode: 9, fin: true, payload: utf8('x') }),
  encodeWebSocketFrame({ opcode: 0, fin: true, payload: utf8('b') }),
  serverMessage(3, utf8('{"metadata":{},"status":"Success"}')),
  encodeWebSocketFrame({ opcode: 8, fin: true, payload: Uint8Array.of(3, 0xe8) }),
);
const base64Server = join(
  encodeWebSocketFrame({ opcode: 1, fin: true, payload: utf8('1aGVsbG8=') }),
  encodeWebSocketFrame({ opcode: 1, fin: false, payload: utf8('2aGVs') }),
  encodeWebSocketFrame({ opcode: 0, fin: true, payload: utf8('bG8=') }),
);

const SPDY_VERSIONS = ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'];
const WEBSOCKET_VERSIONS = [
  'v5.channel.k8s.io',
  'v4.channel.k8s.io',
  'base64.channel.k8s.io',
  'v4.base64.channel.k8s.io',
  '',
];
const pick = (names: readonly string[]) => (selector: number) => names[selector % names.length] ?? '';

const spdyTaps = compare('tap-spdy', 'spdy', pick(SPDY_VERSIONS), [
  conversation(0, spdyClient, spdyServer),
  conversation(3, spdyClient, spdyServer),
  conversation(0, spdyClient, new Uint8Array(0)),
]);
const webSocketTaps = compare('tap-websocket', 'websocket', pick(WEBSOCKET_VERSIONS), [
  conversation(0, webSocketClient, webSocketServer),
  conversation(1, clientMessage(0, utf8('id\n')), webSocketServer),
  conversation(2, new Uint8Array(0), base64Server),
]);

/** Returns the frame with which a client opens a stream for a forwarded port. */
function openPort(port: string): Uint8Array {
  const fields = [
    ['port', port],
    ['streamtype', 'data'],
  ] as const;
  const block = createHeaderDeflater().encode(fields);
  const flags = { fin: false, unidirectional: false, priority: 0, associatedTo: 0 };
  return encodeSpdyFrame({ kind: 'synStream', streamId: 1, block, ...flags });
}

const portForward: FuzzTarget = {
  name: 'tap-port-forward',
  words: ['port', '8080', '00000000000022', '\0', '\x80\x03\0\x01', '\x82\x20'],
  seeds: [
    join(Uint8Array.of(0), openPort('8080'), createSpdyPeer().data(1, utf8('x'))),
    join(Uint8Array.of(0), openPort('000000000000022')),
    join(Uint8Array.of(0), openPort('22\0' + '80')),
    join(
      Uint8Array.of(1),
      encodeWebSocketFrame({
        opcode: 2,
        fin: true,
        payload: openPort('22'),
        mask: Uint8Array.of(1, 2, 3, 4),
      }),
    ),
    join(Uint8Array.of(2), clientMessage(0, utf8('x'))),
  ],
  run(input, random) {
    const [selector = 0] = input;
    const bytes = input.subarray(1);
    if (selector % 3 === 2) {
      const read = (chunks: readonly Uint8Array[]): string | undefined => {
        const input = createReceiveOnlyInput();
        return attempt(() => {
          for (const chunk of chunks) input(chunk, NO_BYTES);
        }, refusal).refused;
      };
      const refused = read(bytewise(bytes));
      ensure(read(cutAtRandom(bytes, random)) === refused, 'a stream depends on where it is cut');
      return `stream ${refused}`;
    }
    const read = (chunks: readonly Uint8Array[]): { ports: readonly number[]; refused?: string } => {
      const judged: number[] = [];
      const tap = createPortForwardInput(selector % 3 === 0 ? 'spdy' : 'tunnel', (port) => {
        judged.push(port);
        if (port === 22) throw new TailcastError('POLICY_REFUSED');
      });
      const { refused } = attempt(
        () => {
          for (const chunk of chunks) tap.input(chunk.slice(), NO_BYTES);
        },
        refusals('SESSION_VIOLATED', 'POLICY_REFUSED'),
      );
      ensure(!tap.ports.includes(22), 'a refused port counts as opened');
      ensure(!judged.includes(22) || refused === 'POLICY_REFUSED', 'a refused port goes on');
      return { ports: tap.ports, ...(refused === undefined ? {} : { refused }) };
    };
    const expected = read(bytewise(bytes));
    const actual = read(cutAtRandom(bytes, random));
    if (expected.refused === undefined) ensureEqual(actual, expected, 'ports depend on where they are cut');
    ensure(expected.refused === actual.refused || actual.refused !== undefined, 'a refusal was lost');
    return `${actual.refused} ${Math.min(actual.ports.length, 5)}`;
  },
};

const KNOWN: Readonly<Record<string, string>> = { websocket: 'websocket', spdy: 'spdy/3.1' };

const upgradeRequest: FuzzTarget = {
  name: 'upgrade-request',
  words: words(
    'Upgrade: websocket SPDY/3.1 , h2c TLS/1.0 connect-udp Connection: Content-Length: 0 5 Transfer-Encoding: ' +
      'chunked GET POST PUT \n 1.0',
  ),
  seeds: [
    'GET\n1.1\nConnection: Upgrade\nUpgrade: websocket',
    'POST\n1.1\nConnection: Upgrade\nUpgrade: SPDY/3.1\nContent-Length: 0',
    'GET\n1.0\nUpgrade: foo, websocket\nUpgrade: spdy/3.1',
  ].map(utf8),
  run(input) {
    const [method = '', httpVersion = '', ...lines] = latin1Of(input).split('\n');
    const rawHeaders = lines.flatMap((line) => {
      const colon = line.indexOf(':');
      return colon === -1 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
    const { value, refused } = attempt(
      () => parseUpgradeRequest({ method, httpVersion, rawHeaders }),
      refusals('UPGRADE_REFUSED'),
    );
    if (refused !== undefined) return refused;
    const asked = lines
      .filter((line) => /^upgrade:/i.test(line))
      .flatMap((line) => line.slice('upgrade:'.length).split(','))
      .map((token) => token.trim().toLowerCase());
    ensure(httpVersion === '1.1', 'an upgrade of an old version');
    ensure(!asked.includes('h2c'), 'an upgrade to another kind of HTTP');
    for (const [protocol, token] of Object.entries(KNOWN)) {
      ensure(
        (value.protocol === protocol) === asked.includes(token),
        `${token} is read as ${value.protocol}`,
      );
    }
    return `${value.protocol} ${method.slice(0, 5)}`;
  },
};

export const SESSION_TARGETS: readonly FuzzTarget[] = [spdyTaps, webSocketTaps, portForward, upgradeRequest];

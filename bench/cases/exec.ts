/** Cases of exec sessions. */
import { KEYS, LINES, MEGABYTES, type BenchCase, type Scale } from '../harness/case.ts';
import type { PeerName } from '../peers/peer.ts';
import { LINE_BYTES } from '../programs/exec-content.ts';
import type { Transport } from '../programs/plan.ts';

const SESSION_PEERS: readonly PeerName[] = [
  'direct',
  'tailcast',
  'tailcast-recorded',
  'tailcast-plain-recorded',
  'reference',
  'reference-recorded',
];
/** A variant of tailcast that is measured only in cases that show the cost of the variant. */
const DURABLE_FIRST = 'tailcast-durable-first' satisfies PeerName;

const TRANSPORTS = ['spdy', 'websocket'] as const satisfies readonly Transport[];
const NAMES = { spdy: 'SPDY', websocket: 'WebSocket' } as const;
const BLOCK = 1024 * 1024;

const bytes = ({ quick }: Scale, full: number): number => (quick ? 64 : full) * BLOCK;

const CONTENTS = {
  ascii: { title: 'text', full: 128 },
  utf8: { title: 'text with characters beyond ASCII', full: 64 },
  binary: { title: 'random bytes', full: 64 },
} as const;

const cats = TRANSPORTS.flatMap((transport) =>
  (['ascii', 'utf8', 'binary'] as const).map((content): BenchCase => ({
    name: `exec-cat-${content}-${transport}`,
    title: `exec, cat of ${CONTENTS[content].title}, ${NAMES[transport]}`,
    unit: MEGABYTES,
    onlyFull: content !== 'ascii',
    recordedBytesPerUnit: 1,
    peers: content === 'ascii' ? [...SESSION_PEERS, DURABLE_FIRST] : SESSION_PEERS,
    plan: (scale) => ({
      kind: 'exec',
      transport,
      work: { kind: 'cat', content, bytes: bytes(scale, CONTENTS[content].full) },
    }),
  })),
);

const lines = TRANSPORTS.map((transport): BenchCase => ({
  name: `exec-lines-${transport}`,
  title: `exec, short lines on a terminal, ${NAMES[transport]}`,
  unit: LINES,
  recordedBytesPerUnit: LINE_BYTES,
  peers: SESSION_PEERS,
  onlyFull: transport === 'spdy',
  plan: () => ({
    kind: 'exec',
    transport,
    work: { kind: 'lines', lines: 100_000 },
  }),
}));

const echoes = TRANSPORTS.map((transport): BenchCase => ({
  name: `exec-echo-${transport}`,
  title: `exec, echo of keystrokes, ${NAMES[transport]}`,
  unit: KEYS,
  constantLoad: true,
  peers: ['direct', 'tailcast', 'tailcast-recorded', DURABLE_FIRST, 'reference'],
  plan: () => ({
    kind: 'exec',
    transport,
    work: { kind: 'echo', keys: 300, pauseMs: 2 },
  }),
}));

export const EXEC_CASES: readonly BenchCase[] = [...cats, ...lines, ...echoes];

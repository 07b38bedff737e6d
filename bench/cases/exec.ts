/** Cases of exec sessions. */
import {
  KEYS,
  LINES,
  MEGABYTES,
  SCREENS,
  SESSIONS,
  SHELLS,
  type BenchCase,
  type Scale,
} from '../harness/case.ts';
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
/** A variant that is measured only in cases that show its cost. */
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

const redraws = TRANSPORTS.map((transport): BenchCase => ({
  name: `exec-redraw-${transport}`,
  title: `exec, 20 terminals that redraw 60 times a second, ${NAMES[transport]}`,
  unit: SCREENS,
  constantLoad: true,
  onlyFull: transport === 'spdy',
  peers: ['direct', 'tailcast', 'tailcast-recorded'],
  rounds: ({ quick }) => (quick ? 1 : 3),
  plan: ({ quick }) => ({
    kind: 'exec',
    transport,
    work: { kind: 'redraw', sessions: 20, perSecond: 60, seconds: quick ? 1 : 2 },
  }),
}));

/** Many short sessions: the output of each must be complete, with exit code 0. */
const wholes = TRANSPORTS.map((transport): BenchCase => ({
  name: `exec-many-${transport}`,
  title: `exec, 50 times each: 1 MB of text, 1 MB of random bytes, 2,000 lines on a terminal, ${NAMES[transport]}`,
  unit: SESSIONS,
  onlyFull: transport === 'spdy',
  peers: ['direct', 'tailcast', 'tailcast-recorded'],
  rounds: () => 1,
  plan: ({ quick }) => ({
    kind: 'exec',
    transport,
    work: {
      kind: 'many',
      times: quick ? 10 : 50,
      works: [
        { kind: 'cat', content: 'ascii', bytes: BLOCK },
        { kind: 'cat', content: 'binary', bytes: BLOCK },
        { kind: 'lines', lines: 2000 },
      ],
    },
  }),
}));

const shells = ({ quick }: Scale): number => (quick ? 50 : 300);
const idles = TRANSPORTS.map((transport): BenchCase => ({
  name: `exec-idle-${transport}`,
  title: `exec, shells that wait at their prompt, ${NAMES[transport]}`,
  unit: SHELLS,
  constantLoad: true,
  onlyFull: true,
  fresh: true,
  rounds: () => 1,
  memoryPer: (scale) => ({ count: shells(scale), what: 'shell' }),
  peers: ['direct', 'tailcast', 'tailcast-recorded'],
  plan: (scale) => ({
    kind: 'exec',
    transport,
    work: { kind: 'idle', sessions: shells(scale), durationMs: scale.quick ? 1000 : 3000 },
  }),
}));

export const EXEC_CASES: readonly BenchCase[] = [
  ...cats,
  ...lines,
  ...wholes,
  ...echoes,
  ...redraws,
  ...idles,
];

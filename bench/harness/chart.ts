/** The chart of a run in the README: bars of the results. */
import type { PeerName } from '../peers/peer.ts';
import { figure } from './report.ts';
import { rowOf, type RunResults } from './results.ts';

interface Panel {
  readonly title: string;
  readonly groups: readonly (readonly [caseName: string, label: string])[];
  readonly peers: readonly PeerName[];
  readonly figure: 'rate' | 'cpu';
  /** Proxy whose result is 1; undefined for absolute values. */
  readonly base?: PeerName;
  readonly unit: string;
}

const PANELS: readonly Panel[] = [
  {
    title: 'Requests: speed relative to Go’s ReverseProxy, tuned, on two processors (longer is faster)',
    groups: [
      ['get-32', 'GET 2 KB, 32 connections'],
      ['h2-8x32', 'GET 2 KB, HTTP/2, 8 x 32 streams'],
      ['list-chunked', 'LIST 50 MB'],
      ['handshakes', 'TLS handshake and 3 GETs'],
    ],
    peers: ['tailcast', 'go', 'go-default', 'nginx', 'haproxy', 'reference'],
    figure: 'rate',
    base: 'go',
    unit: 'x',
  },
  {
    title: 'Requests: CPU time of each, relative to the same (shorter is better)',
    groups: [
      ['get-32', 'GET 2 KB, 32 connections'],
      ['list-chunked', 'LIST 50 MB'],
    ],
    peers: ['tailcast', 'go', 'nginx', 'haproxy'],
    figure: 'cpu',
    base: 'go',
    unit: 'x',
  },
  {
    title: 'exec: MB/s of output, unrecorded and recorded (longer is faster)',
    groups: [
      ['exec-cat-ascii-spdy', 'text, SPDY'],
      ['exec-cat-ascii-websocket', 'text, WebSocket'],
      ['exec-cat-binary-websocket', 'random bytes, WebSocket'],
    ],
    peers: ['tailcast', 'tailcast-recorded', 'tailcast-plain-recorded', 'reference', 'reference-recorded'],
    figure: 'rate',
    unit: ' MB/s',
  },
];

const LABEL_OF: Partial<Record<PeerName, string>> = {
  'tailcast-recorded': 'tailcast, recorded',
  'tailcast-plain-recorded': 'tailcast, recorded, no TLS in front',
  go: 'Go',
  'go-default': 'Go, default transport',
  haproxy: 'HAProxy',
  reference: 'reference, no TLS in front',
  'reference-recorded': 'reference, recorded, no TLS in front',
};

const WIDTH = 860;
const LABELS = 400;
const BAR = 14;
const GAP = 12;
const MARGIN = 20;
const FILL: Partial<Record<PeerName, string>> = {
  tailcast: '#1f6feb',
  'tailcast-recorded': '#0a3069',
  'tailcast-plain-recorded': '#0a3069',
  'reference-recorded': '#818b98',
};
const OTHER = '#b6bec9';
const LINE = '#8c959f';
const INK = '#1f2328';
const QUIET = '#59636e';

interface Bar {
  readonly name: PeerName;
  readonly value: number;
}

/** An SVG document. */
export function chart(results: RunResults): string {
  const parts: string[] = [];
  let y = MARGIN;
  for (const panel of PANELS) {
    const drawn = drawPanel(panel, results, y);
    parts.push(...drawn.parts);
    y = drawn.end + MARGIN;
  }
  const note =
    `Medians of interleaved rounds, ${results.machine[0] ?? ''}, ${results.startedAt.slice(0, 10)}; ` +
    'all figures in bench/results.md';
  parts.push(text(MARGIN, y, note, { fill: QUIET, size: 11 }));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + MARGIN}" font-family="system-ui, ` +
      'sans-serif" role="img">',
    '<title>Speed of tailcast beside other proxies</title>',
    `<rect width="${WIDTH}" height="${y + MARGIN}" fill="#ffffff"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

function drawPanel(
  panel: Panel,
  results: RunResults,
  top: number,
): { readonly parts: readonly string[]; readonly end: number } {
  const groups = panel.groups.map(([name, label]) => ({ label, bars: barsOf(panel, results, name) }));
  const longest = Math.max(1, ...groups.flatMap(({ bars }) => bars.map(({ value }) => value)));
  const scale = (WIDTH - LABELS - 110) / longest;
  const parts: string[] = [];
  let y = top + 34;
  for (const { label, bars } of groups) {
    if (bars.length === 0) continue;
    parts.push(text(MARGIN, y + 11, label, { fill: INK, size: 12 }));
    for (const { name, value } of bars) {
      const width = Math.max(1, value * scale);
      parts.push(
        text(LABELS - 8, y + 11, LABEL_OF[name] ?? name, { fill: QUIET, size: 11, anchor: 'end' }),
        `<rect x="${LABELS}" y="${y + 1}" width="${width.toFixed(1)}" height="${BAR - 3}" rx="2" ` +
          `fill="${FILL[name] ?? OTHER}"/>`,
        text(LABELS + width + 6, y + 11, `${figure(value)}${panel.unit}`, {
          fill: INK,
          size: 11,
          halo: true,
        }),
      );
      y += BAR + 2;
    }
    y += GAP;
  }
  const title = text(MARGIN, top + 12, panel.title, { fill: INK, size: 15, weight: 600 });
  const one = (LABELS + scale).toFixed(1);
  const line =
    `<line x1="${one}" y1="${top + 32}" x2="${one}" y2="${y - GAP}" stroke="${LINE}" ` +
    'stroke-dasharray="3 3"/>';
  return { parts: [title, ...(panel.base === undefined ? [] : [line]), ...parts], end: y };
}

function barsOf(panel: Panel, results: RunResults, caseName: string): readonly Bar[] {
  const base = panel.base === undefined ? 1 : rowOf(results, caseName, panel.base)?.[panel.figure]?.median;
  if (base === undefined) return [];
  return panel.peers.flatMap((name) => {
    const value = rowOf(results, caseName, name)?.[panel.figure]?.median;
    return value === undefined ? [] : [{ name, value: value / base }];
  });
}

function text(
  x: number,
  y: number,
  content: string,
  style: {
    readonly fill: string;
    readonly size: number;
    readonly weight?: number;
    readonly anchor?: 'end';
    /** White outline that keeps the text legible across a line. */
    readonly halo?: boolean;
  },
): string {
  const escaped = content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  const weight = style.weight === undefined ? '' : ` font-weight="${style.weight}"`;
  const anchor = style.anchor === undefined ? '' : ` text-anchor="${style.anchor}"`;
  const halo = style.halo === true ? ' paint-order="stroke" stroke="#ffffff" stroke-width="4"' : '';
  return (
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${style.size}" ` +
    `fill="${style.fill}"${weight}${anchor}${halo}>${escaped}</text>`
  );
}

/** The picture of a run for the README: bars, drawn from the results and nothing else. */
import type { PeerName } from '../peers/peer.ts';
import { figure } from './report.ts';
import { rowOf, type RunResults } from './results.ts';

interface Panel {
  readonly title: string;
  readonly groups: readonly (readonly [caseName: string, label: string])[];
  readonly peers: readonly PeerName[];
  /** Bars are multiples of this peer's; none: plain figures. */
  readonly base?: PeerName;
  readonly unit: string;
}

const PANELS: readonly Panel[] = [
  {
    title: 'Requests: speed relative to Go’s ReverseProxy, tuned (= 1)',
    groups: [
      ['get-32', 'GET 2 KB, 32 connections'],
      ['h2-1x32', 'GET 2 KB, HTTP/2, 32 streams'],
      ['list-chunked', 'LIST 50 MB'],
      ['handshakes', 'TLS handshake and 3 GETs'],
    ],
    peers: ['tailcast', 'go', 'go-default', 'nginx', 'haproxy', 'reference'],
    base: 'go',
    unit: 'x',
  },
  {
    title: 'exec: MB/s of output, unrecorded and recorded',
    groups: [
      ['exec-cat-ascii-spdy', 'text, SPDY'],
      ['exec-cat-ascii-websocket', 'text, WebSocket'],
      ['exec-cat-utf8-spdy', 'text beyond ASCII, SPDY'],
      ['exec-cat-binary-spdy', 'random bytes, SPDY'],
    ],
    peers: ['tailcast', 'tailcast-recorded', 'tailcast-plain-recorded', 'reference', 'reference-recorded'],
    unit: ' MB/s',
  },
];

const WIDTH = 860;
const LABELS = 330;
const BAR = 14;
const GAP = 12;
const MARGIN = 20;
const FILL: Partial<Record<PeerName, string>> = {
  tailcast: '#1f6feb',
  'tailcast-recorded': '#0a3069',
  'tailcast-plain-recorded': '#0a3069',
};
const OTHER = '#b6bec9';
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
  const note = `Medians of interleaved rounds, ${results.machine[0] ?? ''}, ${results.startedAt.slice(0, 10)}; all figures in bench/results.md`;
  parts.push(text(MARGIN, y, note, { fill: QUIET, size: 11 }));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y + MARGIN}" font-family="system-ui, sans-serif" role="img">`,
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
  const parts = [text(MARGIN, top + 12, panel.title, { fill: INK, size: 15, weight: 600 })];
  let y = top + 34;
  for (const { label, bars } of groups) {
    if (bars.length === 0) continue;
    parts.push(text(MARGIN, y + 11, label, { fill: INK, size: 12 }));
    for (const { name, value } of bars) {
      const width = Math.max(1, value * scale);
      parts.push(
        text(LABELS - 8, y + 11, name, { fill: QUIET, size: 11, anchor: 'end' }),
        `<rect x="${LABELS}" y="${y + 1}" width="${width.toFixed(1)}" height="${BAR - 3}" rx="2" fill="${FILL[name] ?? OTHER}"/>`,
        text(LABELS + width + 6, y + 11, `${figure(value)}${panel.unit}`, { fill: INK, size: 11 }),
      );
      y += BAR + 2;
    }
    y += GAP;
  }
  return { parts, end: y };
}

function barsOf(panel: Panel, results: RunResults, caseName: string): readonly Bar[] {
  const base = panel.base === undefined ? 1 : rowOf(results, caseName, panel.base)?.rate.median;
  if (base === undefined) return [];
  return panel.peers.flatMap((name) => {
    const rate = rowOf(results, caseName, name)?.rate.median;
    return rate === undefined ? [] : [{ name, value: rate / base }];
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
  },
): string {
  const escaped = content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  const weight = style.weight === undefined ? '' : ` font-weight="${style.weight}"`;
  const anchor = style.anchor === undefined ? '' : ` text-anchor="${style.anchor}"`;
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${style.size}" fill="${style.fill}"${weight}${anchor}>${escaped}</text>`;
}

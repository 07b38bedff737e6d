/**
 * Thumbnail of a recording's screen. It shows the shape and the colours of the text, but no characters. One request
 * loads the thumbnails of all rows that became visible at the same time.
 */
import { Radio, SquareTerminal } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { readThumbnails } from './archive.ts';
import { Icon } from './icon.tsx';
import { Recorder, type Ask } from './recorder-context.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import type { ThumbnailRows } from '../screen/thumbnail.ts';

const WIDTH = 112;
const HEIGHT = 52;
/** Delay before a request, in milliseconds, so that one request loads the thumbnails of several rows. */
const COLLECT_MS = 100;
const RETRY_MS = 1500;
const MAX_TRIES = 20;
const MAX_IDS = 50;
const MAX_KEPT = 2000;

type Listener = (rows: ThumbnailRows) => void;

const loaded = new Map<string, ThumbnailRows>();
const wanted = new Map<string, { readonly listener: Listener; tries: number }>();
let timer: ReturnType<typeof setTimeout> | undefined;

function schedule(ask: Ask, delayMs: number): void {
  timer ??= setTimeout(() => void loadWanted(ask), delayMs);
}

async function loadWanted(ask: Ask): Promise<void> {
  const ids = [...wanted.keys()].slice(0, MAX_IDS);
  const found = await readThumbnails(ask, ids).catch(() => undefined);
  timer = undefined;
  for (const id of ids) {
    const entry = wanted.get(id);
    const rows = found?.get(id);
    if (entry === undefined) continue;
    entry.tries += 1;
    // moves the recording to the end of the queue, after recordings that were never requested
    wanted.delete(id);
    if (rows !== undefined) {
      if (loaded.size >= MAX_KEPT) loaded.clear();
      loaded.set(id, rows);
      entry.listener(rows);
    } else if (entry.tries < MAX_TRIES) wanted.set(id, entry);
  }
  const isNew = [...wanted.values()].some(({ tries }) => tries === 0);
  if (wanted.size > 0) schedule(ask, isNew ? COLLECT_MS : RETRY_MS);
}

export function Thumbnail({ recording }: { readonly recording: ListedRecording }): JSX.Element {
  const { id, state } = recording;
  const { ask } = useContext(Recorder);
  const [rows, setRows] = useState(loaded.get(id));
  const canvas = useRef<HTMLCanvasElement>(null);
  const isRunning = state === 'running';
  useEffect(() => {
    if (rows !== undefined || isRunning) return undefined;
    wanted.set(id, { listener: setRows, tries: 0 });
    schedule(ask, COLLECT_MS);
    return () => void wanted.delete(id);
  }, [id, isRunning]);
  useEffect(() => {
    if (rows !== undefined && canvas.current !== null) draw(canvas.current, rows);
  }, [rows]);
  return (
    <span class={`thumbnail${isRunning ? ' live' : ''}`} aria-hidden="true">
      {rows === undefined || isRunning ? (
        <Icon icon={isRunning ? Radio : SquareTerminal} size={18} />
      ) : (
        <canvas ref={canvas} width={WIDTH * 2} height={HEIGHT * 2} />
      )}
    </span>
  );
}

/** Draws a rectangle for each run of characters with the same colour. */
function draw(canvas: HTMLCanvasElement, rows: ThumbnailRows): void {
  const context = canvas.getContext('2d');
  if (context === null) return;
  const style = getComputedStyle(canvas);
  const columns = Math.max(60, ...rows.map((row) => row.length));
  const cell = canvas.width / columns;
  const line = Math.min(canvas.height / Math.max(14, rows.length), cell * 2.4);
  const colours = new Map<string, string>();
  const colourOf = (symbol: string): string => {
    const known = colours.get(symbol);
    if (known !== undefined) return known;
    const index = 'abcdefghijklmnop'.indexOf(symbol.toLowerCase());
    const colour = style.getPropertyValue(index < 0 ? '--terminal-ink' : `--terminal-${index}`).trim();
    colours.set(symbol, colour);
    return colour;
  };
  for (const [y, row] of rows.entries())
    for (const { index, 0: run } of row.matchAll(/([^ ])\1*/g)) {
      const symbol = run.charAt(0);
      const isFilled = symbol !== symbol.toLowerCase();
      context.fillStyle = colourOf(symbol);
      context.globalAlpha = isFilled ? 0.9 : 0.72;
      context.fillRect(index * cell, y * line, run.length * cell, isFilled ? line : line * 0.62);
    }
}

/** Creates a clip of a recording in the browser. */
import { readCastLines } from '../screen/cast-lines.ts';
import { clipSvg } from '../screen/clip.ts';
import { openCast } from './cast-source.ts';
import type { Ask } from './recorder-context.ts';

/** @throws Error with a sentence for the user */
export async function clipRecording(
  ask: Ask,
  id: string,
  { from, to }: { readonly from: number; readonly to: number },
  signal: AbortSignal,
): Promise<Blob> {
  const { cast, start, headerBytes } = await openCast(ask, id, signal);
  const reader = readCastLines(cast, headerBytes);
  async function* lines(): AsyncGenerator<string> {
    for (let batch = await reader.next(); batch !== undefined; batch = await reader.next()) yield* batch;
  }
  try {
    return new Blob([await clipSvg({ start, lines: lines(), from, to })], { type: 'image/svg+xml' });
  } finally {
    reader.stop();
  }
}

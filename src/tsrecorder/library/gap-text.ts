import type { GapAnnotation } from '../../wire/recorder-api/annotation.ts';

/** Returns a sentence about missing output. */
export function gapText({ bytes, reason }: Pick<GapAnnotation, 'bytes' | 'reason'>): string {
  return `${bytes === undefined ? 'output' : `${bytes} bytes of output`} missing: ${reason}`;
}

import type { GapAnnotation } from '../../wire/recorder-api/annotation.ts';

/** A sentence on output that is missing. */
export function gapText({ bytes, reason }: Pick<GapAnnotation, 'bytes' | 'reason'>): string {
  return `${bytes === undefined ? 'output' : `${bytes} bytes of output`} missing: ${reason}`;
}

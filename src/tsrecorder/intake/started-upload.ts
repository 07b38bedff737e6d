import type { Adoption } from '../evidence/session-evidence.ts';
import type { CastHead } from '../library/cast-head.ts';
import type { SessionFacts } from '../library/session-facts.ts';
import type { SpoolPaths } from '../spool/spool-file.ts';
import type { SpoolMeta } from '../spool/spool-journal.ts';

/** Data of an upload whose asciicast header has arrived. */
export interface StartedUpload {
  readonly meta: SpoolMeta;
  readonly head: CastHead;
  readonly facts: SessionFacts;
  readonly paths: SpoolPaths;
  /** Origin of the session, if another recorder started it. */
  readonly adopted?: Adoption;
}

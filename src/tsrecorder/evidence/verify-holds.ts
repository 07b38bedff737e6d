/**
 * Checks that no recorder removed a recording under a legal hold, and that the documents of holds are in the store.
 */
import { fault, notice, type Finding } from './finding.ts';
import { holdName, holdsInLogs, readHolds } from './holds.ts';
import type { LogEvent } from './log-entry.ts';
import { addTo, isBefore, type TimedPlace } from './log-index.ts';
import type { DocumentReader, KeyRing, ReadLog } from './verify-logs.ts';

interface Logged<T extends LogEvent> extends TimedPlace {
  readonly event: T;
}

type Statement = Logged<Extract<LogEvent, { kind: 'held' | 'released' }>>;
type Removal = Logged<Extract<LogEvent, { kind: 'removed' }>>;

/**
 * Returns a finding for each recording whose last removal was logged during a legal hold. Only signed entries count.
 * The finding is a notice if the recording still exists, because a hold can start while the recorder logs a removal.
 *
 * @param isIntact returns true if the recording is unchanged in the store
 */
export function checkHeldRemovals(
  logs: ReadonlyMap<string, ReadLog>,
  isIntact: (recording: string) => boolean,
): readonly Finding[] {
  const statements = new Map<string, Statement[]>();
  const removals = new Map<string, Removal>();
  for (const { log, entries, signed } of logs.values())
    for (const { n, time, event } of entries.values()) {
      if (!signed.has(n)) continue;
      if (event.kind === 'removed') addRemoval(removals, { log, n, time, event });
      if (event.kind === 'held' || event.kind === 'released')
        addTo(statements, event.recording, { log, n, time, event });
    }
  return [...removals].flatMap(([recording, removal]) => {
    const last = (statements.get(recording) ?? [])
      .filter((statement) => isBefore(statement, removal))
      .toSorted((left, right) => (left.event.at < right.event.at ? -1 : 1))
      .at(-1);
    if (last?.event.kind !== 'held') return [];
    const where = { recording, log: removal.log, entry: removal.n };
    const during = `while the hold of ${last.event.at} was in force`;
    if (isIntact(recording))
      return [notice('removed-while-held', `its removal was logged ${during}, and it was kept`, where)];
    return [fault('removed-while-held', `it was removed ${during}`, where)];
  });
}

/** Keeps only the last removal of a recording, because the recording still existed after earlier removals. */
function addRemoval(removals: Map<string, Removal>, removal: Removal): void {
  const { recording } = removal.event;
  const known = removals.get(recording);
  if (known === undefined || isBefore(known, removal)) removals.set(recording, removal);
}

/**
 * Returns a finding for each stored recording whose legal hold has no signed document. @param present ids of recordings
 */
export async function checkHolds(
  store: DocumentReader,
  logs: ReadonlyMap<string, ReadLog>,
  present: ReadonlySet<string>,
  { byId }: KeyRing,
): Promise<readonly Finding[]> {
  const { proofs } = await readHolds(store, holdsInLogs(logs), byId);
  return [...proofs].flatMap(([recording, proof]) => {
    if (proof === 'signed' || !present.has(recording)) return [];
    const where = { recording, object: holdName(recording) };
    if (proof === 'unproven')
      return [
        notice('hold-unproven', 'a hold without the signature of a trusted key keeps the recording', where),
      ];
    const message = 'a log has a hold of the recording, and the document of the hold is missing or replaced';
    return [fault('hold-missing', message, where)];
  });
}

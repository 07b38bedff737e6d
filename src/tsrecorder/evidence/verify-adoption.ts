/** Compares an adopted recording with the evidence log of the recorder that started the session. Pure functions. */
import { fault, notice, type Finding } from './finding.ts';
import type { LogEvent } from './log-entry.ts';
import type { SidecarEvidence } from './signed-sidecar.ts';
import type { ReadLog } from './verify-logs.ts';

/** Returns the findings. @param start start entry in the evidence log of the recorder that signed the recording */
export function checkAdoption(
  recording: string,
  { log: by, adopted }: SidecarEvidence,
  start: LogEvent,
  logs: ReadonlyMap<string, ReadLog>,
): readonly Finding[] {
  const from = start.kind === 'start' ? start.adopted : undefined;
  if (adopted === undefined && from === undefined) return [];
  if (
    adopted === undefined ||
    from === undefined ||
    adopted.log !== from.log ||
    adopted.start !== from.start
  ) {
    const message = 'the recording and its log disagree about the recorder that began the session';
    return [fault('recording-differs-from-log', message, { recording })];
  }
  const { log, start: entry, key } = adopted;
  const where = { recording, log, entry };
  const original = startIn(logs.get(log), entry);
  if (original === undefined) {
    const message =
      `log ${by} says that it adopted the session from log ${log} (key ${key}), and no log of a ` +
      'trusted key has its start; name the key of that recorder as well';
    return [fault('adoption-unproven', message, where)];
  }
  if (!isSameSession(original, start)) {
    const message = 'the log that it was adopted from has the start of another session';
    return [fault('recording-differs-from-log', message, where)];
  }
  return [notice('adopted', `log ${by} adopted the session from log ${log} and signed it`, where)];
}

/**
 * Returns the start entry, or undefined if the evidence log has no start entry with this number and a trusted
 * signature.
 */
function startIn(log: ReadLog | undefined, entry: number): LogEvent | undefined {
  const event = log?.signed.has(entry) === true ? log.entries.get(entry)?.event : undefined;
  return event?.kind === 'start' ? event : undefined;
}

function isSameSession(one: LogEvent, other: LogEvent): boolean {
  if (one.kind !== 'start' || other.kind !== 'start') return false;
  return one.recording === other.recording && one.header === other.header;
}

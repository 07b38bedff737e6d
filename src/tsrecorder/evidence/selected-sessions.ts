/** Verification of selected sessions: filters the findings of complete stores. Pure functions. */
import { parseRecordingId } from '../store/key.ts';
import { notice, type Finding } from './finding.ts';
import type { VerifiedPart } from './verify-recording.ts';

export interface SelectedFindings {
  /** Findings about the evidence logs and about all parts of the sessions. */
  readonly findings: readonly Finding[];
  /**
   * True if a missing or changed recording may be a part of a session. This is possible if neither a signed sidecar nor
   * the end entry of an evidence log states the session of the recording.
   */
  readonly isUncertain: boolean;
}

/**
 * Returns the findings about the sessions of these recordings.
 *
 * @param ids one recording of each selected session; any part is sufficient
 * @param parts parts of all stores
 * @param logged session mark of each recording, according to the evidence logs
 * @param findings findings of all stores
 */
export function selectSessions(
  ids: readonly string[],
  parts: readonly VerifiedPart[],
  logged: ReadonlyMap<string, string>,
  findings: readonly Finding[],
): SelectedFindings {
  const unsigned = new Set(findings.filter(isAboutSidecar).map(({ recording }) => recording));
  const signed = parts.filter(({ recording }) => !unsigned.has(recording));
  const named = new Set(
    signed.filter(({ recording }) => ids.includes(recording)).map(({ session }) => session),
  );
  for (const id of ids) named.add(logged.get(id) ?? id);
  const selected = signed.filter(({ session }) => named.has(session));
  const loggedParts = [...logged].filter(([, session]) => named.has(session)).map(([recording]) => recording);
  const recordings = new Set([...ids, ...loggedParts, ...selected.map(({ recording }) => recording)]);
  const placed = new Set([...logged.keys(), ...signed.map(({ recording }) => recording)]);
  const open = [...Map.groupBy(selected, ({ session }) => session).values()].filter(
    (session) => !isComplete(session),
  );
  const nodes = new Set(open.flat().map(({ recording }) => nodeOf(recording)));
  const suspects = new Set<string>();
  for (const { severity, code, recording } of findings) {
    if (severity !== 'fault' || code === 'no-evidence' || recording === undefined) continue;
    if (recordings.has(recording) || placed.has(recording)) continue;
    if (nodes.has(nodeOf(recording))) suspects.add(recording);
  }
  const message = 'it is missing or changed, and may be a part of the session: verify the whole store';
  return {
    findings: [
      ...findings.filter(({ recording }) => recording === undefined || recordings.has(recording)),
      ...[...suspects].map((recording) => notice('part-unknown', message, { recording })),
    ],
    isUncertain: suspects.size > 0,
  };
}

/** Returns true if the finding makes the sidecar of a recording useless as a proof of its session. */
function isAboutSidecar({ code }: Finding): boolean {
  return code === 'sidecar-changed' || code === 'recording-moved';
}

/** True if the parts together contain all bytes of the session. */
function isComplete(session: readonly VerifiedPart[]): boolean {
  let reached = 0;
  for (const { from, to } of session.toSorted((left, right) => left.from - right.from)) {
    if (from > reached) return false;
    reached = Math.max(reached, to);
  }
  return session.some(({ to, isEnd }) => isEnd && to === reached);
}

/** Returns the id of the uploading node. All parts of a session have the same node id. */
function nodeOf(recording: string): string | undefined {
  return parseRecordingId(recording)?.nodeId;
}

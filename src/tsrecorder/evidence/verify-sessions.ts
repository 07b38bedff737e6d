/**
 * Checks sessions with several parts. Reports a part whose previous or next part is in none of the stores. Pure
 * functions.
 */
import { fault, notice, type Finding } from './finding.ts';
import type { VerifiedPart } from './verify-recording.ts';

/**
 * Returns the findings.
 *
 * @param parts parts of all stores
 * @param isAll true if there are no other stores. Missing bytes are then a fault, otherwise a notice
 */
export function checkSessions(parts: readonly VerifiedPart[], isAll: boolean): readonly Finding[] {
  const sessions = Map.groupBy(parts, ({ session }) => session);
  return [...sessions.values()].flatMap((session) => {
    const findings: Finding[] = [];
    let reached = 0;
    for (const { recording, from, to, before = 'another recorder' } of session.toSorted(
      (left, right) => left.from - right.from,
    )) {
      if (from > reached) {
        const missing = `bytes ${reached} to ${from} of its session`;
        findings.push(
          isAll
            ? fault('part-missing', `${missing} are in none of the stores`, { recording })
            : notice('part-missing', `${missing} are with ${before}: name its store as well`, {
                recording,
              }),
        );
      }
      reached = Math.max(reached, to);
    }
    return [...findings, ...checkLast(session, reached, isAll)];
  });
}

/**
 * Reports possible continuations of an interrupted session. The findings contain the addresses of recorders that may
 * have the next part.
 */
function checkLast(session: readonly VerifiedPart[], reached: number, isAll: boolean): readonly Finding[] {
  const lasts = session.filter(({ to }) => to === reached);
  const [last] = lasts;
  if (last === undefined || lasts.some(({ after }) => after.length === 0)) return [];
  const where = isAll ? 'nothing of that is in any of the stores' : 'name its store as well';
  const message =
    `its session was interrupted at byte ${reached}; it may continue at ` +
    `${last.after.join(' or ')}: ${where}`;
  return [notice('part-after', message, { recording: last.recording })];
}

/** Sessions whose parts are in several stores: whether what came before each part, and what may have come after, is in one of them. Pure. */
import { fault, notice, type Finding } from './finding.ts';
import type { VerifiedPart } from './verify-recording.ts';

/**
 * @param parts of all stores together.
 * @param isAll there is no other store: what is missing is at fault. With one store of several nobody can know.
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

/** Nobody can know whether a session that was cut went on, but which recorders it would have gone to. */
function checkLast(session: readonly VerifiedPart[], reached: number, isAll: boolean): readonly Finding[] {
  const lasts = session.filter(({ to }) => to === reached);
  const [last] = lasts;
  if (last === undefined || lasts.some(({ after }) => after.length === 0)) return [];
  const where = isAll ? 'nothing of that is in any of the stores' : 'name its store as well';
  const message = `its session was cut at byte ${reached}; if it went on, then at ${last.after.join(' or ')}: ${where}`;
  return [notice('part-after', message, { recording: last.recording })];
}

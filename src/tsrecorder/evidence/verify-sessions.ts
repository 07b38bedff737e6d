/** Sessions whose parts are in several stores: whether what came before each part is in one of them. Pure. */
import { fault, notice, type Finding } from './finding.ts';
import type { VerifiedPart } from './verify-recording.ts';

/**
 * @param parts of all stores together.
 * @param isAll there is no other store: what is missing is at fault. With one store of several nobody can know.
 */
export function checkSessions(parts: readonly VerifiedPart[], isAll: boolean): readonly Finding[] {
  const sessions = Map.groupBy(parts, ({ session }) => session);
  return [...sessions.values()].flatMap((session) => {
    if (session.every(({ from }) => from === 0)) return [];
    const findings: Finding[] = [];
    let reached = 0;
    for (const { recording, from, to } of session.toSorted((left, right) => left.from - right.from)) {
      if (from > reached) {
        const missing = `bytes ${reached} to ${from} of its session`;
        findings.push(
          isAll
            ? fault('part-missing', `${missing} are in none of the stores`, { recording })
            : notice('part-missing', `${missing} are with another recorder: name its store as well`, {
                recording,
              }),
        );
      }
      reached = Math.max(reached, to);
    }
    return findings;
  });
}

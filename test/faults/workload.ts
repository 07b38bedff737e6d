/**
 * Generates sessions. The session's number determines its content, so tests can check recordings without a copy.
 */

export const HEADER_OF = (session: number): string =>
  `{"version":2,"width":80,"height":24,"timestamp":1785325858,"command":"session ${session}","srcNode":"laptop.tail1.ts.net",` +
  `"srcNodeID":"nA1CNTRL","srcNodeUser":"a@example.com","sshUser":"","localUser":"","connectionID":"","kubernetes":` +
  `{"PodName":"web-0","Namespace":"prod","Container":"app","SessionType":"exec"}}\n`;

/** Lines of a session in order: header, annotations, events. Endless. */
export function* sessionLines(session: number): Generator<string> {
  yield HEADER_OF(session);
  yield `{"kind":"session","id":"s${session}","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n`;
  for (let count = 0; ; count += 1) {
    if ((count * 7 + session) % 5 === 0) {
      yield `{"kind":"raw","base64":"${Buffer.from(`${session}/${count}`).toString('base64')}"}\n`;
    }
    if ((count * 3 + session) % 11 === 0) {
      yield `{"kind":"stream","name":"${count % 2 === 0 ? 'stdout' : 'stderr'}"}\n`;
    }
    yield `[${count / 100},"o",${JSON.stringify(`${session}:${count} `.repeat(1 + ((count * 31 + session) % 60)))}]\n`;
  }
}

export const END = '{"kind":"end","outcome":"completed","outputBytes":1,"outputLines":1}\n';

/**
 * Last line of an interrupted session. The line must not be longer than `END`, because `judgeCast` uses the length of
 * `END`.
 */
export const CUT_END = END.replace('completed', 'interrupted');

/** State of a session as `gateway-process.ts` reports it. */
export interface SessionReport {
  readonly session: number;
  /** Bytes written to the upload, including the final message if the session is confirmed. */
  readonly written: number;
  /** Number of bytes that the user may have seen, including bytes that the recorder had not yet acknowledged. */
  readonly shown: number;
  /** Bytes that the recorder acknowledged. */
  readonly acked: number;
  /** True if a recorder has acknowledged the complete session, during the session or later. */
  readonly confirmed: boolean;
  /** Reason why the upload no longer looks for a recorder; undefined while it does. */
  readonly lost: string | undefined;
  /** Longest time without a new acknowledgement while output was unacknowledged. */
  readonly pauseMs: number;
}

/**
 * Yields the lines that the recording may contain after its header. `owed` is true if a line must be stored; all other
 * lines may be missing.
 */
function* expectedLines({ session, confirmed, written, acked }: SessionReport): Generator<{
  readonly line: string;
  /** Position of the end of the line in the session. */
  readonly offset: number;
  readonly owed: boolean;
}> {
  let offset = 0;
  for (const line of sessionLines(session)) {
    const isHeader = offset === 0;
    offset += line.length;
    // the end of a session that is not confirmed is unknown, because a killed gateway may have written more than it
    // reported
    if (confirmed && offset > written - END.length) return;
    if (!isHeader) yield { line, offset, owed: confirmed || offset <= acked };
  }
}

/** Compares a stored cast with the session. @returns the problem, or undefined */
export function judgeCast(cast: string, report: SessionReport): string | undefined {
  const stored = cast.split('\n');
  if (stored.pop() !== '') return 'it ends inside of a line';
  // compares only one field, because the recorder adds other fields to the header
  if (stored.shift()?.includes(`"command":"session ${report.session}"`) !== true)
    return 'the header is another';
  let index = 0;
  for (const { line, offset, owed } of expectedLines(report)) {
    if (!line.startsWith('[')) continue;
    const found = stored[index];
    if (found === undefined) {
      return owed
        ? `bytes are missing: ${report.acked} acknowledged, line ${index} ends at ${offset}`
        : undefined;
    }
    if (`${found}\n` !== line) return `line ${index} is not what was sent`;
    index += 1;
  }
  return stored.length > index ? `${stored.length - index} lines too many` : undefined;
}

/**
 * Compares the stored notes of a finished session with the annotations that the session sent, and with their positions
 * in `cast`.
 * @returns the problem, or undefined
 */
export function judgeNotes(notes: string, cast: string, report: SessionReport): string | undefined {
  const stored = notes.split('\n').filter((line) => line.startsWith('{"at":'));
  const noteOf = (at: number, line: string): string =>
    `{"at":${at},"size":${line.length},"note":${line.trimEnd()}}`;
  let at = cast.indexOf('\n') + 1;
  let index = 0;
  for (const { line, offset, owed } of expectedLines(report)) {
    if (line.startsWith('[')) {
      at += line.length;
      continue;
    }
    const found = stored[index];
    if (found === undefined) {
      return owed
        ? `notes are missing: ${report.acked} acknowledged, note ${index} ends at ${offset}`
        : undefined;
    }
    if (found !== noteOf(at, line)) return `note ${index} is not what was sent`;
    index += 1;
  }
  const [last, ...more] = stored.slice(index);
  if (last !== noteOf(at, END) && last !== noteOf(at, CUT_END)) return 'the last word is missing';
  return more.length === 0 ? undefined : `${more.length} notes too many`;
}

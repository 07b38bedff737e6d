/**
 * Facts from the object lines of an upload (lines that are JSON objects), in bounded memory. The input comes from a
 * running upload, or from the journal after a crash.
 */
import { parseAnnotation, type EndAnnotation } from '../../wire/recorder-api/annotation.ts';
import { WireError } from '../../wire/wire-error.ts';
import {
  exitResult,
  type RecordedResult,
  type RecordingState,
} from '../../wire/recorder-api/recording-status.ts';
import type { JournalNote } from '../spool/spool-journal.ts';

/** Missing output and its position in the cast. */
export interface RecordingGap {
  /** Offset in the cast. */
  readonly at: number;
  readonly bytes?: number;
  readonly reason: string;
}

/** Collects properties of a session from its object lines. */
export interface SessionFacts {
  note(note: JournalNote): void;
  /** Counts a note with the exact bytes of an output line. */
  exactOutput(): void;
  /** The `session` annotation as unchanged JSON text; undefined for uploads without annotations. */
  readonly session: string | undefined;
  readonly exitCode: number | undefined;
  readonly exitMessage: string | undefined;
  /** Outcome of the session as reported by the gateway. */
  readonly outcome: EndAnnotation['outcome'] | undefined;
  readonly reason: string | undefined;
  /** True if the gateway reported output. The output may be missing in the recording. */
  readonly hasOutput: boolean;
  /** The first gaps. `gapCount` counts all gaps. */
  readonly gaps: readonly RecordingGap[];
  readonly gapCount: number;
  readonly noteCount: number;
  /** Number of invalid annotations. The notes still contain them. */
  readonly oddCount: number;
}

const MAX_GAPS = 100;
const MAX_TEXT = 1000;

/** Creates the facts of one upload. */
export function createSessionFacts(): SessionFacts {
  let session: string | undefined;
  let exitCode: number | undefined;
  let exitMessage: string | undefined;
  let end: EndAnnotation | undefined;
  const gaps: RecordingGap[] = [];
  let gapCount = 0;
  let noteCount = 0;
  let oddCount = 0;

  /** Adds the facts of an annotation. @throws WireError if the line is not an annotation */
  function take(at: number, line: string): void {
    const annotation = parseAnnotation(line);
    switch (annotation.kind) {
      case 'session':
        session ??= line;
        break;
      case 'exit':
        exitCode = annotation.code;
        exitMessage = annotation.message?.slice(0, MAX_TEXT);
        break;
      case 'end':
        end = annotation;
        break;
      case 'gap': {
        gapCount += 1;
        const { bytes, reason: why } = annotation;
        const gap = { at, ...(bytes === undefined ? {} : { bytes }), reason: why.slice(0, MAX_TEXT) };
        if (gaps.length < MAX_GAPS) gaps.push(gap);
        break;
      }
      case 'stream':
      case 'raw':
      case 'order':
        break;
    }
  }

  return {
    exactOutput() {
      noteCount += 1;
    },
    note({ at, text }) {
      noteCount += 1;
      // Skip notes with exact bytes: they are as large as the output and contain no facts.
      if (text?.startsWith('{"kind":"raw",') === true) return;
      try {
        take(at, text ?? '');
      } catch (error) {
        if (!(error instanceof WireError)) throw error;
        oddCount += 1;
      }
    },
    get session() {
      return session;
    },
    get exitCode() {
      return exitCode;
    },
    get exitMessage() {
      return exitMessage;
    },
    get outcome() {
      return end?.outcome;
    },
    get reason() {
      return end?.reason?.slice(0, MAX_TEXT);
    },
    get hasOutput() {
      return end !== undefined && end.outputBytes > 0;
    },
    gaps,
    get gapCount() {
      return gapCount;
    },
    get noteCount() {
      return noteCount;
    },
    get oddCount() {
      return oddCount;
    },
  };
}

/** Returns the final state of an upload. `clean`: the uploader ended the upload. */
export function finalState(facts: SessionFacts, clean: boolean): RecordingState {
  if (facts.outcome === 'violated') return 'violated';
  const isProven = clean && (facts.outcome === undefined || facts.outcome === 'completed');
  return isProven && !endsUnknown(facts) ? 'completed' : 'interrupted';
}

/** Returns the final result of an upload. */
export function finalResult(facts: SessionFacts): RecordedResult {
  const { exitCode, exitMessage, outcome } = facts;
  const message = exitMessage === undefined ? {} : { resultMessage: exitMessage };
  if (exitCode !== undefined) return { result: exitResult(exitCode), ...message };
  if (outcome === 'client-disconnected') return { result: 'client disconnected' };
  return hasFailed(facts) && !endsUnknown(facts) ? { result: 'failed to start', ...message } : {};
}

/** True if the API server reported an error instead of an exit code. */
function hasFailed({ exitCode, exitMessage, outcome }: SessionFacts): boolean {
  return outcome === 'completed' && exitCode === undefined && exitMessage !== undefined;
}

/**
 * True if the API server reported the failure after the command had written output. The exit status of the command is
 * then unknown.
 */
function endsUnknown(facts: SessionFacts): boolean {
  return hasFailed(facts) && facts.hasOutput;
}

/** Returns one sentence about the problems of a recording, or undefined. `cutReason`: reason of an interruption. */
export function problemOf(
  facts: SessionFacts,
  oddLines: number,
  cutReason: string | undefined,
): string | undefined {
  const problems: string[] = [];
  if (cutReason !== undefined) problems.push(cutReason);
  if (facts.outcome !== undefined && facts.outcome !== 'completed') {
    const state = facts.outcome === 'violated' ? 'violated' : 'interrupted';
    problems.push(`session ${state}${facts.reason === undefined ? '' : `: ${facts.reason}`}`);
  }
  if (endsUnknown(facts)) problems.push(`the session ended without an exit code: ${facts.exitMessage}`);
  if (facts.gapCount > 0) {
    problems.push(`output is missing in ${facts.gapCount} place${facts.gapCount === 1 ? '' : 's'}`);
  }
  const odd = oddLines + facts.oddCount;
  if (odd > 0) problems.push(`${odd} line${odd === 1 ? ' is' : 's are'} not asciicast`);
  return problems.length === 0 ? undefined : problems.join('; ');
}

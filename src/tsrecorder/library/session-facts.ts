/**
 * Facts from the object lines of an upload (lines that are JSON objects), in bounded memory. The input comes from a
 * running upload, or from the journal after a crash.
 */
import { parseAnnotation, type Annotation, type EndAnnotation } from '../../wire/recorder-api/annotation.ts';
import {
  exitResult,
  type RecordedResult,
  type RecordingState,
} from '../../wire/recorder-api/recording-status.ts';
import type { JournalNote } from '../spool/spool-journal.ts';
import type { Sidecar } from './sidecar.ts';

const MAX_GAPS = 100;
const MAX_TEXT = 1000;

/** Collects the properties of a session from its object lines. */
export class SessionFacts {
  /** The `session` annotation as unchanged JSON text; undefined for uploads without annotations. */
  session: string | undefined;
  exitCode: number | undefined;
  exitMessage: string | undefined;
  /** Outcome of the session as reported by the gateway. */
  outcome: EndAnnotation['outcome'] | undefined;
  reason: string | undefined;
  /** True if the gateway reported that the session had output, which may be missing in the recording. */
  hasOutput = false;
  /** The first gaps. `gapCount` counts all gaps. */
  readonly gaps: Sidecar['gaps'][number][] = [];
  gapCount = 0;
  noteCount = 0;
  /** Number of invalid annotations. The notes still contain them. */
  oddCount = 0;

  note({ at, text }: JournalNote): void {
    this.noteCount += 1;
    // Skip notes with exact bytes: they are as large as the output and contain no facts.
    if (text?.startsWith('{"kind":"raw",') === true) return;
    const annotation = parseAnnotation(text ?? '');
    if (annotation?.kind === 'session') this.session ??= text;
    else if (annotation === undefined) this.oddCount += 1;
    else this.#take(at, annotation);
  }

  #take(at: number, annotation: Annotation): void {
    switch (annotation.kind) {
      case 'exit':
        this.exitCode = annotation.code;
        this.exitMessage = annotation.message?.slice(0, MAX_TEXT);
        break;
      case 'end':
        this.outcome = annotation.outcome;
        this.reason = annotation.reason?.slice(0, MAX_TEXT);
        this.hasOutput = annotation.outputBytes > 0;
        break;
      case 'gap': {
        this.gapCount += 1;
        const { bytes, reason } = annotation;
        const gap = { at, ...(bytes === undefined ? {} : { bytes }), reason: reason.slice(0, MAX_TEXT) };
        if (this.gaps.length < MAX_GAPS) this.gaps.push(gap);
        break;
      }
      case 'session':
      case 'stream':
      case 'raw':
      case 'order':
        break;
    }
  }
}

/** Returns the final state of an upload. `clean`: true if the upload is complete. */
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

/**
 * Returns one sentence about the problems of a recording, or undefined. `cutReason`: reason why the upload is
 * incomplete.
 */
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

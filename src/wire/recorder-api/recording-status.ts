/**
 * Status of a recording: three independent fields, which all views, commands, queries and metrics use. `state` shows
 * whether the recording contains the end of the session. `result` shows how the command ended. `trust` shows whether a
 * trusted recorder signed the recording.
 */

/**
 * `running`: the upload is in progress, or may still be continued. `completed`: the end of the session is proved.
 * `interrupted`: the upload or the session ended without such a proof. `violated`: the gateway ended the session
 * because it could not understand the stream. `damaged`: the recorder cannot read the recording or its header.
 */
export const RECORDING_STATES = ['running', 'completed', 'interrupted', 'violated', 'damaged'] as const;
export type RecordingState = (typeof RECORDING_STATES)[number];

/** Results other than an exit code. */
export const RESULT_WORDS = ['failed to start', 'client disconnected'] as const;

/**
 * Exit code of the command in decimal digits, or the reason why there is no exit code. Absent if both are
 * unknown.
 */
export type RecordingResult = `${number}` | (typeof RESULT_WORDS)[number];

export interface RecordedResult {
  readonly result?: RecordingResult;
  /** Message of the API server about the result, such as the reason why the command failed to start. */
  readonly resultMessage?: string;
}

/**
 * `verified`: a trusted key signed the sidecar, and the cast has the length that the sidecar states. Only the evidence
 * check and `tailcast verify` compare the bytes of the cast with the digests. `unverified`: no trusted key
 * signed the sidecar. `failed`: the sidecar names a trusted key, but the signature does not match the
 * recording.
 */
export const TRUST_LEVELS = ['verified', 'unverified', 'failed'] as const;
export type TrustLevel = (typeof TRUST_LEVELS)[number];

export interface Trust {
  readonly trust: TrustLevel;
  readonly trustReason?: string;
}

/** Values of `result`, for error messages. */
export const RESULT_VALUES = `an exit code, ${RESULT_WORDS.map((word) => `"${word}"`).join(' or ')}`;

const EXIT_CODE = /^(?:0|-?[1-9]\d{0,15})$/;

export function isRecordingResult(text: string): text is RecordingResult {
  return EXIT_CODE.test(text) || RESULT_WORDS.some((word) => word === text);
}

export function exitResult(code: number): RecordingResult {
  return `${code}`;
}

/** Returns the exit code in a result; undefined for results without one. */
export function exitCodeOf(result: string | undefined): number | undefined {
  return result === undefined || !EXIT_CODE.test(result) ? undefined : Number(result);
}

/** Groups of results, for colours and metric labels. */
export const RESULT_KINDS = ['exit 0', 'exit nonzero', ...RESULT_WORDS, 'unknown'] as const;

export function resultKind(result: string | undefined): (typeof RESULT_KINDS)[number] {
  const code = exitCodeOf(result);
  if (code !== undefined) return code === 0 ? 'exit 0' : 'exit nonzero';
  return RESULT_WORDS.find((word) => word === result) ?? 'unknown';
}

/** A {@link RecordedResult} whose result is not checked. */
interface ResultTexts {
  readonly result?: string;
  readonly resultMessage?: string;
}

/** Returns the result as one line: `0`, `42`, `client disconnected`, or `failed to start: ` with the message. */
export function resultText({ result, resultMessage }: ResultTexts): string {
  return result === 'failed to start' && resultMessage !== undefined
    ? `${result}: ${resultMessage}`
    : (result ?? '');
}

/**
 * Returns the text of the result for text searches. Excludes exit codes, because there is a filter for them, and their
 * digits also occur in ids.
 */
export function searchedResult(recording: ResultTexts): string | undefined {
  return exitCodeOf(recording.result) === undefined ? resultText(recording) : recording.resultMessage;
}

interface StateTexts {
  readonly state: string;
  readonly problem?: string | undefined;
}

/**
 * Returns the state and its reason. Most reasons already start with the state, such as
 * `session interrupted: …`.
 */
export function stateText({ state, problem }: StateTexts): string {
  if (problem === undefined) return state;
  return problem.startsWith(`session ${state}`) ? problem.slice('session '.length) : `${state}: ${problem}`;
}

/**
 * Returns notices for viewers: that the recording is incomplete, that its command did not start, or that the recording
 * differs from the signed one. Empty for all other recordings.
 */
export function statusNotices(
  recording: StateTexts & ResultTexts & { readonly trust?: string; readonly trustReason?: string },
): readonly string[] {
  const { state, problem, result, trust, trustReason } = recording;
  const isWhole = state === 'completed' || state === 'running';
  const notices = [
    isWhole ? problem : stateText(recording),
    result === 'failed to start' ? resultText(recording) : undefined,
    trust === 'failed'
      ? `trust failed: ${trustReason ?? 'the recording was changed after it was signed'}`
      : undefined,
  ];
  return notices.filter((notice) => notice !== undefined);
}

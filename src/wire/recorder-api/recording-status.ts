/**
 * The three fields of a recording that describe the state of its session. They are independent of each other, and
 * every view, command, query and metric uses these words: `state` says whether the recording has the end of the
 * session, `result` how the command ended, and `trust` whether a trusted recorder signed the recording.
 */

/**
 * `running`: the upload runs, or may still be continued. `completed`: the end of the session was proven.
 * `interrupted`: the upload or the session ended without that proof. `violated`: the gateway ended the session
 * because it could not understand the stream. `damaged`: there is a file, but its header cannot be read.
 */
export const RECORDING_STATES = ['running', 'completed', 'interrupted', 'violated', 'damaged'] as const;
export type RecordingState = (typeof RECORDING_STATES)[number];

/** Results other than an exit code. */
export const RESULT_WORDS = ['failed to start', 'client disconnected'] as const;

/** The exit code of the command in decimal digits, or the reason why there is none. Absent if neither is known. */
export type RecordingResult = `${number}` | (typeof RESULT_WORDS)[number];

export interface RecordedResult {
  readonly result?: RecordingResult;
  /** Text of the API server about the result, e.g. the reason why the command failed to start. */
  readonly resultMessage?: string;
}

/**
 * `verified`: a trusted key signed the description of the recording, and the cast is as long as that says; its bytes
 * are compared with their digests by the evidence check and by `tailcast verify`. `unverified`: there is no signature
 * of a trusted key. `failed`: the sidecar names a trusted key, but the signature does not match the recording.
 */
export const TRUST_LEVELS = ['verified', 'unverified', 'failed'] as const;
export type TrustLevel = (typeof TRUST_LEVELS)[number];

export interface Trust {
  readonly trust: TrustLevel;
  readonly trustReason?: string;
}

/** The values of a result, for messages to people. */
export const RESULT_VALUES = `an exit code, ${RESULT_WORDS.map((word) => `"${word}"`).join(' or ')}`;

const EXIT_CODE = /^(?:0|-?[1-9]\d{0,15})$/;

export function isRecordingResult(text: string): text is RecordingResult {
  return EXIT_CODE.test(text) || RESULT_WORDS.some((word) => word === text);
}

export function exitResult(code: number): RecordingResult {
  return `${code}`;
}

/** The exit code in a result; undefined for results without one. */
export function exitCodeOf(result: string | undefined): number | undefined {
  return result === undefined || !EXIT_CODE.test(result) ? undefined : Number(result);
}

/** Results in few groups, for colours and labels of metrics. */
export const RESULT_KINDS = ['exit 0', 'exit nonzero', ...RESULT_WORDS, 'unknown'] as const;

export function resultKind(result: string | undefined): (typeof RESULT_KINDS)[number] {
  const code = exitCodeOf(result);
  if (code !== undefined) return code === 0 ? 'exit 0' : 'exit nonzero';
  return RESULT_WORDS.find((word) => word === result) ?? 'unknown';
}

/** One line for people: `0`, `42`, `client disconnected`, or `failed to start: ` with the message. */
export function resultText({
  result,
  resultMessage,
}: {
  readonly result?: string;
  readonly resultMessage?: string;
}): string {
  return result === 'failed to start' && resultMessage !== undefined
    ? `${result}: ${resultMessage}`
    : (result ?? '');
}

/** Text of the result for text searches, without exit codes: they have a filter, and ids also contain their digits. */
export function searchedResult(recording: {
  readonly result?: string;
  readonly resultMessage?: string;
}): string | undefined {
  return exitCodeOf(recording.result) === undefined ? resultText(recording) : recording.resultMessage;
}

/** State with its reason. Most reasons already start with the state: `session interrupted: …`. */
export function stateText({
  state,
  problem,
}: {
  readonly state: string;
  readonly problem?: string | undefined;
}): string {
  if (problem === undefined) return state;
  return problem.startsWith(`session ${state}`) ? problem.slice('session '.length) : `${state}: ${problem}`;
}

/**
 * Returns sentences for viewers of a recording that is incomplete, did not start, or differs from the signed one;
 * empty for all others.
 */
export function statusNotices(recording: {
  readonly state: string;
  readonly problem?: string;
  readonly result?: string;
  readonly resultMessage?: string;
  readonly trust?: string;
  readonly trustReason?: string;
}): readonly string[] {
  const { state, problem, result, trust, trustReason } = recording;
  const isWhole = state === 'completed' || state === 'running';
  const notices = [
    isWhole ? problem : stateText(recording),
    result === 'failed to start' ? resultText(recording) : undefined,
    trust === 'failed' ? `trust failed: ${trustReason ?? 'the recording is not what was signed'}` : undefined,
  ];
  return notices.filter((notice) => notice !== undefined);
}

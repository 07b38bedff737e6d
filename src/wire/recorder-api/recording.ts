/**
 * What the read API of a recorder (`GET api/v1/recordings`) says about a recording: plain data, JSON as it stands. Recorder,
 * page and commands share it.
 */

import {
  isRecordingResult,
  TRUST_LEVELS,
  type RecordedResult,
  type RecordingState,
  type Trust,
} from './recording-status.ts';

export type RecordingKind = 'exec' | 'attach' | 'ssh' | 'unknown';

export interface Recording<State extends string = RecordingState, Kind extends string = RecordingKind>
  extends RecordedResult, Partial<Trust> {
  /** `<node>_<time>`: stable, unique in the store, safe in a path segment. */
  readonly id: string;
  /** Name of the cast in the store. */
  readonly key: string;
  readonly state: State;
  /** When the recorder received the header: RFC 3339 in UTC, milliseconds. */
  readonly startedAt: string;
  /** Time of the last event; absent while nothing or nothing readable was recorded. */
  readonly durationSeconds?: number;
  /** Length of the cast. */
  readonly bytes: number;
  /** Columns at the start; 0 without a terminal. */
  readonly width: number;
  /** Rows at the start; 0 without a terminal. */
  readonly height: number;
  readonly command?: string;
  readonly kind: Kind;
  readonly source: RecordingSource;
  readonly destination: RecordingNode;
  readonly kubernetes?: RecordingPod;
  /** Where it stands in its session, when that went on or began elsewhere, or may have. */
  readonly part?: RecordedPart;
  /** What a reader should know before trusting the recording to be complete: one sentence, absent when all is well. */
  readonly problem?: string;
}

/** One upload of a session that came in several, in bytes of the session. */
export interface RecordedPart {
  /** Equal for all parts of one session, and only for these. */
  readonly session: string;
  /** Counts the uploads of the session, from 1. */
  readonly number: number;
  readonly from: number;
  readonly to: number;
  /** Length of the header line in the cast, and byte of the session that follows it. */
  readonly headerBytes: number;
  readonly headerEnd: number;
  /** Of this upload by itself, whatever is missing before it. */
  readonly state: RecordingState;
  readonly problem?: string;
  /** Address of the recorder that had the session before, as the gateway has it. */
  readonly before?: string;
  /** Of an upload that was cut: where the gateway would have gone on, in order. */
  readonly after?: readonly string[];
}

/** A node by its name (without trailing dot) and stable id; either may be empty in recordings of others. */
export interface RecordingNode {
  readonly node: string;
  readonly nodeId: string;
}

/** Whose session it was. `user` for a person's node, `tags` for a tagged one. */
export interface RecordingSource extends RecordingNode {
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface RecordingPod {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

/** A recording as somebody reads it who may be older than the recorder: states and kinds that are news to him stay. */
export type ListedRecording = Recording<string, string>;

/** Which number a resize event names first. The reference's API proxy writes rows first; asciicast says columns first. */
export type ResizeOrder = 'columnsFirst' | 'rowsFirst';

/** As recorders make ids: a node id, `%XX` for what is no letter, digit, `_` or `-`, then `_` and a time. */
const ID = /^(?:[A-Za-z0-9_-]|%[0-9A-F]{2}){1,128}_\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/**
 * Name of a file for a recording, which every file system takes and no command reads as an option.
 *
 * @param ending with its dot, e.g. `.cast`
 */
export function recordingFileName(id: string, ending: string): string {
  return `${id.replaceAll(/[^A-Za-z0-9_.%-]/g, '-').replace(/^[.-]/, '_')}${ending}`;
}

/** @returns undefined when the value is no recording, also when its id is none that a recorder makes */
export function decodeRecording(value: unknown): ListedRecording | undefined {
  return isListed(value) ? value : undefined;
}

function isListed(value: unknown): value is ListedRecording {
  return (
    isRecord(value) &&
    has(value, 'string', 'key', 'state', 'startedAt', 'kind') &&
    typeof value['id'] === 'string' &&
    ID.test(value['id']) &&
    has(value, 'number', 'bytes', 'width', 'height') &&
    mayHave(value, 'string', 'command', 'result', 'resultMessage', 'problem', 'trust', 'trustReason') &&
    isResult(value['result']) &&
    (value['trust'] === undefined || TRUST_LEVELS.some((level) => level === value['trust'])) &&
    mayHave(value, 'number', 'durationSeconds') &&
    isSource(value['source']) &&
    isNode(value['destination']) &&
    (value['kubernetes'] === undefined || isPod(value['kubernetes']))
  );
}

function isResult(value: unknown): boolean {
  return value === undefined || (typeof value === 'string' && isRecordingResult(value));
}

function isNode(value: unknown): value is Readonly<Record<string, unknown>> {
  return isRecord(value) && has(value, 'string', 'node', 'nodeId');
}

function isSource(value: unknown): boolean {
  if (!isNode(value) || !mayHave(value, 'string', 'user')) return false;
  const { tags } = value;
  return tags === undefined || (Array.isArray(tags) && tags.every((tag) => typeof tag === 'string'));
}

function isPod(value: unknown): boolean {
  return isRecord(value) && has(value, 'string', 'namespace', 'pod', 'container');
}

type Fields = Readonly<Record<string, unknown>>;

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null;
}

function has(value: Fields, type: 'string' | 'number', ...names: readonly string[]): boolean {
  return names.every((name) => typeof value[name] === type);
}

function mayHave(value: Fields, type: 'string' | 'number', ...names: readonly string[]): boolean {
  return names.every((name) => value[name] === undefined || typeof value[name] === type);
}

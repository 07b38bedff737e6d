/**
 * A recording in the read API of a recorder (`GET api/v1/recordings`), as plain JSON data. The recorder, the
 * player and the commands use this type.
 */

import {
  isRecordingResult,
  TRUST_LEVELS,
  type RecordedResult,
  type RecordingState,
  type Trust,
} from './recording-status.ts';

import type { ReviewSummary } from './review.ts';
import { hasFields, isRecord, isTexts, mayHaveFields } from '../is-record.ts';

export type RecordingKind = 'exec' | 'attach' | 'ssh' | 'unknown';

export interface Recording<State extends string = RecordingState, Kind extends string = RecordingKind>
  extends RecordedResult, Partial<Trust> {
  /** Id `<node>_<time>`. It never changes, is unique in the store, and is safe as a path segment. */
  readonly id: string;
  /** File name or object key of the cast in the store. */
  readonly key: string;
  readonly state: State;
  /** Time at which the recorder received the cast header, in RFC 3339 (UTC, with milliseconds). */
  readonly startedAt: string;
  /** Time of the last event, in seconds of the session. Absent if the recording has no readable event. */
  readonly durationSeconds?: number;
  /** Length of the cast, in bytes. */
  readonly bytes: number;
  /** Columns of the terminal at the start; 0 without a terminal. */
  readonly width: number;
  /** Rows of the terminal at the start; 0 without a terminal. */
  readonly height: number;
  readonly command?: string;
  readonly kind: Kind;
  readonly source: RecordingSource;
  readonly destination: RecordingNode;
  readonly kubernetes?: RecordingPod;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string;
  /** Id of the session at the gateway or SSH server that recorded it. */
  readonly connectionId?: string;
  /**
   * Audit id that the API server used, if the gateway did not impersonate the user. Differs from `connectionId` if the
   * client chose the audit id.
   */
  readonly auditId?: string;
  /** Position of this recording in its session, if the session may consist of several uploads. */
  readonly part?: RecordedPart;
  /** Summary of the review; absent without a review. */
  readonly review?: ReviewSummary;
  /** Sentence about a problem of the recording; absent without a problem. */
  readonly problem?: string;
}

/**
 * Returns the pod of a session as `namespace/pod`, or as `cluster:namespace/pod` if the cluster is known.
 * Empty without a pod.
 */
export function podText({ cluster, kubernetes }: Pick<Recording, 'cluster' | 'kubernetes'>): string {
  if (kubernetes === undefined) return '';
  return `${cluster === undefined ? '' : `${cluster}:`}${kubernetes.namespace}/${kubernetes.pod}`;
}

/** Position of one upload in its session. */
export interface RecordedPart {
  /** Id of the session, which is the same in all parts of the session. */
  readonly session: string;
  /** Number of the upload in the session, from 1. */
  readonly number: number;
  readonly from: number;
  readonly to: number;
  /** Length of the header line in the stored cast. */
  readonly headerBytes: number;
  /** Position in the session of the first byte after the header line. */
  readonly headerEnd: number;
  /** State of this upload, regardless of earlier uploads. */
  readonly state: RecordingState;
  readonly problem?: string;
  /** Address at which the gateway reaches the recorder that has the previous part. */
  readonly before?: string;
  /**
   * Addresses of recorders to which the gateway may continue the upload, in the order in which it tries them.
   * Present only for an interrupted upload.
   */
  readonly after?: readonly string[];
}

/**
 * A tailnet node: its name without trailing dot, and its stable id. Either may be empty in recordings that another
 * product made.
 */
export interface RecordingNode {
  readonly node: string;
  readonly nodeId: string;
}

/** The client of a session. `user` is set for a user's node, `tags` for a tagged node. */
export interface RecordingSource extends RecordingNode {
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface RecordingPod {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

/**
 * A recording as received by a program that may be older than the recorder. The recording may contain states and kinds
 * that this program does not know.
 */
export type ListedRecording = Recording<string, string>;

/**
 * Meaning of the first number in a resize event. asciicast puts columns first. The API-server proxy of the
 * reference (Tailscale) puts rows first.
 */
export type ResizeOrder = 'columnsFirst' | 'rowsFirst';

/**
 * Format of recording ids: a node id, `_` and a time. In the node id, characters other than letters, digits,
 * `_` and `-` are written as `%XX`.
 */
const ID = /^(?:[A-Za-z0-9_-]|%[0-9A-F]{2}){1,128}_\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/**
 * Returns a file name for a recording. All file systems accept the name, and commands do not parse it as an option.
 *
 * @param ending file extension with its dot, e.g. `.cast`
 */
export function recordingFileName(id: string, ending: string): string {
  return `${id.replaceAll(/[^A-Za-z0-9_.%-]/g, '-').replace(/^[.-]/, '_')}${ending}`;
}

/** @returns undefined for an invalid recording or an invalid id */
export function decodeRecording(value: unknown): ListedRecording | undefined {
  return isListed(value) ? value : undefined;
}

function isListed(value: unknown): value is ListedRecording {
  return (
    isRecord(value) &&
    hasFields(value, 'string', 'key', 'state', 'startedAt', 'kind') &&
    typeof value['id'] === 'string' &&
    ID.test(value['id']) &&
    hasFields(value, 'number', 'bytes', 'width', 'height') &&
    mayHaveFields(
      value,
      'string',
      'command',
      'cluster',
      'connectionId',
      'auditId',
      'result',
      'resultMessage',
      'problem',
      'trust',
      'trustReason',
    ) &&
    isResult(value['result']) &&
    isTrust(value['trust']) &&
    mayHaveFields(value, 'number', 'durationSeconds') &&
    isSource(value['source']) &&
    isNode(value['destination']) &&
    (value['kubernetes'] === undefined || isPod(value['kubernetes'])) &&
    (value['review'] === undefined || isReview(value['review']))
  );
}

function isTrust(value: unknown): boolean {
  return value === undefined || TRUST_LEVELS.some((level) => level === value);
}

function isResult(value: unknown): boolean {
  return value === undefined || (typeof value === 'string' && isRecordingResult(value));
}

function isNode(value: unknown): value is Readonly<Record<string, unknown>> {
  return isRecord(value) && hasFields(value, 'string', 'node', 'nodeId');
}

function isSource(value: unknown): boolean {
  return (
    isNode(value) &&
    mayHaveFields(value, 'string', 'user') &&
    (value['tags'] === undefined || isTexts(value['tags']))
  );
}

function isPod(value: unknown): boolean {
  return isRecord(value) && hasFields(value, 'string', 'namespace', 'pod', 'container');
}

function isReview(value: unknown): boolean {
  return (
    isRecord(value) &&
    hasFields(value, 'number', 'comments') &&
    mayHaveFields(value, 'string', 'reviewedBy') &&
    isTexts(value['tags'])
  );
}

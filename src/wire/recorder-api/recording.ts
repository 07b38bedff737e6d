/**
 * A recording in the read API of a recorder (`GET api/v1/recordings`), as plain JSON data. Recorder, page and
 * commands share it.
 */

import {
  isRecordingResult,
  TRUST_LEVELS,
  type RecordedResult,
  type RecordingState,
  type Trust,
} from './recording-status.ts';

import type { ReviewSummary } from './review.ts';
import { isRecord } from '../is-record.ts';

export type RecordingKind = 'exec' | 'attach' | 'ssh' | 'unknown';

export interface Recording<State extends string = RecordingState, Kind extends string = RecordingKind>
  extends RecordedResult, Partial<Trust> {
  /** `<node>_<time>`: stable, unique in the store, safe in a path segment. */
  readonly id: string;
  /** Name of the cast in the store. */
  readonly key: string;
  readonly state: State;
  /** Time at which the recorder received the header: RFC 3339 in UTC, milliseconds. */
  readonly startedAt: string;
  /** Time of the last event; absent without a readable event. */
  readonly durationSeconds?: number;
  /** Length of the cast, in bytes. */
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
  /** Name of the cluster at a gateway with several clusters. */
  readonly cluster?: string;
  /** Position in its session, if the session may have other uploads. */
  readonly part?: RecordedPart;
  /** Summary of the review; absent without one. */
  readonly review?: ReviewSummary;
  /** One sentence about a possible problem of the recording; absent without one. */
  readonly problem?: string;
}

/** Returns the pod of a session: `namespace/pod`, after `cluster:` if it has a cluster. Empty without a pod. */
export function podText({ cluster, kubernetes }: Pick<Recording, 'cluster' | 'kubernetes'>): string {
  if (kubernetes === undefined) return '';
  return `${cluster === undefined ? '' : `${cluster}:`}${kubernetes.namespace}/${kubernetes.pod}`;
}

/** One of several uploads of a session, in bytes of the session. */
export interface RecordedPart {
  /** Equal for all parts of a session, and only for these. */
  readonly session: string;
  /** Number of the upload in the session, from 1. */
  readonly number: number;
  readonly from: number;
  readonly to: number;
  /** Length of the header line in the cast, and the byte of the session after it. */
  readonly headerBytes: number;
  readonly headerEnd: number;
  /** State of this upload, independent of earlier ones. */
  readonly state: RecordingState;
  readonly problem?: string;
  /** Address of the previous recorder of the session, as known to the gateway. */
  readonly before?: string;
  /** Addresses at which the gateway would continue, in order. Present only for an interrupted upload. */
  readonly after?: readonly string[];
}

/** A node by name (without trailing dot) and stable id; either may be empty in recordings of other recorders. */
export interface RecordingNode {
  readonly node: string;
  readonly nodeId: string;
}

/** The client of a session. `user` for a user's node, `tags` for a tagged one. */
export interface RecordingSource extends RecordingNode {
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface RecordingPod {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
}

/** A recording for readers that may be older than the recorder: unknown states and kinds are kept. */
export type ListedRecording = Recording<string, string>;

/**
 * First number of a resize event. The reference's (Tailscale's) API-server proxy writes rows first; asciicast has
 * columns first.
 */
export type ResizeOrder = 'columnsFirst' | 'rowsFirst';

/**
 * Format of recorder ids: a node id, with `%XX` for characters other than letters, digits, `_` and `-`, then `_`
 * and a time.
 */
const ID = /^(?:[A-Za-z0-9_-]|%[0-9A-F]{2}){1,128}_\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/**
 * Returns a file name for a recording that every file system accepts and no command reads as an option.
 *
 * @param ending with its dot, e.g. `.cast`
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
    has(value, 'string', 'key', 'state', 'startedAt', 'kind') &&
    typeof value['id'] === 'string' &&
    ID.test(value['id']) &&
    has(value, 'number', 'bytes', 'width', 'height') &&
    mayHave(
      value,
      'string',
      'command',
      'cluster',
      'result',
      'resultMessage',
      'problem',
      'trust',
      'trustReason',
    ) &&
    isResult(value['result']) &&
    isTrust(value['trust']) &&
    mayHave(value, 'number', 'durationSeconds') &&
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

function isReview(value: unknown): boolean {
  return (
    isRecord(value) &&
    has(value, 'number', 'comments') &&
    mayHave(value, 'string', 'reviewedBy') &&
    Array.isArray(value['tags']) &&
    value['tags'].every((tag) => typeof tag === 'string')
  );
}

type Fields = Readonly<Record<string, unknown>>;

function has(value: Fields, type: 'string' | 'number', ...names: readonly string[]): boolean {
  return names.every((name) => typeof value[name] === type);
}

function mayHave(value: Fields, type: 'string' | 'number', ...names: readonly string[]): boolean {
  return names.every((name) => value[name] === undefined || typeof value[name] === type);
}

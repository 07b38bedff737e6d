/** What a list may be narrowed to. Pure. */
import type { ListSort } from '../../search/search-index.ts';
import type { Recording, RecordingKind } from '../../wire/recorder-api/recording.ts';
import {
  exitCodeOf,
  resultText,
  type RecordingResult,
  type RecordingState,
  type TrustLevel,
} from '../../wire/recorder-api/recording-status.ts';

/** What to list. Texts must be equal, except `text`, which must occur. */
export interface CatalogQuery {
  /** Searched in command, user, nodes, pod, namespace, container, id and all that is said of state, result and trust; any case. */
  readonly text?: string;
  /** Name or id of the source or the destination. */
  readonly node?: string;
  readonly user?: string;
  readonly tag?: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  readonly kind?: RecordingKind;
  readonly state?: RecordingState;
  readonly result?: RecordingResult;
  readonly trust?: TrustLevel;
  /** Nanoseconds since the epoch: not before `from`, before `to`. */
  readonly from?: bigint;
  readonly to?: bigint;
  /** What comes first. Default: newest. Any other takes an index. */
  readonly sort?: ListSort;
  readonly limit: number;
  /** `next` of the page before, of a list that was sorted the same. */
  readonly cursor?: string;
}

/** Whether a recording is what is asked for, apart from its time. */
export function matches(recording: Recording, query: CatalogQuery): boolean {
  const { source, destination, kubernetes } = recording;
  const nodes = [source.node, source.nodeId, destination.node, destination.nodeId];
  const allows = (wanted: string | undefined, ...found: readonly (string | undefined)[]): boolean =>
    wanted === undefined || found.includes(wanted);
  return (
    allows(query.node, ...nodes) &&
    allows(query.user, source.user) &&
    allows(query.tag, ...(source.tags ?? [])) &&
    allows(query.namespace, kubernetes?.namespace) &&
    allows(query.pod, kubernetes?.pod) &&
    allows(query.container, kubernetes?.container) &&
    allows(query.kind, recording.kind) &&
    allows(query.state, recording.state) &&
    allows(query.result, recording.result) &&
    allows(query.trust, recording.trust) &&
    containsText(recording, query.text)
  );
}

function containsText(recording: Recording, text: string | undefined): boolean {
  if (text === undefined) return true;
  const wanted = text.toLowerCase();
  return searchedNames(recording).some((value) => value.includes(wanted));
}

/** All that a text is looked for in, line by line: what a list finds occurs in it. */
export function searchedText(recording: Recording): string {
  return searchedNames(recording).join('\n');
}

function searchedNames(recording: Recording): readonly string[] {
  const { id, command, source, destination, kubernetes, problem, result, trustReason } = recording;
  const names = [
    id,
    command,
    problem,
    // a number is in ids and times as well: exit codes have a field of their own
    exitCodeOf(result) === undefined ? resultText(recording) : recording.resultMessage,
    trustReason,
    source.user,
    ...(source.tags ?? []),
    source.node,
    source.nodeId,
    destination.node,
    destination.nodeId,
    kubernetes?.namespace,
    kubernetes?.pod,
    kubernetes?.container,
  ];
  return names.filter((name) => name !== undefined).map((name) => name.toLowerCase());
}

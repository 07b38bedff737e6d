/**
 * Joins the parts of a session: see `session-part.ts`. Each byte comes from the first part that has it, so that no
 * output occurs twice. The recording states which bytes are missing.
 */
import { piecesBytes, type PartFiles } from './cast-pieces.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { joinNotes, readPlaced, type JoinedPart } from './join-notes.ts';
import { areSeenAlike } from './scope.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import type { SessionPart } from './session-part.ts';

/** A part and its description. */
export interface DescribedPart {
  readonly entry: CatalogEntry;
  readonly part: SessionPart;
  /** Session mark; undefined if no recorder has computed it. */
  readonly mark?: string;
  /** True if a trusted key signed the position of the part in its session. The content may still be unverified. */
  readonly isPlaceProven?: boolean;
  readonly files: PartFiles;
  /** Offset in the session where the part ends, in bytes. */
  readonly bodyEnd: number;
  /** Number of gaps that the gateway reported. */
  readonly gapCount: number;
}

/**
 * Joins parts into one recording.
 *
 * @param parts parts of one session in any order, at least one
 * @param first entry with the id and the time of the recording
 */
export async function joinParts(
  parts: readonly [DescribedPart, ...DescribedPart[]],
  first: CatalogEntry,
): Promise<CatalogEntry> {
  const ordered = parts.toSorted(
    (left, right) => left.part.offset - right.part.offset || left.part.number - right.part.number,
  );
  const joined: (DescribedPart & JoinedPart)[] = [];
  let reached = 0;
  let missingBytes = 0;
  const missingAt = new Set<string>();
  for (const described of ordered) {
    const { part, files, bodyEnd } = described;
    const isShadowed = bodyEnd <= reached && files.cast.live?.isOpen() !== true;
    if (isShadowed && joined.length > 0) continue;
    missingBytes += Math.max(0, part.offset - reached);
    if (part.offset > reached && part.before !== undefined) missingAt.add(part.before);
    const start = joined.length === 0 ? 0 : await castOffsetOf(described, reached);
    joined.push({ ...described, cast: { ...files.cast, start }, from: reached });
    reached = Math.max(reached, bodyEnd);
  }
  const last = joined.at(-1) ?? parts[0];
  const pieces = joined.map(({ cast }) => cast);
  const lengths = ordered.map(({ entry }) => entry.version);
  return {
    recording: joinRecordings(first.recording, joined, {
      bytes: piecesBytes(pieces),
      missingBytes,
      missingAt: [...missingAt],
    }),
    key: first.key,
    resizeOrder: first.resizeOrder,
    pieces,
    live: last.entry.live,
    parts: joined.map(({ entry }) => entry.key),
    ...(joined.length === 1 ? {} : { joinedNotes: () => joinNotes(joined) }),
    ...(areSeenAlike(parts.map(({ entry }) => entry.recording)) ? {} : { isSeenApart: true }),
    version: lengths.includes(undefined) ? undefined : lengths.join('-'),
    identity: ordered.map(({ entry }) => entry.identity).join(' '),
  };
}

function joinRecordings(
  first: Recording,
  parts: readonly DescribedPart[],
  {
    bytes,
    missingBytes,
    missingAt,
  }: { readonly bytes: number; readonly missingBytes: number; readonly missingAt: readonly string[] },
): Recording {
  const {
    durationSeconds: _duration,
    result: _result,
    resultMessage: _resultMessage,
    problem: _problem,
    trust: _trust,
    trustReason: _trustReason,
    ...about
  } = first;
  const recordings = parts.map(({ entry }) => entry.recording);
  const { state, problem } = recordings.at(-1) ?? first;
  // Search all parts for result and duration, because the last part may contain only the final annotation.
  const knowing = state === 'running' ? [] : recordings;
  const timed = knowing.findLast(({ durationSeconds }) => durationSeconds !== undefined);
  const { result, resultMessage } = knowing.findLast((part) => part.result !== undefined) ?? {};
  const earlierGaps = parts.slice(0, -1).some(({ gapCount }) => gapCount > 0);
  const problems = [
    ...(missingBytes > 0
      ? [`${missingBytes} bytes of the upload are with ${namely(missingAt)}, or lost`]
      : []),
    ...(earlierGaps ? ['output is missing before the session changed its recorder'] : []),
    ...(problem === undefined ? [] : [problem]),
    ...isContinued(parts.at(-1)),
  ];
  return {
    ...about,
    state: state === 'completed' && missingBytes > 0 ? 'interrupted' : state,
    ...(timed?.durationSeconds === undefined ? {} : { durationSeconds: timed.durationSeconds }),
    bytes,
    ...(result === undefined ? {} : { result }),
    ...(resultMessage === undefined ? {} : { resultMessage }),
    ...(problems.length === 0 ? {} : { problem: problems.join('; ') }),
    ...trustOfParts(recordings),
  };
}

/** Returns the lowest trust level of all parts. */
function trustOfParts(parts: readonly Recording[]): Partial<Trust> {
  const of = (level: Recording['trust']): Recording | undefined => parts.find(({ trust }) => trust === level);
  const { trust, trustReason } = of('failed') ?? of('unverified') ?? of(undefined) ?? of('verified') ?? {};
  return {
    ...(trust === undefined ? {} : { trust }),
    ...(trustReason === undefined ? {} : { trustReason: `a part of the session: ${trustReason}` }),
  };
}

/** Returns a sentence about an interrupted part whose session may continue at another recorder. */
export function isContinued(last: DescribedPart | undefined): readonly string[] {
  const after = last?.part.after ?? [];
  return last?.entry.recording.state !== 'interrupted' || after.length === 0
    ? []
    : [`the session may continue at ${after.join(' or ')}`];
}

function namely(addresses: readonly string[]): string {
  return addresses.length === 0 ? 'another recorder' : `the recorder at ${addresses.join(' or ')}`;
}

/**
 * Returns the offset of session byte `bodyOffset` in the cast of a part. Both offsets are at the start of a line,
 * because recorders acknowledge and keep only complete lines.
 */
async function castOffsetOf(described: DescribedPart, bodyOffset: number): Promise<number> {
  const { headerBytes, headerEnd } = described.part;
  if (bodyOffset <= headerEnd) return headerBytes;
  /**
   * Number of session bytes before the offset that are in the notes instead of the cast, minus the extra bytes of the
   * stored header line.
   */
  let elsewhere = headerEnd - headerBytes;
  for await (const lines of readPlaced(described)) {
    for (const { parsed, position } of lines) {
      if (parsed?.kind !== 'note') continue;
      // This note and all later notes are at or after the offset.
      if (position >= bodyOffset) return bodyOffset - elsewhere;
      elsewhere += parsed.note.size;
    }
  }
  return bodyOffset - elsewhere;
}

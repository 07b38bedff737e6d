/** Verifies a stored recording against its sidecar, and the sidecar against the evidence log. */
import { createHash } from 'node:crypto';
import { errorReason, TailcastError } from '../../errors.ts';
import { MAX_SIDECAR_BYTES, readText } from '../library/describe-stored.ts';
import { sessionMark } from '../library/session-part.ts';
import { newerSidecar, parseSidecar, type Sidecar } from '../library/sidecar.ts';
import { objectKey, recordingId, recordingKey, type RecordingKey } from '../store/key.ts';
import type { ObjectKind, ReadableStore, StoredRecording } from '../store/store.ts';
import { fault, notice, type Finding, type FindingCode } from './finding.ts';
import { checkAdoption } from './verify-adoption.ts';
import { chainOf, createLineSealer, type LineSeal, type Seal } from './line-seal.ts';
import type { LogEntry, LogEvent } from './log-entry.ts';
import {
  mentionsEvidence,
  parseSignedSidecar,
  type SidecarEvidence,
  type SignedSidecar,
} from './signed-sidecar.ts';
import type { KeyRing, ReadLog } from './verify-logs.ts';

/** Log entries about recordings. */
export interface LogIndex {
  readonly logs: ReadonlyMap<string, ReadLog>;
  /**
   * End entries. Map keys: id of the stored recording. Several recorders may have signed an end entry for one
   * recording.
   */
  readonly ends: ReadonlyMap<string, readonly LoggedEnd[]>;
  /** Removal entries without a later hold. Map keys: id of the recording. */
  readonly removals: ReadonlyMap<string, readonly unknown[]>;
  /** Positions of the start entries. Map keys: id of the recording. */
  readonly starts: ReadonlyMap<string, { readonly log: string; readonly n: number }>;
}

/** An end entry and its position. */
export interface LoggedEnd {
  readonly log: string;
  readonly n: number;
  readonly event: Extract<LogEvent, { kind: 'end' }>;
}

/** Byte range of a recording in its session, as signed by its recorder. */
export interface VerifiedPart {
  readonly recording: string;
  /** Session mark: equal only for parts of the same session. */
  readonly session: string;
  /** Offsets in the session, in bytes. */
  readonly from: number;
  readonly to: number;
  /** True if the session ended with this part. */
  readonly isEnd: boolean;
  /** Address of the recorder that has the previous part. */
  readonly before?: string;
  /** Addresses of the recorders to which the gateway would send the rest of an interrupted part. */
  readonly after: readonly string[];
}

/** Result of the verification of a recording. */
export interface CheckedRecording {
  readonly evidence: boolean;
  /** Offset in the session where the recording ends, as signed by its recorder. */
  readonly bodyBytes?: number;
  /** Byte range of the recording in its session. */
  readonly part?: VerifiedPart;
  /** Evidence and signature of the sidecar. */
  readonly signature?: SignedSidecar;
  /** Sidecar, parsed from the same bytes as `signature`. */
  readonly sidecar?: Sidecar;
  /** True if the cast is no longer a regular file in the store. */
  readonly isAbsent?: boolean;
  readonly findings: readonly Finding[];
}

const MAX_HEADER_BYTES = 8_388_608;

/** Data for the verification of a recording. */
export interface RecordingContext extends LogIndex {
  readonly keys: KeyRing;
  /** Current time in milliseconds since the epoch. */
  readonly nowMs: number;
  /** Maximum time since the last log entry about an open session, in milliseconds. */
  readonly unfinishedMs: number;
  /** True if a recording without evidence is a fault. */
  readonly requireEvidence: boolean;
  /** Aborts the verification. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Grace period for log entries, in milliseconds. Recorders publish entries some seconds late. Failures of the store
 * increase the delay.
 */
const PUBLISHING_MS = 120_000;

/** Verifies a recording. Returns problems of the recording as findings, and never throws them. */
export async function checkRecording(
  store: ReadableStore,
  { key, hasSidecar }: StoredRecording,
  context: RecordingContext,
): Promise<CheckedRecording> {
  const check = new RecordingCheck(store, key, context);
  const isRemoved = (context.removals.get(recordingId(key)) ?? []).length > 0;
  try {
    const checked = await check.run(hasSidecar);
    if (checked.signature !== undefined) await check.checkLog(checked.signature.evidence);
    const isIncomplete = checked.findings.some(({ code }) => REMOVED_BEFORE_CAST.has(code));
    if (!isIncomplete || !isRemoved) return checked;
    return { ...checked, findings: removalPending(key, checked.findings, INCOMPLETE) };
  } catch (error) {
    if ((await store.stat(key, 'cast').catch(() => true)) === undefined) {
      const message = 'its cast was removed during the verification, or is not a regular file';
      return {
        evidence: true,
        isAbsent: true,
        findings: removalPending(key, check.soFar.findings, message),
      };
    }
    // The sidecar or the notes were removed during the verification.
    if (isRemoved && errorCode(error) === 'RECORDING_UNKNOWN')
      return { ...check.soFar, findings: removalPending(key, check.soFar.findings, INCOMPLETE) };
    return {
      ...check.soFar,
      findings: [
        ...check.soFar.findings,
        fault(
          errorCode(error) === 'ARCHIVE_DAMAGED' ? 'archive-damaged' : 'recording-unreadable',
          `it cannot be read: ${errorReason(error)}`,
          {
            recording: recordingId(key),
          },
        ),
      ],
    };
  }
}

/** Findings about files that a removal deletes before the cast. */
const REMOVED_BEFORE_CAST: ReadonlySet<FindingCode> = new Set(['sidecar-missing', 'notes-missing']);

const INCOMPLETE = 'the log contains its removal, and only its cast is complete';

/** Replaces findings about missing files with a notice, because the recording is being removed. */
function removalPending(
  key: RecordingKey,
  findings: readonly Finding[],
  message: string,
): readonly Finding[] {
  const other = findings.filter(({ code }) => !REMOVED_BEFORE_CAST.has(code));
  return [...other, notice('removal-pending', message, { recording: recordingId(key) })];
}

/** Verifies a recording against its own sidecar only. The evidence logs are ignored. @throws the reason of `signal` */
export async function checkSigned(
  store: ReadableStore,
  key: RecordingKey,
  keys: KeyRing,
  signal?: AbortSignal,
): Promise<CheckedRecording> {
  const none = { logs: new Map(), ends: new Map(), removals: new Map(), starts: new Map() };
  const context = { ...none, keys, nowMs: 0, unfinishedMs: 0, requireEvidence: false, signal };
  const hasSidecar = (await store.stat(key, 'sidecar')) !== undefined;
  return new RecordingCheck(store, key, context).run(hasSidecar);
}

function errorCode(error: unknown): TailcastError['code'] | undefined {
  return error instanceof TailcastError ? error.code : undefined;
}

class RecordingCheck {
  readonly #store: ReadableStore;
  readonly #key: RecordingKey;
  readonly #id: string;
  readonly #index: RecordingContext;
  #endedAtMs = 0;
  #sidecar: Sidecar | undefined;
  #part: VerifiedPart | undefined;
  readonly #findings: Finding[] = [];

  constructor(store: ReadableStore, key: RecordingKey, context: RecordingContext) {
    this.#store = store;
    this.#key = key;
    this.#id = recordingId(key);
    this.#index = context;
  }

  /** Compares the files with the sidecar, or with the evidence log if there is no readable sidecar. */
  async run(hasSidecar: boolean): Promise<CheckedRecording> {
    const text = hasSidecar
      ? await readText(this.#store, this.#key, 'sidecar', MAX_SIDECAR_BYTES)
      : undefined;
    if (text !== undefined) this.#sidecar = parseSidecar(text);
    const isLogged = this.#index.ends.has(this.#id) || this.#index.starts.has(this.#id);
    const signature = text === undefined ? undefined : parseSignedSidecar(text);
    if (text === undefined || signature === undefined) {
      if (!isLogged && !mentionsEvidence(text ?? '')) return this.#withoutEvidence(text !== undefined);
      if (text === undefined) this.#fault('sidecar-missing', 'the sidecar is missing', 'sidecar');
      else {
        const problem = newerSidecar(text) ?? 'the sidecar has no evidence that can be read any more';
        this.#fault('sidecar-changed', problem, 'sidecar');
      }
      await this.#checkByLog();
      return this.soFar;
    }
    this.#checkSidecar(signature, text);
    const { cast, notes } = signature.evidence;
    await this.#checkFile('cast', cast);
    await this.#checkNotes(notes);
    const bodyBytes = this.#sidecar?.upload.bodyBytes;
    return { ...this.soFar, ...(bodyBytes === undefined ? {} : { bodyBytes }), signature };
  }

  /** Result of the finished checks, for a recording that becomes unreadable during its verification. */
  get soFar(): CheckedRecording {
    const part = this.#part === undefined ? {} : { part: this.#part };
    const sidecar = this.#sidecar === undefined ? {} : { sidecar: this.#sidecar };
    return { evidence: true, ...part, ...sidecar, findings: this.#findings };
  }

  #checkSidecar(signed: SignedSidecar, text: string): void {
    const key = this.#index.keys.byId.get(signed.keyId);
    if (key === undefined) {
      const message = `the sidecar is signed by the key ${signed.keyId}, which is not trusted here`;
      this.#fault('sidecar-changed', message, 'sidecar');
    } else if (!key.verifies(signed.message, signed.signature)) {
      this.#fault('sidecar-changed', 'the sidecar was changed after it was signed', 'sidecar');
    }
    const document = this.#sidecar;
    if (document !== undefined) this.#part = this.#placeOf(document);
    const newer = document === undefined ? newerSidecar(text) : undefined;
    if (newer !== undefined) {
      this.#fault('sidecar-changed', newer, 'sidecar');
      return;
    }
    const recorded = document?.recording.key;
    this.#endedAtMs = Date.parse(document?.upload.endedAt ?? '');
    if (recorded !== recordingKey(this.#key)) {
      this.#fault('recording-moved', `the sidecar belongs to ${recorded ?? 'another recording'}`, 'sidecar');
    }
  }

  #placeOf({ part, recording, upload }: Sidecar): VerifiedPart | undefined {
    if (part === undefined) return undefined;
    const { offset: from, before, after = [] } = part;
    return {
      recording: this.#id,
      session: sessionMark(this.#key.nodeId, part.session),
      from,
      to: upload.bodyBytes,
      isEnd: recording.state === 'completed',
      ...(before === undefined ? {} : { before }),
      after: recording.state === 'interrupted' ? after : [],
    };
  }

  #withoutEvidence(hasSidecar: boolean): CheckedRecording {
    const message = hasSidecar
      ? 'it was stored without evidence, so it cannot be verified'
      : 'it has no sidecar and no evidence (of another recorder, or copied), so it cannot be verified';
    const say = this.#index.requireEvidence ? fault : notice;
    this.#findings.push(say('no-evidence', message, { recording: this.#id }));
    return { ...this.soFar, evidence: false };
  }

  async #checkFile(kind: 'cast' | 'notes', seal: LineSeal): Promise<void> {
    const code = kind === 'cast' ? 'cast-changed' : 'notes-changed';
    if (chainOf(seal.blocks) !== seal.chain) {
      this.#fault(code, `the block digests of the ${kind} do not match the signed digest`, 'sidecar');
    }
    if (sameSeal(seal, await this.#sealAs(seal, kind))) return;
    this.#fault(code, `the ${kind} ${kind === 'cast' ? 'differs' : 'differ'} from the signed digest`, kind);
  }

  async #checkNotes(seal: LineSeal | undefined): Promise<void> {
    const there = (await this.#store.stat(this.#key, 'notes')) !== undefined;
    if (seal === undefined) {
      if (there)
        this.#fault(
          'notes-unexpected',
          'the recording has notes, but its signed sidecar lists none',
          'notes',
        );
    } else if (there) await this.#checkFile('notes', seal);
    else this.#fault('notes-missing', 'the notes are missing', 'notes');
  }

  /**
   * Checks that the evidence log contains the start entry, and that the end entry in the log, if there is one, matches
   * the sidecar.
   */
  async checkLog(evidence: SidecarEvidence): Promise<void> {
    const log = this.#index.logs.get(evidence.log);
    const start = log?.entries.get(evidence.start);
    const where = { log: evidence.log, entry: evidence.start };
    if (log === undefined || start === undefined) {
      if (evidence.start > (log?.head?.n ?? -1) && this.#index.nowMs - this.#endedAtMs < PUBLISHING_MS) {
        const message = 'it ended recently, and its end is not yet in the published log';
        this.#findings.push(notice('end-pending', message, { recording: this.#id, ...where }));
        return;
      }
      const what = log === undefined ? 'the log' : 'the entry';
      this.#fault(
        'recording-not-in-log',
        `${what} with the start of this recording is missing`,
        undefined,
        where,
      );
      return;
    }
    const ends = this.#index.ends.get(this.#id) ?? [];
    await this.#checkStart(start, ends, where);
    this.#findings.push(...checkAdoption(this.#id, evidence, start.event, this.#index.logs));
    if (ends.length === 0) {
      const message = 'the log has no entry for its end yet';
      const isLate = this.#index.nowMs - this.#endedAtMs > this.#index.unfinishedMs;
      this.#findings.push(
        isLate
          ? fault('unfinished-too-long', message, { recording: this.#id, ...where })
          : notice('end-pending', message, { recording: this.#id, ...where }),
      );
      return;
    }
    const other = ends.find(
      ({ event: { cast, notes } }) => !sameSeal(cast, evidence.cast) || !sameSeal(notes, evidence.notes),
    );
    if (other !== undefined) {
      const message = 'it differs from its entry in the log';
      this.#fault('recording-differs-from-log', message, undefined, { log: other.log, entry: other.n });
    }
  }

  async #checkStart(
    { event }: LogEntry,
    ends: readonly LoggedEnd[],
    where: { readonly log: string; readonly entry: number },
  ): Promise<void> {
    // The id of the stored recording differs from the id in its start entry if the store already had a recording with
    // that id.
    const isIts =
      event.kind === 'start' &&
      (event.recording === this.#id ||
        ends.some((end) => end.log === where.log && end.event.start === where.entry));
    if (!isIts) {
      this.#fault(
        'recording-not-in-log',
        'the log entry is not the start of this recording',
        undefined,
        where,
      );
    } else if ((await this.#headerDigest()) !== event.header) {
      this.#fault(
        'recording-differs-from-log',
        'its header line is not the one it began with',
        'cast',
        where,
      );
    }
  }

  /** Compares the files with the evidence log, because the sidecar is missing. */
  async #checkByLog(): Promise<void> {
    for (const end of this.#index.ends.get(this.#id) ?? []) await this.#checkByEnd(end);
  }

  async #checkByEnd(end: LoggedEnd): Promise<void> {
    const { cast, notes } = end.event;
    const where = { log: end.log, entry: end.n };
    if (!sameSeal(cast, await this.#sealAs(cast, 'cast'))) {
      this.#fault('cast-changed', 'the cast differs from its entry in the log', 'cast', where);
    }
    const there = (await this.#store.stat(this.#key, 'notes')) !== undefined;
    if (notes !== undefined && (!there || !sameSeal(notes, await this.#sealAs(notes, 'notes')))) {
      this.#fault('notes-changed', 'the notes differ from their entry in the log', 'notes', where);
    }
  }

  async #sealAs({ blockBytes }: Seal, kind: ObjectKind): Promise<Seal> {
    const sealer = createLineSealer(blockBytes);
    for await (const chunk of this.#store.read(this.#key, kind)) {
      this.#index.signal?.throwIfAborted();
      sealer.push(chunk);
    }
    return sealer.finish();
  }

  async #headerDigest(): Promise<string> {
    const hash = createHash('sha256');
    for await (const chunk of this.#store.read(this.#key, 'cast', { start: 0, end: MAX_HEADER_BYTES })) {
      const end = chunk.indexOf(0x0a);
      hash.update(end < 0 ? chunk : chunk.subarray(0, end + 1));
      if (end >= 0) break;
    }
    return hash.digest('hex');
  }

  #fault(
    code: FindingCode,
    message: string,
    kind: ObjectKind | undefined,
    where: Omit<Finding, 'severity' | 'code' | 'message'> = {},
  ): void {
    const object = kind === undefined ? {} : { object: objectKey(this.#key, kind) };
    this.#findings.push(fault(code, message, { recording: this.#id, ...object, ...where }));
  }
}

function sameSeal(left: Seal | undefined, right: Seal | undefined): boolean {
  return (
    left?.chain === right?.chain && left?.bytes === right?.bytes && left?.blockBytes === right?.blockBytes
  );
}

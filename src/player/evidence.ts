/**
 * Client of the recorder's evidence (see `src/tsrecorder/serving/api-evidence.ts`). The description of the session and
 * the events are untrusted, because they come from uploading nodes and from the store. Invalid values are left out,
 * because they would prevent the page from showing the verdict.
 */
import type { CheckedEvidence } from '../wire/recorder-api/checked-evidence.ts';
import { hasFields, isRecord, isTexts, mayHaveFields } from '../wire/is-record.ts';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import type { Trust } from '../wire/recorder-api/recording-status.ts';
import { bytesAt } from './addresses.ts';
import { readJson } from './archive.ts';
import type { Ask } from './recorder-context.ts';

/** Evidence about a recording. */
export interface Evidence {
  readonly evidence: CheckedEvidence;
  readonly session?: SessionFacts;
  readonly gaps: readonly Gap[];
  readonly gapCount: number;
  readonly parts: number;
  readonly related: { readonly caller: readonly ListedRecording[]; readonly pod: readonly ListedRecording[] };
  readonly accesses?: readonly StoredEvent[];
  /** True if the list may lack accesses. */
  readonly accessesIncomplete?: boolean;
  readonly events?: readonly StoredEvent[];
  /** True if the list may lack events. */
  readonly eventsIncomplete?: boolean;
}

interface SessionFacts {
  readonly user?: string;
  readonly groups?: readonly string[];
  readonly argv?: readonly string[];
  readonly path?: string;
}

interface Gap {
  readonly at: number;
  readonly bytes?: number;
  readonly reason: string;
}

export interface StoredEvent extends Partial<Trust> {
  readonly event: {
    readonly timestamp: number;
    readonly action?: string;
    readonly source?: {
      readonly node?: string;
      readonly nodeUser?: string;
      readonly nodeTags?: readonly string[];
    };
    readonly request?: { readonly method?: string; readonly path?: string };
    readonly kubernetes?: {
      readonly Verb?: string;
      readonly Resource?: string;
      readonly Namespace?: string;
      readonly Name?: string;
    };
  };
}

/** Returns the evidence after a check, which reads the complete recording. */
export async function readEvidence(ask: Ask, id: string, signal: AbortSignal): Promise<Evidence> {
  const found = decodeEvidence(await readJson(ask, bytesAt(id, 'evidence?view=1'), signal));
  if (found === undefined) throw new Error('The response of the recorder cannot be read.');
  return found;
}

function decodeEvidence(body: unknown): Evidence | undefined {
  if (!isRecord(body) || !isChecked(body['evidence']) || !isRecord(body['related'])) return undefined;
  const { evidence, session, related, accesses, accessesIncomplete, events, eventsIncomplete } = body;
  const { signedBy, ...checked } = evidence;
  return {
    evidence: { ...checked, ...(isSigner(signedBy) ? { signedBy } : {}) },
    ...(isSession(session) ? { session } : {}),
    gaps: listOf(body['gaps'], isGap),
    gapCount: numberOf(body['gapCount']),
    parts: numberOf(body['parts']),
    related: {
      caller: listOf(related['caller'], isRecording),
      pod: listOf(related['pod'], isRecording),
    },
    ...(accesses === undefined ? {} : { accesses: listOf(accesses, isStoredEvent) }),
    ...(accessesIncomplete === true ? { accessesIncomplete } : {}),
    ...(events === undefined ? {} : { events: listOf(events, isStoredEvent) }),
    ...(eventsIncomplete === true ? { eventsIncomplete } : {}),
  };
}

const VERDICTS: ReadonlySet<unknown> = new Set(['verified', 'unverified', 'failed', 'none', 'running']);

function isChecked(value: unknown): value is CheckedEvidence {
  return (
    isRecord(value) &&
    VERDICTS.has(value['verdict']) &&
    hasFields(value, 'string', 'checkedAt') &&
    Array.isArray(value['findings']) &&
    value['findings'].every((finding) => isRecord(finding) && hasFields(finding, 'string', 'code', 'message'))
  );
}

function isSigner(value: unknown): value is NonNullable<CheckedEvidence['signedBy']> {
  return (
    isRecord(value) &&
    hasFields(value, 'string', 'key', 'owner', 'log') &&
    hasFields(value, 'number', 'entry') &&
    (value['adopted'] === undefined || isAdopted(value['adopted']))
  );
}

function isAdopted(value: unknown): boolean {
  return isRecord(value) && hasFields(value, 'string', 'key', 'log') && hasFields(value, 'number', 'entry');
}

function isSession(value: unknown): value is SessionFacts {
  return (
    isRecord(value) &&
    mayHaveFields(value, 'string', 'user', 'path') &&
    mayBeTexts(value['groups']) &&
    mayBeTexts(value['argv'])
  );
}

function isGap(value: unknown): value is Gap {
  return (
    isRecord(value) &&
    hasFields(value, 'number', 'at') &&
    hasFields(value, 'string', 'reason') &&
    mayHaveFields(value, 'number', 'bytes')
  );
}

function isRecording(value: unknown): value is ListedRecording {
  return decodeRecording(value) !== undefined;
}

function isStoredEvent(value: unknown): value is StoredEvent {
  if (
    !isRecord(value) ||
    !isRecord(value['event']) ||
    !mayHaveFields(value, 'string', 'trust', 'trustReason')
  )
    return false;
  const { timestamp, source, request, kubernetes } = value['event'];
  return (
    typeof timestamp === 'number' &&
    mayHaveFields(value['event'], 'string', 'action') &&
    (source === undefined ||
      (isRecord(source) &&
        mayHaveFields(source, 'string', 'node', 'nodeUser') &&
        mayBeTexts(source['nodeTags']))) &&
    (request === undefined || (isRecord(request) && mayHaveFields(request, 'string', 'method', 'path'))) &&
    (kubernetes === undefined ||
      (isRecord(kubernetes) && mayHaveFields(kubernetes, 'string', 'Verb', 'Resource', 'Namespace', 'Name')))
  );
}

function listOf<T>(value: unknown, isItem: (item: unknown) => item is T): readonly T[] {
  return Array.isArray(value) ? value.filter(isItem) : [];
}

function numberOf(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

function mayBeTexts(value: unknown): boolean {
  return value === undefined || isTexts(value);
}

/**
 * The journal beside a spooled cast: what the upload is, and everything in it that is no cast text.
 *
 * One JSON object per line. The first line says where the upload comes from; the others are the object lines of the
 * upload, each with the offset in the cast file at which it stood; the last one, if there is one, says that the upload
 * ended as it should. The journal is made durable before the cast bytes that follow, so after a crash the entries up to
 * the end of the cast, and only these, belong to it.
 */
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Neighbours } from '../../wire/recorder-api/upload-headers.ts';

/** The first line. Offsets of an upload count body bytes, so both lengths of the header line are kept. */
export interface SpoolMeta {
  readonly nodeId: string;
  /** Receive time as it stands in the key. */
  readonly time: string;
  readonly nodeName: string;
  /** IP address of the uploader. */
  readonly address: string;
  readonly protocol: 'v1' | 'v2';
  /** The session the uploader named, if it can be continued. */
  readonly token?: string;
  /** Of an upload that continues a session whose beginning is elsewhere. */
  readonly part?: { readonly number: number; readonly offset: number };
  /** Other recorders of the session, as the uploader told when it began here. */
  readonly neighbours?: Neighbours;
  /** Body bytes of the session that the stored header line stands for. */
  readonly uploadedHeaderBytes: number;
  readonly storedHeaderBytes: number;
}

/** An object line of the upload. */
export interface JournalNote {
  /** Offset in the cast file, always the start of a line. */
  readonly at: number;
  /** Length of the line in the upload, with its line feed; 0 for one that a continuation repeats. */
  readonly size: number;
  /** The object as uploaded, on one line, or undefined if it is not JSON. */
  readonly text: string | undefined;
}

export type JournalLine =
  | { readonly kind: 'meta'; readonly meta: SpoolMeta }
  | { readonly kind: 'note'; readonly note: JournalNote }
  | { readonly kind: 'end'; readonly castBytes: number };

/** The journal's first line, ending in a line feed. */
export function encodeMeta(meta: SpoolMeta): string {
  return `${JSON.stringify({ meta })}\n`;
}

/** An object line: verbatim if it is JSON, else `line` as a JSON string under `odd`. */
export function encodeNote({ at, size, text }: JournalNote, line: string): string {
  const content = text === undefined ? `"odd":${JSON.stringify(line)}` : `"note":${text}`;
  return `{"at":${at},"size":${size},${content}}\n`;
}

/** What {@link encodeNote} makes of an object line that is JSON, in pieces. @param line with its line feed */
export function encodeNoteBytes(
  { at, size }: Omit<JournalNote, 'text'>,
  line: Uint8Array,
): readonly (string | Uint8Array)[] {
  return [`{"at":${at},"size":${size},"note":`, line.subarray(0, -1), '}\n'];
}

/** A line of {@link encodeNote}, without its line feed, for another place in a cast. */
export function moveNote(line: string, at: number): string {
  return line.replace(/^\{"at":\d+/, `{"at":${at}`);
}

/** The mark of an upload that ended as it should, with a cast of `castBytes`. */
export function encodeEnd(castBytes: number): string {
  return `${JSON.stringify({ end: { castBytes } })}\n`;
}

/** How {@link encodeNote} begins a line. Notes can be megabytes long and are many, so they are not parsed as JSON. */
const NOTE = /^\{"at":(\d{1,15}),"size":(\d{1,15}),"(note|odd)":/;

/** @returns undefined for a line that is none of ours. */
export function parseJournalLine(line: string): JournalLine | undefined {
  const match = NOTE.exec(line);
  if (match !== null && line.endsWith('}')) {
    const text = match[3] === 'note' ? line.slice(match[0].length, -1) : undefined;
    return { kind: 'note', note: { at: Number(match[1]), size: Number(match[2]), text } };
  }
  const { meta, end }: { readonly meta?: unknown; readonly end?: unknown } = parseRecord(line);
  if (isRecord(meta)) return metaLine(meta);
  const castBytes = isRecord(end) ? end['castBytes'] : undefined;
  return typeof castBytes === 'number' ? { kind: 'end', castBytes } : undefined;
}

function parseRecord(line: string): Readonly<Record<string, unknown>> {
  const parsed = jsonOrUndefined(line);
  return isRecord(parsed) ? parsed : {};
}

type MetaFields = { readonly [Name in keyof SpoolMeta]?: unknown };

function metaLine(meta: Readonly<Record<string, unknown>>): JournalLine | undefined {
  const {
    nodeId,
    time,
    nodeName,
    address,
    protocol,
    token,
    part,
    neighbours,
    uploadedHeaderBytes,
    storedHeaderBytes,
  }: MetaFields = meta;
  if (
    typeof nodeId !== 'string' ||
    typeof time !== 'string' ||
    typeof nodeName !== 'string' ||
    typeof address !== 'string' ||
    (protocol !== 'v1' && protocol !== 'v2') ||
    typeof uploadedHeaderBytes !== 'number' ||
    typeof storedHeaderBytes !== 'number'
  ) {
    return undefined;
  }
  return {
    kind: 'meta',
    meta: {
      nodeId,
      time,
      nodeName,
      address,
      protocol,
      ...(typeof token === 'string' ? { token } : {}),
      ...partOf(part),
      ...neighboursOf(neighbours),
      uploadedHeaderBytes,
      storedHeaderBytes,
    },
  };
}

function partOf(part: unknown): Pick<SpoolMeta, 'part'> {
  if (!isRecord(part)) return {};
  const { number, offset }: { readonly number?: unknown; readonly offset?: unknown } = part;
  return typeof number === 'number' && typeof offset === 'number' ? { part: { number, offset } } : {};
}

function neighboursOf(neighbours: unknown): Pick<SpoolMeta, 'neighbours'> {
  if (!isRecord(neighbours)) return {};
  const { before, after }: { readonly before?: unknown; readonly after?: unknown } = neighbours;
  if (!Array.isArray(after) || !after.every((address) => typeof address === 'string')) return {};
  return { neighbours: { ...(typeof before === 'string' ? { before } : {}), after } };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

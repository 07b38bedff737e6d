/**
 * The journal of a spool: facts about the upload, and the object lines of the upload.
 *
 * Each line is a JSON object. The first line describes the upload. The following lines contain the object lines
 * (annotations of the upload), each with its offset in the recording. The last line marks a complete upload; it is
 * missing if the upload is incomplete. Each journal line becomes durable before the recording bytes that follow it.
 * After a crash, the journal therefore contains all lines whose offset is inside the recording.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';

const META_SCHEMA = z.object({
  nodeId: z.string(),
  /** Receive time, as in the recording key. */
  time: z.string(),
  nodeName: z.string(),
  /** IP address of the uploader. */
  address: z.string(),
  protocol: z.enum(['v1', 'v2']),
  /** Id that the uploader gave to the session. Only present if the session can be continued. */
  token: z.string().exactOptional(),
  /** Number and offset of the part, if the upload continues a session that started at another recorder. */
  part: z.object({ number: z.number(), offset: z.number() }).exactOptional(),
  /** Addresses of other recorders that may have parts of the session, as reported by the uploader. */
  neighbours: z
    .object({ before: z.string().exactOptional(), after: z.array(z.string()).readonly() })
    .exactOptional(),
  /** Length of the uploaded header line, which the stored header line replaces. */
  uploadedHeaderBytes: z.number(),
  storedHeaderBytes: z.number(),
});
/**
 * The first line of the spool journal. The stored header line differs from the uploaded header line, so this line
 * contains both lengths. Offsets in the upload count the length of the uploaded header line.
 */
export type SpoolMeta = z.infer<typeof META_SCHEMA>;

const LINE_SCHEMA = z.union([
  z.object({ meta: META_SCHEMA }).transform(({ meta }) => ({ kind: 'meta' as const, meta })),
  z
    .object({ end: z.object({ castBytes: z.number() }) })
    .transform(({ end }) => ({ kind: 'end' as const, ...end })),
]);

/** An object line of the upload. */
export interface JournalNote {
  /** Offset in the recording, always at the start of a line. */
  readonly at: number;
  /** Length of the line in the upload, with its line feed; 0 if a continuation repeats the line. */
  readonly size: number;
  /** The object as uploaded, on one line, or undefined if it is not JSON. */
  readonly text: string | undefined;
}

/** A parsed line of the journal. */
export type JournalLine = z.infer<typeof LINE_SCHEMA> | { readonly kind: 'note'; readonly note: JournalNote };

/** Encodes the first line of a journal, with its line feed. */
export function encodeMeta(meta: SpoolMeta): string {
  return `${JSON.stringify({ meta })}\n`;
}

/** Encodes an object line: unchanged if it is JSON, otherwise as a JSON string in `odd`. */
export function encodeNote({ at, size, text }: JournalNote, line: string): string {
  const content = text === undefined ? `"odd":${JSON.stringify(line)}` : `"note":${text}`;
  return `{"at":${at},"size":${size},${content}}\n`;
}

/**
 * Encodes an object line that is valid JSON, as {@link encodeNote} does, and returns the result in pieces.
 * @param line the line with its line feed
 */
export function encodeNoteBytes(
  { at, size }: Omit<JournalNote, 'text'>,
  line: Uint8Array,
): readonly (string | Uint8Array)[] {
  return [`{"at":${at},"size":${size},"note":`, line.subarray(0, -1), '}\n'];
}

/** Changes the offset in a line of {@link encodeNote}. `line` has no line feed. */
export function moveNote(line: string, at: number): string {
  return line.replace(/^\{"at":\d+/, `{"at":${at}`);
}

/** Encodes the line that marks a complete upload. */
export function encodeEnd(castBytes: number): string {
  return `${JSON.stringify({ end: { castBytes } })}\n`;
}

/**
 * Matches the start of a line of {@link encodeNote}. Notes are not parsed as JSON, because they may be several
 * megabytes long.
 */
const NOTE = /^\{"at":(\d{1,15}),"size":(\d{1,15}),"(note|odd)":/;

/** Parses a journal line. @returns undefined for an unknown line */
export function parseJournalLine(line: string): JournalLine | undefined {
  const match = NOTE.exec(line);
  if (match !== null && line.endsWith('}')) {
    const text = match[3] === 'note' ? line.slice(match[0].length, -1) : undefined;
    return { kind: 'note', note: { at: Number(match[1]), size: Number(match[2]), text } };
  }
  return LINE_SCHEMA.safeParse(jsonOrUndefined(line)).data;
}

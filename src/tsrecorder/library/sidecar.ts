/**
 * The JSON document next to a stored cast. A sidecar contains facts that asciicast cannot express. It also contains all
 * fields that lists of recordings show, so that the recorder can create a list without reading casts. If the sidecar is
 * missing, the facts come from the cast. This is the case for recordings of the reference, and for recordings that were
 * copied without their sidecar.
 */
import { z } from 'zod';
import { isShallow, jsonOrUndefined } from '../../wire/json-value.ts';
import {
  isRecordingResult,
  RECORDING_STATES,
  RESULT_VALUES,
  type RecordingResult,
} from '../../wire/recorder-api/recording-status.ts';
import { PART_SCHEMA } from './session-part.ts';

/** Version of new sidecars. */
const SIDECAR_VERSION = 1;

const node = { node: z.string(), nodeId: z.string() };

/** Schema of a recording's result. */
export const RESULT_SCHEMA = z.custom<RecordingResult>(
  (value) => typeof value === 'string' && isRecordingResult(value),
  `is not ${RESULT_VALUES}`,
);

/** Schema of a stored recording. */
export const RECORDING_SCHEMA = z.object({
  id: z.string(),
  key: z.string(),
  state: z.enum(RECORDING_STATES),
  startedAt: z.string(),
  durationSeconds: z.number().exactOptional(),
  bytes: z.number(),
  width: z.number(),
  height: z.number(),
  command: z.string().exactOptional(),
  kind: z.enum(['exec', 'attach', 'ssh', 'unknown']),
  source: z.object({
    ...node,
    user: z.string().exactOptional(),
    tags: z.array(z.string()).readonly().exactOptional(),
  }),
  destination: z.object(node),
  kubernetes: z.object({ namespace: z.string(), pod: z.string(), container: z.string() }).exactOptional(),
  cluster: z.string().exactOptional(),
  connectionId: z.string().exactOptional(),
  auditId: z.string().exactOptional(),
  result: RESULT_SCHEMA.exactOptional(),
  resultMessage: z.string().exactOptional(),
  problem: z.string().exactOptional(),
});

const schema = z.object({
  /** Version of this format. */
  tailcast: z.literal(SIDECAR_VERSION),
  recording: RECORDING_SCHEMA,
  cast: z.object({
    bytes: z.number(),
    resizeOrder: z.enum(['columnsFirst', 'rowsFirst']),
  }),
  upload: z.object({
    protocol: z.enum(['v1', 'v2']),
    /** IP address of the uploader. */
    address: z.string(),
    /** Number of upload bytes that the cast and the notes represent. */
    bodyBytes: z.number(),
    /** End of the upload: RFC 3339 in UTC. */
    endedAt: z.string(),
  }),
  /** Position of this part in its session. The field is missing in sidecars of recorders that do not know parts. */
  part: PART_SCHEMA.exactOptional(),
  /** The unchanged `session` annotation of the gateway. Responses contain it, so its nesting is limited. */
  session: z
    .unknown()
    .refine((value) => isShallow(value))
    .optional(),
  gaps: z
    .array(z.object({ at: z.number(), bytes: z.number().exactOptional(), reason: z.string() }))
    .readonly(),
  gapCount: z.number(),
  /** Number of lines of the upload that are JSON objects. The notes file next to the cast contains these lines. */
  noteCount: z.number(),
});
/** Content of a sidecar. */
export type Sidecar = z.infer<typeof schema>;

/** Encodes the document with one field per line. The JSON text `session` is copied unchanged. */
export function encodeSidecar(sidecar: Omit<Sidecar, 'session'>, session: string | undefined): string {
  const members = Object.entries({ ...sidecar }).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`,
  );
  if (session !== undefined) members.push(`  "session": ${session}`);
  return `{\n${members.join(',\n')}\n}\n`;
}

/** Parses a sidecar. @returns undefined if the text is not a sidecar of a supported version */
export function parseSidecar(text: string): Sidecar | undefined {
  return schema.safeParse(jsonOrUndefined(text)).data;
}

const anyVersion = z.looseObject({ tailcast: z.int().min(SIDECAR_VERSION + 1) });

/** Returns a sentence if the text is a sidecar in a newer format, otherwise undefined. */
export function newerSidecar(text: string): string | undefined {
  const version = anyVersion.safeParse(jsonOrUndefined(text)).data?.tailcast;
  if (version === undefined) return undefined;
  return (
    `a newer recorder wrote its sidecar (version ${version}; this one reads ${SIDECAR_VERSION}): upgrade to ` +
    'see all of it'
  );
}

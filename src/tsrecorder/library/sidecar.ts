/**
 * The JSON document beside a stored cast: everything about a recording that asciicast cannot hold, and everything a list
 * needs, so that listing reads no casts. A recording without one (of the reference, or copied in) is read from its cast.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';
import {
  isRecordingResult,
  RECORDING_STATES,
  RESULT_VALUES,
  type RecordingResult,
} from '../../wire/recorder-api/recording-status.ts';
import type { RecordingGap } from './session-facts.ts';
import type { SessionPart } from './session-part.ts';

/** Of the sidecars that are written. */
const SIDECAR_VERSION = 1;

export interface Sidecar {
  /** Version of this format. */
  readonly tailcast: typeof SIDECAR_VERSION;
  readonly recording: Recording;
  readonly cast: {
    readonly bytes: number;
    readonly resizeOrder: ResizeOrder;
  };
  readonly upload: {
    readonly protocol: 'v1' | 'v2';
    /** IP address of the uploader. */
    readonly address: string;
    /** Body bytes that the cast and the notes stand for. */
    readonly bodyBytes: number;
    /** When the upload ended: RFC 3339 in UTC. */
    readonly endedAt: string;
  };
  /** Which part of its session this is; most sessions have one. */
  readonly part?: SessionPart;
  /** The gateway's `session` annotation, verbatim. */
  readonly session?: unknown;
  readonly gaps: readonly RecordingGap[];
  readonly gapCount: number;
  /** Object lines of the upload; they stand in the notes file beside the cast. */
  readonly noteCount: number;
}

const node = { node: z.string(), nodeId: z.string() };

export const RESULT_SCHEMA = z.custom<RecordingResult>(
  (value) => typeof value === 'string' && isRecordingResult(value),
  `is not ${RESULT_VALUES}`,
);

/** A recording as it is written down. */
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
    tags: z.array(z.string()).exactOptional(),
  }),
  destination: z.object(node),
  kubernetes: z.object({ namespace: z.string(), pod: z.string(), container: z.string() }).exactOptional(),
  result: RESULT_SCHEMA.exactOptional(),
  resultMessage: z.string().exactOptional(),
  problem: z.string().exactOptional(),
});

const schema = z.object({
  tailcast: z.literal(SIDECAR_VERSION),
  recording: RECORDING_SCHEMA,
  cast: z.object({
    bytes: z.number(),
    resizeOrder: z.enum(['columnsFirst', 'rowsFirst']),
  }),
  upload: z.object({
    protocol: z.enum(['v1', 'v2']),
    address: z.string(),
    bodyBytes: z.number(),
    endedAt: z.string(),
  }),
  part: z
    .object({
      session: z.string(),
      number: z.int().min(1),
      offset: z.int().min(0),
      headerBytes: z.number(),
      headerEnd: z.number(),
      before: z.string().exactOptional(),
      after: z.array(z.string()).exactOptional(),
    })
    .exactOptional(),
  session: z.unknown().optional(),
  gaps: z.array(z.object({ at: z.number(), bytes: z.number().exactOptional(), reason: z.string() })),
  gapCount: z.number(),
  noteCount: z.number(),
}) satisfies z.ZodType<Sidecar>;

/**
 * The document, one member per line. `session` is JSON text that is kept as it is.
 */
export function encodeSidecar(sidecar: Omit<Sidecar, 'session'>, session: string | undefined): string {
  const members = Object.entries({ ...sidecar }).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`,
  );
  if (session !== undefined) members.push(`  "session": ${session}`);
  return `{\n${members.join(',\n')}\n}\n`;
}

/** @returns undefined when the text is no sidecar of a version that we know. */
export function parseSidecar(text: string): Sidecar | undefined {
  return schema.safeParse(jsonOrUndefined(text)).data;
}

const anyVersion = z.looseObject({ tailcast: z.int().min(SIDECAR_VERSION + 1) });

/** What to say of a sidecar that a newer recorder wrote; undefined when it is none. */
export function newerSidecar(text: string): string | undefined {
  const version = anyVersion.safeParse(jsonOrUndefined(text)).data?.tailcast;
  if (version === undefined) return undefined;
  return `a newer recorder wrote its sidecar (version ${version}; this one reads ${SIDECAR_VERSION}): upgrade to see all of it`;
}

/** The archive of `--recorder`: a running recorder's read API. */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { decodeRecording, TRUST_LEVELS, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { TailcastError, errorText } from '../errors.ts';
import {
  findRecording,
  MAX_LINE_BYTES,
  type Archive,
  type ArchiveQuery,
  type ExportSources,
} from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import type { ByteRange } from '../tsrecorder/files/file-range.ts';
import type { RemoteRecording } from '../tsrecorder/library/candidates.ts';
import type { DescribedPart } from '../tsrecorder/library/join-parts.ts';
import { RECORDING_SCHEMA } from '../tsrecorder/library/sidecar.ts';
import { parseRecordingId, type RecordingKey } from '../tsrecorder/store/key.ts';

const STATUS = z.object({ kind: z.literal('Status'), message: z.string() });
const PAGE = z.object({ recordings: z.array(z.unknown()), next: z.string().nullish() });

/**
 * Opens nothing yet: every call asks the recorder.
 *
 * @throws TailcastError `USAGE` when `base` is no http address; the archive's calls throw `RECORDER_UNREACHABLE`.
 */
export function openRecorderArchive(base: string, signal: AbortSignal): Archive {
  if (!URL.canParse(base) || !/^https?:/.test(base)) {
    throw new TailcastError('USAGE', `${base} is not an http:// or https:// address of a recorder`);
  }
  const archive: Archive = {
    async *list(query) {
      for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
        const page = PAGE.parse(
          await fetchJson(
            base,
            'recordings',
            { ...query, ...(cursor === undefined ? {} : { cursor }) },
            signal,
          ),
        );
        for (const recording of page.recordings) yield readRecording(recording, base);
        cursor = page.next ?? undefined;
      }
    },
    find: (id) => findRecording(archive, id),
    async *lines({ id, state }, { follow }) {
      const query = follow && state === 'open' ? { follow: '1' } : {};
      const response = await request(base, `recordings/${encodeURIComponent(id)}/cast`, query, signal);
      if (response.body !== null) yield* readTextLines(response.body, MAX_LINE_BYTES);
    },
    bytes: ({ id, bytes }) => ({
      bytes,
      async read(start, end, stop) {
        const headers = { range: `bytes=${start}-${end - 1}` };
        const asked = AbortSignal.any([signal, stop]);
        const path = `recordings/${encodeURIComponent(id)}/cast`;
        const response = await request(base, path, { view: '1' }, asked, headers);
        return new Uint8Array(await response.arrayBuffer());
      },
    }),
    withSources: (recording, use) => use(sourcesAt(base, recording, signal)),
  };
  return archive;
}

/** What the read API gives out about a recording. */
function sourcesAt(base: string, recording: ListedRecording, signal: AbortSignal): ExportSources {
  const path = `recordings/${encodeURIComponent(recording.id)}`;
  /** Undefined when there is no such thing; waits while it is made. */
  const get = async (name: string, query: ArchiveQuery): Promise<Response | undefined> => {
    for (;;) {
      const response = await optional(request(base, `${path}/${name}`, query, signal));
      if (response?.status !== 202) return response;
      await response.body?.cancel();
      await sleep(ASK_AGAIN_MS, undefined, { signal });
    }
  };
  const bytes = async (response: Response | undefined): Promise<Uint8Array | undefined> =>
    response === undefined ? undefined : new Uint8Array(await response.arrayBuffer());
  const watched = { view: '1' };
  return {
    recording,
    async *cast() {
      const { body } = await request(base, `${path}/cast`, {}, signal);
      if (body !== null) yield* body;
    },
    sidecar: async () => bytes(await get('sidecar', {})),
    notes: async () => (await get('notes', {}))?.body ?? undefined,
    evidence: () => fetchJson(base, `${path}/evidence`, watched, signal),
    transcript: async () => bytes(await get('transcript', watched)),
  };
}

async function optional(asked: Promise<Response>): Promise<Response | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
    throw error;
  }
}

const ASK_AGAIN_MS = 500;

const LISTED = RECORDING_SCHEMA.extend({
  trust: z.enum(TRUST_LEVELS).exactOptional(),
  trustReason: z.string().exactOptional(),
  part: z
    .object({
      session: z.string(),
      number: z.number(),
      from: z.number(),
      to: z.number(),
      headerBytes: z.number(),
      headerEnd: z.number(),
      state: RECORDING_SCHEMA.shape.state,
      problem: z.string().exactOptional(),
      before: z.string().exactOptional(),
      after: z.array(z.string()).exactOptional(),
    })
    .exactOptional(),
});
type ListedPart = z.infer<typeof LISTED>;
const PAGE_SIZE = 500;

/** Everything that a recorder has, for an archive that is in several places. Sessions that are open are not continued there. */
export function elsewhereAtRecorder(
  base: string,
  signal: AbortSignal,
): () => Promise<readonly RemoteRecording[]> {
  return async () => {
    const found: RemoteRecording[] = [];
    for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
      const query = { limit: String(PAGE_SIZE), ...(cursor === undefined ? {} : { cursor }) };
      const page = PAGE.parse(await fetchJson(base, 'recordings', query, signal));
      for (const item of page.recordings) {
        const recording = LISTED.parse(item);
        const key = parseRecordingId(recording.id);
        if (key === undefined) continue;
        const describe = async (): Promise<DescribedPart> => describeListed(base, key, recording, signal);
        found.push({ key, sessionMark: recording.part?.session, describe });
      }
      cursor = page.next ?? undefined;
    }
    return found;
  };
}

function describeListed(
  base: string,
  key: RecordingKey,
  listed: ListedPart,
  signal: AbortSignal,
): DescribedPart {
  const { part: place, problem: _, ...about } = listed;
  // what is missing is told again, of what all of them have together
  const { state, problem } = place ?? listed;
  const recording = { ...about, state, ...(problem === undefined ? {} : { problem }) };
  const path = `recordings/${encodeURIComponent(recording.id)}`;
  const cast = {
    end: () => recording.bytes,
    async *read({ start, end }: ByteRange) {
      if (end <= start) return;
      const { body } = await request(base, `${path}/cast`, {}, signal, {
        range: `bytes=${start}-${end - 1}`,
      });
      if (body !== null) yield* body;
    },
    live: undefined,
  };
  const notes = async function* (): AsyncGenerator<Uint8Array> {
    const answer = await optional(request(base, `${path}/notes`, {}, signal));
    if (answer !== undefined && answer.body !== null) yield* answer.body;
  };
  const {
    from = 0,
    to = recording.bytes,
    number = 1,
    headerBytes = 0,
    headerEnd = 0,
    before,
    after,
  } = place ?? {};
  return {
    entry: {
      recording,
      key,
      resizeOrder: 'columnsFirst',
      pieces: [{ ...cast, start: 0 }],
      live: undefined,
      version: undefined,
    },
    part: {
      session: place?.session ?? recording.id,
      number,
      offset: from,
      headerBytes,
      headerEnd,
      ...(before === undefined ? {} : { before }),
      ...(after === undefined ? {} : { after }),
    },
    files: { cast, notes },
    bodyEnd: to,
    gapCount: 0,
  };
}

/** Asks the read API. @throws TailcastError `RECORDER_UNREACHABLE`, `USAGE` with what the recorder says of the question */
export async function fetchJson(
  base: string,
  path: string,
  query: ArchiveQuery,
  signal: AbortSignal,
): Promise<unknown> {
  return (await request(base, path, query, signal)).json();
}

async function request(
  base: string,
  path: string,
  query: ArchiveQuery,
  signal: AbortSignal,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  const url = new URL(`api/v1/${path}`, base.endsWith('/') ? base : `${base}/`);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  let response: Response;
  try {
    response = await fetch(url, { signal, headers });
  } catch (error) {
    if (signal.aborted) throw error;
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    throw new TailcastError('RECORDER_UNREACHABLE', `${base}: ${errorText(cause)}`, { cause: error });
  }
  if (response.ok) return response;
  const told = sentenceOf((await response.text().catch(() => '')).slice(0, 4096));
  if (response.status === 400) throw new TailcastError('USAGE', told.replace(/^wrong usage: /, ''));
  if (response.status === 404) throw new TailcastError('RECORDING_UNKNOWN', path);
  throw new TailcastError('RECORDER_UNREACHABLE', `${base} answered ${response.status}: ${told}`);
}

/** What the answer of a gateway says is a `Status`, whose message is for people. */
function sentenceOf(body: string): string {
  return STATUS.safeParse(jsonOrUndefined(body)).data?.message ?? body.slice(0, 500);
}

function readRecording(value: unknown, base: string): ListedRecording {
  const recording = decodeRecording(value);
  if (recording !== undefined) return recording;
  throw new TailcastError('RECORDER_UNREACHABLE', `${base}: what it lists are no recordings`);
}

/** The archive of `--recorder`: the read API of a running recorder. */
import { STATUS_CODES } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { readBounded } from '../async/read-bounded.ts';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { TRUST_LEVELS } from '../wire/recorder-api/recording-status.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { ERROR_TABLE, TailcastError, errorText, type ErrorCode } from '../errors.ts';
import {
  findRecording,
  MAX_LINE_BYTES,
  type Archive,
  type ArchiveQuery,
  type ExportSources,
} from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { plain } from './output.ts';
import type { ByteRange } from '../tsrecorder/files/file-range.ts';
import type { RemoteRecording } from '../tsrecorder/library/sessions.ts';
import type { DescribedPart } from '../tsrecorder/library/join-parts.ts';
import { RECORDING_SCHEMA } from '../tsrecorder/library/sidecar.ts';
import { parseRecordingId, type RecordingKey } from '../tsrecorder/store/key.ts';

/** An error of a recorder, or the `Status` of a gateway in front of it. */
const FAILURE = z.object({
  message: z.string(),
  code: z.union([z.string(), z.number()]).optional(),
  details: z
    .object({ causes: z.array(z.object({ reason: z.string(), message: z.string() })).optional() })
    .nullish(),
});
const PAGE = z.object({
  recordings: z.array(z.unknown()),
  next: z.string().nullish(),
  noRuleFor: z.string().nullish(),
});

/**
 * Returns the archive without sending a request. Each call of a method sends a request to the recorder.
 *
 * @throws TailcastError `USAGE` if `base` is not an HTTP address; the archive's calls throw `RECORDER_UNREACHABLE`
 */
export function openRecorderArchive(base: string, signal: AbortSignal): Archive {
  if (!URL.canParse(base) || !/^https?:/.test(base)) {
    throw new TailcastError('USAGE', `${base} is not an http:// or https:// address of a recorder`);
  }
  let noRuleFor: string | undefined;
  const archive: Archive = {
    noRuleFor: () => noRuleFor,
    async *list(query) {
      for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
        const ask = { ...query, ...(cursor === undefined ? {} : { cursor }) };
        const page = await fetchJson(base, 'recordings', ask, signal, PAGE);
        noRuleFor = page.noRuleFor ?? undefined;
        for (const recording of page.recordings) yield readRecording(recording, base);
        cursor = page.next ?? undefined;
      }
    },
    find: (id) => findRecording(archive, id),
    async *lines({ id, state }, { follow }) {
      const query = follow && state === 'running' ? { follow: '1' } : {};
      const response = await requestApi(base, `recordings/${encodeURIComponent(id)}/cast`, query, signal);
      yield* readTextLines(readBody(response, base, signal), MAX_LINE_BYTES);
    },
    bytes: ({ id, bytes }) => ({
      bytes,
      async read(start, end, stop) {
        const headers = { range: `bytes=${start}-${end - 1}` };
        const asked = AbortSignal.any([signal, stop]);
        const path = `recordings/${encodeURIComponent(id)}/cast`;
        const response = await requestApi(base, path, { view: '1' }, asked, { headers });
        return collect(response, base, asked, end - start);
      },
    }),
    withSources: (recording, use) => use(sourcesAt(base, recording, signal)),
  };
  return archive;
}

/** Returns functions that read the data of a recording from the read API, for an export. */
function sourcesAt(base: string, recording: ListedRecording, signal: AbortSignal): ExportSources {
  const path = `recordings/${encodeURIComponent(recording.id)}`;
  /**
   * Requests a document of the recording. Returns undefined for status 404. Repeats the request while the recorder
   * prepares the document.
   */
  const get = async (name: string, query: ArchiveQuery): Promise<Response | undefined> => {
    for (;;) {
      const response = await optional(requestApi(base, `${path}/${name}`, query, signal));
      if (response?.status !== 202) return response;
      await response.body?.cancel();
      await sleep(POLL_MS, undefined, { signal });
    }
  };
  const bytes = async (response: Response | undefined): Promise<Uint8Array | undefined> =>
    response === undefined ? undefined : collect(response, base, signal);
  const watched = { view: '1' };
  return {
    recording,
    async *cast() {
      yield* readBody(await requestApi(base, `${path}/cast`, {}, signal), base, signal);
    },
    sidecar: async () => bytes(await get('sidecar', {})),
    async notes() {
      const response = await get('notes', {});
      return response === undefined ? undefined : readBody(response, base, signal);
    },
    evidence: () => fetchJson(base, `${path}/evidence`, watched, signal, z.unknown()),
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

const POLL_MS = 500;

const LISTED = RECORDING_SCHEMA.extend({
  trust: z.enum(TRUST_LEVELS).exactOptional(),
  trustReason: z.string().exactOptional(),
  review: z
    .object({ tags: z.array(z.string()), reviewedBy: z.string().exactOptional(), comments: z.number() })
    .exactOptional(),
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
const LISTED_PAGE = z.object({ recordings: z.array(LISTED), next: z.string().nullish() });
const PAGE_SIZE = 500;
/** Maximum size of the list in a joined archive, in bytes: about 200,000 recordings. The list stays in memory. */
const MAX_LIST_BYTES = 128 * 1024 * 1024;
/**
 * Minimum number of bytes that a page counts for. Because of this minimum, `MAX_LIST_BYTES` also limits the number of
 * empty pages.
 */
const LEAST_PAGE_BYTES = 4096;

/** Returns the content of a recorder, for a joined archive of several stores and recorders. */
export function remoteOfRecorder(
  base: string,
  signal: AbortSignal,
): () => Promise<readonly RemoteRecording[]> {
  return async () => {
    const found: RemoteRecording[] = [];
    let left = MAX_LIST_BYTES;
    const tooLarge = (): Error => unreachable(base, 'the list is too large: read only this recorder');
    for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
      const query = { limit: String(PAGE_SIZE), ...(cursor === undefined ? {} : { cursor }) };
      const response = await requestApi(base, 'recordings', query, signal);
      const text = await readBounded(readBody(response, base, signal), left, tooLarge);
      left -= Math.max(text.length, LEAST_PAGE_BYTES);
      const page = decodeDocument(jsonOrUndefined(textOf(text)), base, LISTED_PAGE);
      for (const recording of page.recordings) {
        const key = parseRecordingId(recording.id);
        if (key === undefined) throw notARecorder(base);
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
  // missing parts are not reported here, because another store or recorder may have them; the joined archive reports
  // them
  const { state, problem } = place ?? listed;
  const recording = { ...about, state, ...(problem === undefined ? {} : { problem }) };
  const path = `recordings/${encodeURIComponent(recording.id)}`;
  const cast = {
    end: () => recording.bytes,
    async *read({ start, end }: ByteRange) {
      if (end <= start) return;
      const headers = { range: `bytes=${start}-${end - 1}` };
      yield* readBody(await requestApi(base, `${path}/cast`, {}, signal, { headers }), base, signal);
    },
    live: undefined,
  };
  const notes = async function* (): AsyncGenerator<Uint8Array> {
    const response = await optional(requestApi(base, `${path}/notes`, {}, signal));
    if (response !== undefined) yield* readBody(response, base, signal);
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
    ...(place === undefined ? {} : { mark: place.session }),
    bodyEnd: to,
    gapCount: 0,
  };
}

/**
 * Requests a JSON document from the read API.
 *
 * @throws TailcastError as {@link requestApi}; `RECORDER_UNREACHABLE` for a document that `schema` rejects
 */
export async function fetchJson<Schema extends z.ZodType>(
  base: string,
  path: string,
  query: ArchiveQuery,
  signal: AbortSignal,
  schema: Schema,
): Promise<z.infer<Schema>> {
  return decodeBody(await requestApi(base, path, query, signal), base, schema);
}

/** @throws TailcastError `RECORDER_UNREACHABLE` for a body that is too large or that `schema` rejects */
export async function decodeBody<Schema extends z.ZodType>(
  response: Response,
  base: string,
  schema: Schema,
): Promise<z.infer<Schema>> {
  const bytes = await collect(response, base);
  return decodeDocument(jsonOrUndefined(textOf(bytes)), base, schema);
}

/** @throws TailcastError `RECORDER_UNREACHABLE` for a document that `schema` rejects */
export function decodeDocument<Schema extends z.ZodType>(
  value: unknown,
  base: string,
  schema: Schema,
): z.infer<Schema> {
  const found = schema.safeParse(value);
  if (found.success) return found.data;
  throw notARecorder(base);
}

/**
 * Sends a request to the read API.
 *
 * @throws TailcastError `RECORDER_UNREACHABLE`, `RECORDING_UNKNOWN` for 404, `USAGE` for 400, or the code in the
 *   recorder's response
 */
export async function requestApi(
  base: string,
  path: string,
  query: ArchiveQuery,
  signal: AbortSignal,
  init: { readonly method?: string; readonly headers?: Readonly<Record<string, string>> } = {},
): Promise<Response> {
  const url = new URL(`api/v1/${path}`, base.endsWith('/') ? base : `${base}/`);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  let response: Response;
  try {
    response = await fetch(url, { ...init, signal });
  } catch (error) {
    throw asUnreachable(error, base, signal);
  }
  if (response.ok) return response;
  throw await failureOf(response, base);
}

async function failureOf(response: Response, base: string): Promise<TailcastError> {
  const { status } = response;
  const body = await collect(response, base, undefined, MAX_FAILURE).catch(() => undefined);
  const { message, code, details } = FAILURE.safeParse(jsonOrUndefined(textOf(body))).data ?? {};
  const cause = details?.causes?.find(({ reason }) => reason === 'TailcastCode')?.message;
  // the response may come from another server, for example a proxy, and its text must not control the terminal
  const detail = message === undefined ? undefined : plain(message);
  if (status === 400) return new TailcastError('USAGE', detail?.replace(/^wrong usage: /, ''));
  if (cause === 'ACCESS_REQUEST_UNKNOWN') return new TailcastError(cause, detail);
  if (status === 404) return new TailcastError('RECORDING_UNKNOWN', detail);
  const known = codeOf(cause ?? code, status);
  if (known !== undefined) return new TailcastError(known, detail);
  return unreachable(base, `it answered ${status} ${detail ?? STATUS_CODES[status] ?? ''}`);
}

function codeOf(named: unknown, status: number): ErrorCode | undefined {
  const found = Object.entries(ERROR_TABLE).find(
    ([code, entry]) => code === named && entry.status === status,
  );
  const code = found?.[0];
  return isErrorCode(code) && code !== 'CONFIG_INVALID' ? code : undefined;
}

function isErrorCode(code: string | undefined): code is ErrorCode {
  return code !== undefined && Object.hasOwn(ERROR_TABLE, code);
}

/** Yields the bytes of a response body. @throws TailcastError `RECORDER_UNREACHABLE` */
export async function* readBody(
  response: Response,
  base: string,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  try {
    yield* response.body;
  } catch (error) {
    throw asUnreachable(error, base, signal);
  }
}

/** @throws TailcastError `RECORDER_UNREACHABLE` for a body that is larger than `maxBytes` */
function collect(
  response: Response,
  base: string,
  signal?: AbortSignal,
  maxBytes = MAX_DOCUMENT,
): Promise<Uint8Array> {
  const tooLarge = (): Error => unreachable(base, 'the response is too large');
  return readBounded(readBody(response, base, signal), maxBytes, tooLarge);
}

function textOf(bytes: Uint8Array | undefined): string {
  return new TextDecoder().decode(bytes);
}

/** Maximum size of a document, in bytes: more than the largest transcript or page of events of a recorder. */
const MAX_DOCUMENT = 256 * 1024 * 1024;

/** Maximum size of an error body, in bytes. */
const MAX_FAILURE = 16_384;

function asUnreachable(error: unknown, base: string, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true || error instanceof TailcastError) return error;
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return new TailcastError('RECORDER_UNREACHABLE', `${base}: ${errorText(cause)}`, { cause: error });
}

/** @param problem reason why the recorder at `base` cannot be used */
export function unreachable(base: string, problem: string): TailcastError {
  return new TailcastError('RECORDER_UNREACHABLE', `${base}: ${problem}`);
}

function notARecorder(base: string): TailcastError {
  return unreachable(base, 'the response is not one of a tailcast recorder');
}

function readRecording(value: unknown, base: string): ListedRecording {
  const recording = decodeRecording(value);
  if (recording !== undefined) return recording;
  throw notARecorder(base);
}

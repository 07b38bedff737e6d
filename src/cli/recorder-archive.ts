/** The archive of `--recorder`: a running recorder's read API. */
import { z } from 'zod';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { TailcastError, errorText } from '../errors.ts';
import { findRecording, type Archive, type ArchiveQuery } from './archive.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';

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
  };
  return archive;
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

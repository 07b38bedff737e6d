/** Where `ls` and `play` find recordings: a recorder's read API, or a recorder's directory. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { defaultStateDirectory } from '../config/environment.ts';
import { TailcastError, errorText } from '../errors.ts';
import { splitLines } from './lines.ts';
import type { CommandContext } from '../config/command-context.ts';

const RECORDING = z.object({
  id: z.string(),
  state: z.string(),
  startedAt: z.string(),
  durationSeconds: z.number().optional(),
  bytes: z.number(),
  command: z.string().optional(),
  kind: z.string(),
  source: z.object({
    node: z.string(),
    user: z.string().optional(),
    tags: z.array(z.string()).readonly().optional(),
  }),
  kubernetes: z.object({ namespace: z.string(), pod: z.string(), container: z.string() }).optional(),
  exitCode: z.number().optional(),
  problem: z.string().optional(),
});
const PAGE = z.object({ recordings: z.array(z.unknown()), next: z.string().nullish() });

/** The fields of a recording that the tools show. */
export type ListedRecording = z.infer<typeof RECORDING>;

/** What `ls` narrows the list to, as query parameters of the read API. */
export type ArchiveQuery = Readonly<Record<string, string>>;

export interface Archive {
  /** Newest first; asks for further pages as they are needed. */
  list(query: ArchiveQuery): AsyncIterable<ListedRecording>;
  /** The recording with this id, the only one whose id begins so, or the newest for `latest`. */
  find(id: string): Promise<ListedRecording>;
  /** The cast, line by line. With `follow`, a running session's lines as they come, until it ends. */
  lines(recording: ListedRecording, options: { readonly follow: boolean }): AsyncIterable<string>;
}

/** What the demo leaves in its directory so that the tools find it. */
export const DEMO_NOTE = z.object({ recorder: z.string(), store: z.string() });

/**
 * Opens the archive that the options, the environment or a demo of this person name.
 *
 * @throws TailcastError `USAGE` when nobody names one, `RECORDER_UNREACHABLE` when it does not answer.
 */
export async function openArchive(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<Archive> {
  const url = textOf(options['recorder']) ?? context.environment.get('TAILCAST_RECORDER');
  const store = textOf(options['store']) ?? context.environment.get('TAILCAST_STORE');
  if (url !== undefined && textOf(options['store']) === undefined) return openRecorder(url, context.signal);
  if (store !== undefined) return openStore(store, context.signal);
  const demo = await readDemoNote(context.environment);
  if (demo === undefined) {
    throw new TailcastError(
      'USAGE',
      'no recorder is named: give --recorder <url> or --store <directory>, set TAILCAST_RECORDER, or run the demo first',
    );
  }
  return (await answers(demo.recorder))
    ? openRecorder(demo.recorder, context.signal)
    : openStore(demo.store, context.signal);
}

async function openStore(directory: string, signal: AbortSignal): Promise<Archive> {
  const { openDirectoryArchive } = await import('./directory-archive.ts');
  return openDirectoryArchive(directory, signal);
}

function openRecorder(base: string, signal: AbortSignal): Archive {
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
        for (const recording of page.recordings) yield RECORDING.parse(recording);
        cursor = page.next ?? undefined;
      }
    },
    find: (id) => findRecording(archive, id),
    async *lines({ id, state }, { follow }) {
      const query = follow && state === 'open' ? { follow: '1' } : {};
      const response = await request(base, `recordings/${encodeURIComponent(id)}/cast`, query, signal);
      if (response.body !== null) yield* splitLines(response.body);
    },
  };
  return archive;
}

/** Finds by id, by the beginning of an id, or `latest`. */
export async function findRecording(archive: Pick<Archive, 'list'>, id: string): Promise<ListedRecording> {
  const found: ListedRecording[] = [];
  for await (const recording of archive.list({})) {
    if (recording.id === id || id === 'latest') return recording;
    if (recording.id.startsWith(id) || recording.id.split('_')[1]?.startsWith(id) === true)
      found.push(recording);
  }
  const [only] = found;
  if (only === undefined) throw new TailcastError('RECORDING_UNKNOWN', id);
  if (found.length > 1) {
    const few = found.slice(0, 5).map((recording) => recording.id);
    throw new TailcastError(
      'USAGE',
      `${id} is the beginning of ${found.length} recordings: ${few.join(', ')}`,
    );
  }
  return only;
}

async function fetchJson(
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
): Promise<Response> {
  const url = new URL(`api/v1/${path}`, base.endsWith('/') ? base : `${base}/`);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  let response: Response;
  try {
    response = await fetch(url, { signal });
  } catch (error) {
    if (signal.aborted) throw error;
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    throw new TailcastError('RECORDER_UNREACHABLE', `${base}: ${errorText(cause)}`, { cause: error });
  }
  if (response.ok) return response;
  const told = (await response.text().catch(() => '')).slice(0, 500);
  if (response.status === 404) throw new TailcastError('RECORDING_UNKNOWN', path);
  throw new TailcastError('RECORDER_UNREACHABLE', `${base} answered ${response.status}: ${told}`);
}

async function answers(base: string): Promise<boolean> {
  const probe = await fetch(new URL('healthz', base), { signal: AbortSignal.timeout(1000) }).catch(
    () => undefined,
  );
  await probe?.body?.cancel();
  return probe?.ok === true;
}

async function readDemoNote(
  environment: ReadonlyMap<string, string>,
): Promise<z.infer<typeof DEMO_NOTE> | undefined> {
  const path = join(defaultStateDirectory(environment), 'demo', 'demo.json');
  const source = await readFile(path, 'utf8').catch(() => undefined);
  if (source === undefined) return undefined;
  const note = DEMO_NOTE.safeParse(JSON.parse(source));
  return note.success ? note.data : undefined;
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

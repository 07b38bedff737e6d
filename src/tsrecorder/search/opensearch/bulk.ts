/**
 * Sends documents to OpenSearch in bulk requests, and retries while the server is overloaded. The caller checks the
 * status of each document.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { createBackoff } from '../../../async/backoff.ts';
import type { SessionNames } from '../../../search/search-index.ts';
import { isBusyStatus, ServerError, type SearchServer } from './client.ts';
import { documentId } from './mapping.ts';

/** A document to write or delete. */
export interface Action {
  readonly index: 'index' | 'delete';
  readonly session: string;
  readonly k?: number;
  readonly stamp: number;
  readonly document?: Readonly<Record<string, unknown>>;
}

export interface BulkOptions {
  readonly server: SearchServer;
  readonly alias: string;
  /** Checks the name of the index in a response. @throws Error if it is not the expected index */
  readonly expectName: (index: string | undefined) => void;
  readonly patienceMs: number;
}

const MAX_BULK_BYTES = 4 * 1024 ** 2;
const MAX_BULK = 2000;
const BULK_MS = 60_000;
const BACKOFF = { baseMs: 100, maxMs: 5000 };
const CONFLICT = 409;
/** Status of a document that the server never accepts. */
const UNFIT = 400;
const BULK_ANSWER = z.object({
  items: z.array(z.record(z.string(), z.object({ status: z.number(), _index: z.string().optional() }))),
});

/**
 * Sends documents. Sends documents again while an overloaded server rejects them. @returns the final status of each
 * document, in order. @throws ServerError, Error
 */
export async function sendBulk(options: BulkOptions, actions: readonly Action[]): Promise<readonly number[]> {
  const statuses: number[] = [];
  let lines: string[] = [];
  let first = 0;
  let bytes = 0;
  const flush = async (end: number): Promise<void> => {
    if (lines.length === 0) return;
    for (const [at, status] of (await sendAll(options, lines)).entries()) statuses[first + at] = status;
    [lines, first, bytes] = [[], end, 0];
  };
  for (const [at, action] of actions.entries()) {
    const line = linesOf(action);
    if (lines.length >= MAX_BULK || (bytes > 0 && bytes + line.length > MAX_BULK_BYTES)) await flush(at);
    lines.push(line);
    bytes += line.length;
  }
  await flush(actions.length);
  return statuses;
}

/** Calls `act` with increasing pauses while the server is overloaded. @throws the error of `act` */
export async function patiently<T>(patienceMs: number, act: () => Promise<T>): Promise<T> {
  const backoff = createBackoff(BACKOFF, Math.random);
  for (let waited = 0; ;) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof ServerError) || !error.isBusy || waited >= patienceMs) throw error;
      const ms = backoff.next();
      waited += ms;
      await delay(ms);
    }
  }
}

/** Sends the documents again that the overloaded server rejected. */
async function sendAll(options: BulkOptions, lines: readonly string[]): Promise<readonly number[]> {
  const statuses: number[] = [];
  let left = lines.map((_, at) => at);
  await patiently(options.patienceMs, async () => {
    const answered = await send(
      options,
      left.map((at) => lines[at] ?? ''),
    );
    for (const [index, status] of answered.entries()) statuses[left[index] ?? 0] = status;
    left = left.filter((at) => isBusyStatus(statuses[at] ?? 0));
    const [busy] = left;
    if (busy !== undefined) throw new ServerError(statuses[busy] ?? 0, []);
  });
  return statuses;
}

async function send(
  { server, alias, expectName }: BulkOptions,
  lines: readonly string[],
): Promise<readonly number[]> {
  const { items } = BULK_ANSWER.parse(
    await server.ask({
      method: 'POST',
      // Without this option, the server would create an index if the alias is missing.
      path: `/${encodeURIComponent(alias)}/_bulk?require_alias=true&filter_path=items.*.status,items.*._index`,
      body: lines.join(''),
      timeoutMs: BULK_MS,
    }),
  );
  if (items.length !== lines.length) throw new Error('OpenSearch answered for another number of documents');
  return items.map((item) => {
    const [{ status, _index: index } = { status: 0 }] = Object.values(item);
    if (status === 404 && index === alias) throw new ServerError(404, ['index_not_found_exception']);
    if (index !== alias) expectName(index);
    return status;
  });
}

/** Returns the action that writes a document. `k`: number of the moment; undefined for the document of the session. */
export function put(
  { id }: SessionNames,
  stamp: number,
  document: Readonly<Record<string, unknown>>,
  k?: number,
): Action {
  return { index: 'index', session: id, stamp, document, ...(k === undefined ? {} : { k }) };
}

/** Returns the actions that delete moments `[from, to)`. */
export function remove(session: string, stamp: number, from: number, to: number): readonly Action[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, at) => ({
    index: 'delete',
    session,
    stamp,
    k: from + at,
  }));
}

function linesOf({ index, session, k, stamp, document }: Action): string {
  const head = {
    [index]: { _id: documentId(session, k), routing: session, version: stamp, version_type: 'external_gte' },
  };
  return `${JSON.stringify(head)}\n${document === undefined ? '' : `${JSON.stringify(document)}\n`}`;
}

/** True if the server accepted the document. */
export function wasWritten(status: number | undefined): boolean {
  return status !== undefined && status < 300;
}

/** Checks that each document was written, exists in a newer version, or was already deleted. @throws Error otherwise */
export function requireOk(statuses: readonly number[]): void {
  const refused = statuses.find((status) => !isDone(status));
  if (refused !== undefined)
    throw new Error(`OpenSearch refused the document of a session with status ${refused}`);
}

/**
 * Finds documents that the server rejects permanently.
 *
 * @returns true for each such document. @throws Error if the server rejects a document for another reason. The caller
 *   then sends all documents again
 */
export function unfitOf(statuses: readonly number[]): readonly boolean[] {
  requireOk(statuses.filter((status) => status !== UNFIT));
  return statuses.map((status) => status === UNFIT);
}

function isDone(status: number): boolean {
  return status < 300 || status === CONFLICT || status === 404;
}

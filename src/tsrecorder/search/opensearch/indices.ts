/**
 * Names of the indices. `<name>-<layout version>` is the alias of the current index. `<name>-<layout version>.next` is
 * the alias of the index that is being built. The name of an index ends with a number. If several recorders create an
 * index at the same time, one succeeds, and the others find the created index.
 */
import { z } from 'zod';
import { LAYOUT_OF_SERVER } from '../layout.ts';
import { ServerError, type SearchServer } from './client.ts';
import { indexBody } from './mapping.ts';
import type { ServerIndex } from './server-index.ts';

type Named = Pick<ServerIndex, 'name' | 'which'>;

const ALIASED = z.record(z.string(), z.unknown());
const TRIES = 5;
const CHECK_MS = 5000;

/** Returns the alias of an index. */
export function aliasOf({ name, which }: Named): string {
  return `${name}-${LAYOUT_OF_SERVER}${which === 'next' ? '.next' : ''}`;
}

/** Returns the index of an alias. @throws Error if the alias has several indices */
export async function indexOf(server: SearchServer, alias: string): Promise<string | undefined> {
  const path = `/_alias/${encodeURIComponent(alias)}`;
  const found = await server.ask({ method: 'GET', path, timeoutMs: CHECK_MS }).catch((error: unknown) => {
    if (error instanceof ServerError && error.status === 404) return {};
    throw error;
  });
  const names = Object.keys(ALIASED.parse(found));
  if (names.length > 1) throw new Error(`the alias ${alias} has several indices`);
  return names[0];
}

/** Finds or creates the index. @returns its name */
export async function openIndex(server: SearchServer, index: ServerIndex): Promise<string> {
  const alias = aliasOf(index);
  for (let tries = 0; tries < TRIES; tries += 1) {
    const found = await indexOf(server, alias);
    if (found !== undefined) return found;
    const made = await nextName(server, index);
    try {
      await server.ask({
        method: 'PUT',
        path: `/${encodeURIComponent(made)}`,
        body: { ...indexBody(index.shards), aliases: { [alias]: {} } },
      });
    } catch (error) {
      // Another recorder has created the index in the meantime.
      if (!(error instanceof ServerError) || !error.kinds.includes('resource_already_exists_exception'))
        throw error;
    }
  }
  throw new Error(`an index for ${alias} exists without this alias: remove the index, or give it the alias`);
}

/** Replaces the current index by the next index atomically, and deletes the old index. */
export async function swapIndex(server: SearchServer, name: string): Promise<void> {
  const [alias, beside] = [aliasOf({ name, which: 'current' }), aliasOf({ name, which: 'next' })];
  const next = await indexOf(server, beside);
  // Another recorder swapped the index already.
  if (next === undefined) return;
  const current = await indexOf(server, alias);
  const actions = [
    ...(current === undefined ? [] : [{ remove_index: { index: current } }]),
    { add: { index: next, alias } },
    { remove: { index: next, alias: beside } },
  ];
  await server.ask({ method: 'POST', path: '/_aliases', body: { actions } });
}

async function nextName(server: SearchServer, { name, which }: ServerIndex): Promise<string> {
  const alias = aliasOf({ name, which: 'current' });
  const current = which === 'next' ? await indexOf(server, alias) : undefined;
  const number = Number(/-(\d{6})$/.exec(current ?? '')?.[1] ?? 0) + 1;
  return `${alias}-${String(number).padStart(6, '0')}`;
}

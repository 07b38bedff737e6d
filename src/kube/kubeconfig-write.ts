/**
 * Adding a cluster, a user and a context to a kubeconfig that belongs to somebody: everything else in it, comments
 * included, stays as it is, and doing it twice changes nothing.
 */
import { constants } from 'node:fs';
import { access, open, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { Document, YAMLMap, YAMLSeq, isMap, isSeq, parseDocument } from 'yaml';
import { makeDirectories } from '../directories.ts';
import { TailcastError, errorReason } from '../errors.ts';

export interface KubeconfigEntry {
  /** Name of the cluster and of the context. */
  readonly name: string;
  /** `https://…` */
  readonly server: string;
  /** The CA that signed the server's certificate, PEM; undefined when the system's roots know it. */
  readonly caPem?: string | undefined;
  readonly tlsServerName?: string | undefined;
  readonly userName: string;
  /** Sent as a bearer token; some clients refuse to speak without one. */
  readonly token: string;
  readonly namespace?: string | undefined;
}

/**
 * The file that an addition goes to: the first of the list that exists, else the last.
 */
export async function chooseKubeconfigPath(paths: readonly string[]): Promise<string> {
  for (const path of paths) {
    const found = await stat(path).catch((error: unknown) => !isMissing(error));
    if (found === true || (found !== false && !found.isDirectory())) return path;
  }
  const last = paths.at(-1);
  if (last === undefined)
    throw new TailcastError('CONFIG_INVALID', 'there is no kubeconfig to write to; name one');
  return last;
}

/**
 * Merges entries into the file and makes the context of the first the current one. The file gets mode 0600, its directory is created
 * with 0755; the new content appears at once or not at all. `<path>.lock` keeps kubectl from writing at the same time.
 *
 * @param options.force replaces entries of others, see {@link foreignEntries}
 * @returns whether anything had to be changed
 * @throws TailcastError `CONFIG_INVALID`; `USAGE` when an entry of somebody else has one of the names
 */
export function writeKubeconfig(
  path: string,
  entries: readonly KubeconfigEntry[],
  options: { readonly force?: boolean } = {},
): Promise<{ readonly changed: boolean }> {
  return replaceKubeconfig(path, (text) => {
    if (options.force !== true) refuseForeign(text, entries, path);
    return mergeKubeconfigs(text, entries, path);
  });
}

/**
 * Writes the refreshed tokens of an `auth-provider` to the file, as `writeKubeconfig` writes it.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export async function writeOidcTokens(
  path: string,
  userName: string,
  tokens: Readonly<Record<string, string>>,
): Promise<void> {
  await replaceKubeconfig(path, (text) => {
    const document = parseOrCreate(text, path);
    const user = findByName(document.get('users'), userName);
    if (user === undefined) invalid(path, `the user "${userName}" is gone, and its new tokens are lost`);
    for (const [key, token] of Object.entries(tokens)) {
      user.setIn(['user', 'auth-provider', 'config', key], token);
    }
    return document.toString({ lineWidth: 0 });
  });
}

async function replaceKubeconfig(
  path: string,
  edit: (text: string | undefined) => string | undefined,
): Promise<{ readonly changed: boolean }> {
  try {
    await makeDirectories(dirname(path), 0o755);
    // a link stays a link: its target is what is replaced
    const file = await realpath(path).catch(() => path);
    return await withLock(file, async () => {
      const text = await readIfThere(file);
      const merged = edit(text);
      if (merged === undefined || merged === text) return { changed: false };
      if (text !== undefined) await access(file, constants.W_OK);
      await access(dirname(file), constants.W_OK);
      const temporary = `${file}.tailcast`;
      await rm(temporary, { force: true });
      await writeFile(temporary, merged, { mode: 0o600, flag: 'wx' });
      await rename(temporary, file);
      return { changed: true };
    });
  } catch (cause) {
    if (cause instanceof TailcastError) throw cause;
    throw new TailcastError('CONFIG_INVALID', `kubeconfig ${path} cannot be written: ${errorReason(cause)}`, {
      cause,
    });
  }
}

/** The same lock that client-go takes. */
async function withLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  const lock = `${file}.lock`;
  try {
    await (await open(lock, 'wx', 0o600)).close();
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && cause.code === 'EEXIST')) throw cause;
    throw new TailcastError(
      'CONFIG_INVALID',
      `kubeconfig ${file} is locked by another program; try again, or remove ${lock} if none is running`,
      { cause },
    );
  }
  try {
    return await work();
  } finally {
    await rm(lock, { force: true });
  }
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/** @throws TailcastError `USAGE` that names the entries of somebody else */
function refuseForeign(text: string | undefined, entries: readonly KubeconfigEntry[], path: string): void {
  const document = parseOrCreate(text, path);
  const found = new Set(entries.flatMap((entry) => foreignEntries(document, entry)));
  if (found.size === 0) return;
  throw new TailcastError(
    'USAGE',
    `${path} has entries of the same name that are not of a gateway: ${[...found].join(', ')}; choose another name with --name, or replace these entries with --force`,
  );
}

/**
 * The entries with the names of `entry` that this program, or the reference, did not write. An entry of ours is a context with
 * the cluster of its own name and the user of `entry`, that cluster, and a user with the token of `entry` alone.
 */
function foreignEntries(document: Document, entry: KubeconfigEntry): readonly string[] {
  const { name, userName, token } = entry;
  const context = valueOf(document, 'contexts', 'context', name);
  const cluster = valueOf(document, 'clusters', 'cluster', name);
  const user = valueOf(document, 'users', 'user', userName);
  const isOurs = context?.['cluster'] === name && context['user'] === userName;
  const isSame = cluster === undefined || isDeepStrictEqual(cluster, clusterOf(entry));
  return [
    ...(isSame || isOurs ? [] : [`cluster "${name}" (${String(cluster['server'])})`]),
    ...(context === undefined || isOurs ? [] : [`context "${name}" (user ${String(context['user'])})`]),
    ...(user === undefined || isDeepStrictEqual(user, { token }) ? [] : [`user "${userName}"`]),
  ];
}

function valueOf(
  document: Document,
  list: string,
  kind: string,
  name: string,
): Readonly<Record<string, unknown>> | undefined {
  const entries = document.get(list);
  if (!isSeq(entries)) return undefined;
  const found = entries.items.find((item) => isMap(item) && item.get('name') === name);
  if (!isMap(found)) return undefined;
  const value: unknown = found.get(kind);
  const plain: unknown = isMap(value) ? value.toJS(document) : {};
  return typeof plain === 'object' && plain !== null ? { ...plain } : {};
}

/**
 * The text with `entry` in it; the very same text when it is there already.
 *
 * @param text undefined or blank for a new file
 * @param path only for the error sentence
 * @throws TailcastError `CONFIG_INVALID`
 */
export function mergeKubeconfig(text: string | undefined, entry: KubeconfigEntry, path: string): string {
  const document = parseOrCreate(text, path);
  const chosen = valueOf(document, 'contexts', 'context', entry.name);
  const isOurs = chosen?.['cluster'] === entry.name && chosen['user'] === entry.userName;
  const namespace = entry.namespace ?? (isOurs ? chosen['namespace'] : undefined);
  const changes = [
    upsert(document, 'clusters', 'cluster', entry.name, clusterOf(entry)),
    upsert(document, 'users', 'user', entry.userName, { token: entry.token }),
    upsert(document, 'contexts', 'context', entry.name, {
      cluster: entry.name,
      user: entry.userName,
      ...(typeof namespace === 'string' ? { namespace } : {}),
    }),
    set(document, 'current-context', entry.name),
  ];
  if (text !== undefined && !changes.includes(true)) return text;
  return document.toString({ lineWidth: 0 });
}

/**
 * The text with all entries in it, the context of the first being the current one; undefined without entries.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function mergeKubeconfigs(
  text: string | undefined,
  entries: readonly KubeconfigEntry[],
  path: string,
): string | undefined {
  const merged = entries.reduce<string | undefined>((so, entry) => mergeKubeconfig(so, entry, path), text);
  const [first] = entries;
  // Merging one entry makes it current, and changes nothing else when it is there already.
  return first === undefined ? text : mergeKubeconfig(merged, first, path);
}

function clusterOf({ server, caPem, tlsServerName }: KubeconfigEntry): Record<string, string> {
  return {
    server,
    ...(caPem === undefined ? {} : { 'certificate-authority-data': Buffer.from(caPem).toString('base64') }),
    ...(tlsServerName === undefined ? {} : { 'tls-server-name': tlsServerName }),
  };
}

function parseOrCreate(text: string | undefined, path: string): Document {
  if (text === undefined || text.trim() === '') return new Document({ apiVersion: 'v1', kind: 'Config' });
  const document = parseDocument(text);
  const [error] = document.errors;
  if (error !== undefined) invalid(path, error.message.split('\n', 1)[0] ?? '', error);
  if (document.contents === null) return new Document({ apiVersion: 'v1', kind: 'Config' });
  if (!isMap(document.contents)) invalid(path, 'it is not a map');
  for (const [key, wanted] of [
    ['apiVersion', 'v1'],
    ['kind', 'Config'],
  ] as const) {
    const found = document.get(key);
    if (found === undefined || found === null) document.set(key, wanted);
    else if (found !== wanted) invalid(path, `${key} is not ${wanted}`);
  }
  for (const key of ['clusters', 'users', 'contexts']) {
    const list = document.get(key);
    if (list !== undefined && list !== null && !isSeq(list)) invalid(path, `${key} is not a list`);
  }
  return document;
}

function upsert(
  document: Document,
  list: string,
  kind: string,
  name: string,
  value: Record<string, string>,
): boolean {
  let entries = document.get(list);
  if (!isSeq(entries)) {
    entries = new YAMLSeq();
    document.set(list, entries);
  }
  if (!isSeq(entries)) return false;
  const known = findByName(entries, name);
  if (known === undefined) {
    // a list that was written as `[]` must not make the new entry a line of its own braces
    if (entries.items.length === 0) entries.flow = false;
    entries.add(document.createNode({ [kind]: value, name }));
    return true;
  }
  const current: unknown = known.get(kind);
  if (current instanceof YAMLMap && isDeepStrictEqual(current.toJS(document), value)) return false;
  known.set(kind, document.createNode(value));
  return true;
}

function findByName(list: unknown, name: string): YAMLMap | undefined {
  return isSeq(list) ? list.items.filter(isMap).find((item) => item.get('name') === name) : undefined;
}

function set(document: Document, key: string, value: string): boolean {
  if (document.get(key) === value) return false;
  document.set(key, value);
  return true;
}

function invalid(path: string, problem: string, cause?: unknown): never {
  throw new TailcastError('CONFIG_INVALID', `invalid kubeconfig ${path}: ${problem}`, { cause });
}

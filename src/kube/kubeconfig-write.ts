/**
 * Adds a cluster, a user and a context to a user's kubeconfig. All other content, including comments, stays
 * unchanged, and repeated additions change nothing.
 */
import { constants } from 'node:fs';
import { access, open, readFile, realpath, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { Document, YAMLMap, YAMLSeq, isMap, isScalar, isSeq, parseDocument, stringify } from 'yaml';
import { makeDirectories } from '../directories.ts';
import { errorReason, ifPresent, isSystemError, TailcastError } from '../errors.ts';

export interface KubeconfigEntry {
  /** Name of the cluster and of the context. */
  readonly name: string;
  /** URL of the API server: `https://…`. */
  readonly server: string;
  /** PEM of the CA that issued the server's certificate; undefined if the OS trusts this CA. */
  readonly caPem?: string | undefined;
  readonly tlsServerName?: string | undefined;
  readonly userName: string;
  /** Bearer token. Some clients require a token. */
  readonly token: string;
  readonly namespace?: string | undefined;
}

/** Returns the file to which entries are added: the first path that exists, otherwise the last path. */
export async function chooseKubeconfigPath(paths: readonly string[]): Promise<string> {
  for (const path of paths) {
    const found = await stat(path).catch((error: unknown) => !isSystemError(error, 'ENOENT'));
    if (found === true || (found !== false && !found.isDirectory())) return path;
  }
  const last = paths.at(-1);
  if (last === undefined)
    throw new TailcastError('CONFIG_INVALID', 'there is no kubeconfig to write to; name one');
  return last;
}

/**
 * Merges entries into the file, and makes the context of the first entry current. The write is atomic, and the file
 * has mode 0600. `<path>.lock` prevents concurrent writes by kubectl.
 *
 * @param options.force true to replace entries that other programs have written, see {@link foreignEntries}
 * @param options.keepCurrent true to leave the current context unchanged, if there is one
 * @returns true if the file changed
 * @throws TailcastError `CONFIG_INVALID`; `USAGE` if another program has written an entry with one of the names
 */
export function writeKubeconfig(
  path: string,
  entries: readonly KubeconfigEntry[],
  options: { readonly force?: boolean; readonly keepCurrent?: boolean } = {},
): Promise<{ readonly changed: boolean }> {
  return replaceKubeconfig(path, (text) => {
    if (options.force !== true) refuseForeign(text, entries, path);
    return mergeKubeconfigs(text, entries, path, options.keepCurrent);
  });
}

/**
 * Writes the refreshed tokens of an `auth-provider` to the file, in the same way as {@link writeKubeconfig}.
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
    if (user === undefined)
      invalid(path, `the user "${userName}" no longer exists, so its new tokens are lost`);
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
    // If the path is a symbolic link, the link stays and its target is replaced.
    const file = await realpath(path).catch(() => path);
    return await withLock(file, async () => {
      const text = await ifPresent(readFile(file, 'utf8'));
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

/** Holds client-go's lock file while it runs a function. */
async function withLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  const lock = `${file}.lock`;
  try {
    await (await open(lock, 'wx', 0o600)).close();
  } catch (cause) {
    if (!isSystemError(cause, 'EEXIST')) throw cause;
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

/** @throws TailcastError `USAGE`, whose message names the entries of other programs */
function refuseForeign(text: string | undefined, entries: readonly KubeconfigEntry[], path: string): void {
  const document = parseOrCreate(text, path);
  const found = new Set(entries.flatMap((entry) => foreignEntries(document, entry)));
  if (found.size === 0) return;
  throw new TailcastError(
    'USAGE',
    [
      `${path} has entries of other programs with the same name: ${[...found].join(', ')};`,
      'choose another name with --name, or replace these entries with --force',
    ].join(' '),
  );
}

/**
 * Returns existing entries that have a name in `entry`, but that neither this program nor Tailscale's client has
 * written. Both programs write a cluster, a user with only a token, and a context that refers to these two.
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
 * Returns the text with `entry` added. Returns the text unchanged if it already contains the entry.
 *
 * @param text undefined or blank for a new file
 * @param path path of the file, for error messages
 * @throws TailcastError `CONFIG_INVALID`
 */
export function mergeKubeconfig(
  text: string | undefined,
  entry: KubeconfigEntry,
  path: string,
  keepCurrent = false,
): string {
  const document = parseOrCreate(text, path);
  const chosen = valueOf(document, 'contexts', 'context', entry.name);
  const isOurs = chosen?.['cluster'] === entry.name && chosen['user'] === entry.userName;
  const namespace = entry.namespace ?? (isOurs ? chosen['namespace'] : undefined);
  const { name, userName } = entry;
  const context = {
    cluster: name,
    user: userName,
    ...(typeof namespace === 'string' ? { namespace } : {}),
  };
  const edits: readonly Edit[] = [
    { list: 'clusters', kind: 'cluster', name, value: clusterOf(entry) },
    { list: 'users', kind: 'user', name: userName, value: { token: entry.token } },
    { list: 'contexts', kind: 'context', name, value: context },
  ];
  const isCurrentKept = keepCurrent && typeof document.get('current-context') === 'string';
  const changes = [
    ...edits.map((edit) => upsert(document, edit)),
    isCurrentKept ? false : set(document, 'current-context', name),
  ];
  if (text !== undefined && !changes.includes(true)) return text;
  const spliced =
    text === undefined || text.trim() === ''
      ? undefined
      : spliceEdits(text, edits, isCurrentKept ? undefined : name);
  return spliced ?? document.toString({ lineWidth: 0 });
}

interface Edit {
  readonly list: string;
  readonly kind: string;
  readonly name: string;
  readonly value: Readonly<Record<string, string>>;
}

/**
 * Changes only the lines of the edited entries, so that all other bytes stay unchanged. Returns undefined if the file
 * is in flow style, such as JSON, or contains an empty list.
 */
function spliceEdits(text: string, edits: readonly Edit[], current: string | undefined): string | undefined {
  let changed: string | undefined = text.endsWith('\n') ? text : `${text}\n`;
  for (const edit of edits) changed = changed === undefined ? undefined : spliceEntry(changed, edit);
  if (changed === undefined || current === undefined) return changed;
  const document: Document = parseDocument(changed);
  const scalar: unknown = document.get('current-context', true);
  if (!isScalar(scalar)) return `${changed}current-context: ${stringify(current).trimEnd()}\n`;
  if (scalar.value === current) return changed;
  const [from, to] = scalar.range ?? [0, 0];
  return `${changed.slice(0, from)}${stringify(current).trimEnd()}${changed.slice(to)}`;
}

function hasBlockMap({ contents }: Document.Parsed): boolean {
  return isMap(contents) && contents.flow !== true;
}

function spliceEntry(text: string, { list, kind, name, value }: Edit): string | undefined {
  const document = parseDocument(text);
  if (!hasBlockMap(document)) return undefined;
  const entries: unknown = document.get(list);
  const item = stringify([{ [kind]: value, name }], { lineWidth: 0 });
  if (!document.has(list)) return `${text}${list}:\n${item}`;
  if (!isSeq(entries) || entries.flow === true) return undefined;
  const items = entries.items.filter(isMap);
  const known = findByName(entries, name);
  const from = (known ?? items.at(-1))?.range;
  if (from === undefined || from === null) return undefined;
  if (known !== undefined && isDeepStrictEqual(known.toJS(document), { [kind]: value, name })) return text;
  const lineStart = text.lastIndexOf('\n', from[0] - 1) + 1;
  const [indent] = /^ *(?=- *$)/.exec(text.slice(lineStart, from[0])) ?? [];
  if (indent === undefined) return undefined;
  const indented = item.replaceAll(/^(?=.)/gm, indent);
  if (known === undefined) return `${text.slice(0, from[2])}${indented}${text.slice(from[2])}`;
  const isWhole = text[from[1] - 1] === '\n';
  return `${text.slice(0, lineStart)}${isWhole ? indented : indented.trimEnd()}${text.slice(from[1])}`;
}

/**
 * Returns the text with all entries, in which the context of the first entry is current.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function mergeKubeconfigs(
  text: string | undefined,
  entries: readonly KubeconfigEntry[],
  path: string,
  keepCurrent = false,
): string | undefined {
  const merged = entries.reduce<string | undefined>(
    (so, entry) => mergeKubeconfig(so, entry, path, keepCurrent),
    text,
  );
  const [first] = entries;
  // The first entry is merged a second time, which only makes its context current.
  return first === undefined ? text : mergeKubeconfig(merged, first, path, keepCurrent);
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

function upsert(document: Document, { list, kind, name, value }: Edit): boolean {
  let entries = document.get(list);
  if (!isSeq(entries)) {
    entries = new YAMLSeq();
    document.set(list, entries);
  }
  if (!isSeq(entries)) return false;
  const known = findByName(entries, name);
  if (known === undefined) {
    // Without this change, a list that is written as `[]` would stay in flow style.
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

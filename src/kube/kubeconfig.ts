/**
 * Reads kubeconfig files in the same way as client-go. The files are merged. If several files define the same cluster,
 * user, context or current context, the first file wins. Relative paths are relative to the file that contains them.
 */
import { readFileSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import { errorReason, errorText, isSystemError, TailcastError } from '../errors.ts';

const MAX_KUBECONFIG_BYTES = 8 * 1024 * 1024;

const clusterSchema = z.object({
  server: z.string().min(1),
  'certificate-authority': z.string().optional(),
  'certificate-authority-data': z.string().optional(),
  'insecure-skip-tls-verify': z.boolean().optional(),
  'tls-server-name': z.string().optional(),
  'proxy-url': z.string().optional(),
});

const execSchema = z.object({
  apiVersion: z.string(),
  command: z.string().min(1),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
  installHint: z.string().optional(),
  provideClusterInfo: z.boolean().optional(),
  interactiveMode: z.string().optional(),
});

const userSchema = z.object({
  token: z.string().optional(),
  tokenFile: z.string().optional(),
  'client-certificate': z.string().optional(),
  'client-certificate-data': z.string().optional(),
  'client-key': z.string().optional(),
  'client-key-data': z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
  exec: execSchema.nullish(),
  'auth-provider': z
    .object({ name: z.string(), config: z.record(z.string(), z.string()).nullish() })
    .nullish(),
  as: z.string().optional(),
});

const contextSchema = z.object({
  cluster: z.string().default(''),
  user: z.string().default(''),
  namespace: z.string().optional(),
});

const kubeconfigSchema = z.object({
  apiVersion: z.literal('v1').optional(),
  kind: z.literal('Config').optional(),
  clusters: z.array(z.object({ name: z.string(), cluster: clusterSchema })).nullish(),
  users: z.array(z.object({ name: z.string(), user: userSchema.nullish() })).nullish(),
  contexts: z.array(z.object({ name: z.string(), context: contextSchema })).nullish(),
  'current-context': z.string().nullish(),
});

export type KubeconfigCluster = z.infer<typeof clusterSchema>;
export type KubeconfigUser = z.infer<typeof userSchema>;
export type KubeconfigExec = z.infer<typeof execSchema>;

/** An entry, and the file that contains it. */
interface Located<T> {
  readonly value: T;
  readonly file: string;
}

/** A context, and its cluster and user. */
export interface KubeconfigContext {
  readonly name: string;
  readonly clusterName: string;
  readonly cluster: Located<KubeconfigCluster>;
  readonly userName: string;
  readonly user: Located<KubeconfigUser>;
  readonly namespace: string | undefined;
}

/**
 * Returns the files to read: the `KUBECONFIG` list, or `~/.kube/config` if it is unset or contains only
 * separators.
 *
 * @param variable the value of `KUBECONFIG`
 */
export function kubeconfigPaths(variable: string | undefined, homeDirectory: string): readonly string[] {
  const listed = (variable ?? '').split(delimiter).filter((path) => path !== '');
  return listed.length > 0 ? [...new Set(listed)] : [join(homeDirectory, '.kube', 'config')];
}

/**
 * Reads and merges `paths` and resolves one context. If there are several paths, missing files are skipped.
 *
 * @param contextName default: `current-context`
 * @throws TailcastError `CONFIG_INVALID` with the file, the key and the fix
 */
export function readKubeconfigContext(paths: readonly string[], contextName?: string): KubeconfigContext {
  const files = paths.flatMap((path) => readKubeconfigFile(path, paths.length > 1));
  return resolveContext(files, paths.join(', '), contextName);
}

/** Returns all contexts of the files. Reads the files in the same way as {@link readKubeconfigContext}. */
export function readKubeconfigContexts(paths: readonly string[]): readonly KubeconfigContext[] {
  const files = paths.flatMap((path) => readKubeconfigFile(path, paths.length > 1));
  const names = new Set(files.flatMap(({ config }) => (config.contexts ?? []).map(({ name }) => name)));
  return [...names].map((name) => resolveContext(files, paths.join(', '), name));
}

/**
 * Resolves the current context of a kubeconfig text, or its only context.
 *
 * @param source name with which errors refer to the text
 * @throws TailcastError `CONFIG_INVALID`
 */
export function parseKubeconfigContext(text: string, source: string): KubeconfigContext {
  const config = parseKubeconfig(text, source);
  const [only, ...others] = config.contexts ?? [];
  const isNamed = (config['current-context'] ?? '') !== '';
  return resolveContext(
    [{ file: source, config }],
    source,
    !isNamed && others.length === 0 ? only?.name : undefined,
  );
}

function resolveContext(
  files: readonly ConfigFile[],
  where: string,
  contextName: string | undefined,
): KubeconfigContext {
  if (files.length === 0) fail(where, 'no such file; create it, or name another one');
  const name =
    contextName ?? files.map(({ config }) => config['current-context'] ?? '').find((text) => text !== '');
  if (name === undefined) {
    fail(where, `current-context is not set; name one of the contexts: ${contextNames(files)}`);
  }
  const context = find(files, ({ contexts }) => contexts, name, 'context');
  if (context === undefined) {
    fail(where, `there is no context "${name}"; name one of the contexts: ${contextNames(files)}`);
  }
  const { cluster: clusterName, user: userName, namespace } = context.value.context;
  const cluster = find(files, ({ clusters }) => clusters, clusterName, 'cluster');
  if (cluster === undefined) {
    fail(
      context.file,
      `contexts[${name}].cluster names "${clusterName}", which is not among the clusters; add it`,
    );
  }
  const user = find(files, ({ users }) => users, userName, 'user');
  if (user === undefined && userName !== '') {
    fail(context.file, `contexts[${name}].user names "${userName}", which is not among the users; add it`);
  }
  return {
    name,
    clusterName,
    cluster: { value: cluster.value.cluster, file: cluster.file },
    userName,
    user: { value: user?.value.user ?? {}, file: user?.file ?? context.file },
    namespace,
  };
}

/** Converts a path in a kubeconfig to an absolute path. */
export function pathInKubeconfig(path: string, kubeconfigFile: string): string {
  return resolve(dirname(kubeconfigFile), path);
}

type Config = z.infer<typeof kubeconfigSchema>;

interface ConfigFile {
  readonly file: string;
  readonly config: Config;
}

function readKubeconfigFile(path: string, mayBeMissing: boolean): ConfigFile[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    const missing = isSystemError(cause, 'ENOENT');
    if (missing && mayBeMissing) return [];
    if (missing) fail(path, 'no such file; create it, or name another one', cause);
    fail(path, `cannot be read: ${errorReason(cause)}`, cause);
  }
  return [{ file: resolve(path), config: parseKubeconfig(text, path) }];
}

function parseKubeconfig(text: string, path: string): Config {
  if (text.length > MAX_KUBECONFIG_BYTES) fail(path, `is larger than ${MAX_KUBECONFIG_BYTES} bytes`);
  let document: unknown;
  try {
    // Warnings are off, because they would print lines of the file, and these lines may contain tokens.
    document = parse(text, { logLevel: 'error' });
  } catch (cause) {
    fail(path, `is not YAML: ${errorText(cause).split('\n', 1)[0]}`, cause);
  }
  const result = kubeconfigSchema.safeParse(document ?? {});
  if (result.success) return result.data;
  const problems = result.error.issues.map((issue) => `${keyPath(issue.path, document)}: ${issue.message}`);
  fail(path, problems.slice(0, 5).join('; '), result.error);
}

/**
 * Returns the path of a field with names instead of indexes: `users[prod].user.token` instead of `users.3.user.token`.
 */
function keyPath(path: readonly PropertyKey[], document: unknown): string {
  let text = '';
  let value = document;
  for (const key of path) {
    value = typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined;
    const name: unknown =
      typeof value === 'object' && value !== null ? Reflect.get(value, 'name') : undefined;
    if (typeof key === 'number') text += `[${typeof name === 'string' ? name : key}]`;
    else text += text === '' ? String(key) : `.${String(key)}`;
  }
  return text === '' ? 'the document' : text;
}

function find<T extends { readonly name: string }>(
  files: readonly ConfigFile[],
  list: (config: Config) => readonly T[] | null | undefined,
  name: string,
  what: string,
): Located<T> | undefined {
  for (const { file, config } of files) {
    const matches = (list(config) ?? []).filter((entry) => entry.name === name);
    if (matches.length > 1) fail(file, `the ${what} "${name}" is there twice; remove one`);
    const [value] = matches;
    if (value !== undefined) return { value, file };
  }
  return undefined;
}

function contextNames(files: readonly ConfigFile[]): string {
  const names = files.flatMap(({ config }) => (config.contexts ?? []).map(({ name }) => name));
  return names.length === 0 ? '(there are none)' : names.slice(0, 20).join(', ');
}

function fail(path: string, problem: string, cause?: unknown): never {
  throw new TailcastError('CONFIG_INVALID', `kubeconfig ${path}: ${problem}`, { cause });
}

/**
 * Declares and parses the settings of a role. Each role has a table of settings. The name of a setting is the same
 * everywhere, apart from the notation: `proxyProtocol` in the file, `TAILCAST_PROXY_PROTOCOL` in the environment,
 * `--proxy-protocol` on the command line. The command line takes precedence over the environment, the environment over
 * the file, and the file over the default. All problems are reported together.
 */
import { errorText, TailcastError } from '../errors.ts';

/** Converts a raw value to a typed value. Throws an `Error` whose message names the expected value. */
export interface ParseValue<T> {
  (raw: unknown): T;
  /** Placeholder of the value in the help, e.g. `<host:port>`. A setting without a placeholder is a switch. */
  readonly placeholder?: string;
}

export interface Setting<T> {
  readonly description: string;
  readonly parse: ParseValue<T>;
  /** Default value. Shown in `--help` and `docs/config.md`. */
  readonly fallback: T;
  /** Placeholder of the value in the help; undefined for a switch. */
  readonly placeholder: string | undefined;
}

export type SettingTable = Readonly<Record<string, Setting<unknown>>>;
export type SettingValues<Table extends SettingTable> = {
  readonly [Key in keyof Table]: Table[Key] extends Setting<infer T> ? T : never;
};

/** Declares a setting. The value of the setting has the type of the default or the result type of `parse`. */
export function setting<T>(
  description: string,
  parse: ParseValue<T>,
  fallback: NoInfer<T>,
  placeholder = parse.placeholder,
): Setting<T> {
  return { description, parse, fallback, placeholder };
}

/** `proxyProtocol` → `--proxy-protocol`. */
export function flagName(key: string): string {
  return `--${kebab(key)}`;
}

/** `proxyProtocol` → `TAILCAST_PROXY_PROTOCOL`. */
export function environmentName(key: string): string {
  return `TAILCAST_${kebab(key).replaceAll('-', '_').toUpperCase()}`;
}

const SIZE_UNITS = ['TiB', 'GiB', 'MiB', 'KiB'] as const;

/**
 * Returns the default of a setting as text for help and docs; sizes have a unit, such as `8MiB`. Returns undefined if
 * there is no default to show.
 */
export function defaultText({ fallback, placeholder }: Setting<unknown>): string | undefined {
  if (fallback === undefined || fallback === '') return undefined;
  if (Array.isArray(fallback)) return fallback.length === 0 ? undefined : fallback.join(',');
  if (typeof fallback === 'object' && fallback !== null && 'host' in fallback && 'port' in fallback) {
    return `${String(fallback.host)}:${String(fallback.port)}`;
  }
  if (typeof fallback === 'number' && fallback > 0 && placeholder?.startsWith('<size') === true) {
    const index = SIZE_UNITS.findIndex((_, at) => fallback % 1024 ** (SIZE_UNITS.length - at) === 0);
    if (index >= 0) return `${fallback / 1024 ** (SIZE_UNITS.length - index)}${SIZE_UNITS[index]}`;
  }
  return typeof fallback === 'string' ? fallback : JSON.stringify(fallback);
}

/** Sources of values, in order of precedence. */
export interface SettingSources {
  /** Values from the command line. Keys: key of the setting. The map contains only settings that the user has set. */
  readonly flags: ReadonlyMap<string, unknown>;
  /** The process environment. */
  readonly environment: ReadonlyMap<string, string>;
  /** Content of the configuration file, if there is one. */
  readonly file: { readonly path: string; readonly entries: ReadonlyMap<string, unknown> } | undefined;
  /** Names of `TAILCAST_*` variables that are not settings of this role. They are not reported as unknown. */
  readonly otherVariables?: readonly string[];
  /**
   * Problems that were found earlier, e.g. in the file. They are reported together with the problems that are found
   * later.
   */
  readonly problems?: readonly string[];
}

/** A rule about several settings. The check is skipped if one of its settings is invalid. */
export interface SettingCheck<Table extends SettingTable> {
  readonly settings: readonly (keyof Table)[];
  /** @throws Error whose message describes the problem, e.g. a TailcastError `CONFIG_INVALID` */
  check(values: SettingValues<Table>, environment: ReadonlyMap<string, string>): void;
}

/**
 * Reads the values of all settings in `table` from `sources`.
 *
 * @throws TailcastError `CONFIG_INVALID`, whose detail lists every problem on its own line, with the key and the
 *   source of the value
 */
export function readSettings<Table extends SettingTable>(
  table: Table,
  sources: SettingSources,
  checks: readonly SettingCheck<Table>[] = [],
): SettingValues<Table> {
  const problems = [
    ...(sources.problems ?? []),
    ...unknownFileKeys(table, sources),
    ...unknownVariables(table, sources),
  ];
  const values: Record<string, unknown> = {};
  const wrong = new Set<unknown>();
  for (const [key, { parse, fallback }] of Object.entries(table)) {
    const found = locate(key, sources);
    if (found === undefined) {
      values[key] = fallback;
      continue;
    }
    try {
      values[key] = parse(found.raw);
    } catch (error) {
      wrong.add(key);
      values[key] = fallback;
      problems.push(`${found.origin}: ${errorText(error)}`);
    }
  }
  // The loop above has set every key to the result of `parse` or to `fallback`.
  const typed = trust<SettingValues<Table>>(Object.freeze(values));
  for (const rule of checks) {
    if (rule.settings.some((key) => wrong.has(key))) continue;
    try {
      rule.check(typed, sources.environment);
    } catch (error) {
      problems.push(error instanceof TailcastError ? (error.detail ?? error.message) : errorText(error));
    }
  }
  if (problems.length > 0) throw new TailcastError('CONFIG_INVALID', problems.join('\n  '));
  return typed;
}

/**
 * Matches variables that the kubelet sets in pods for Services whose names start with `tailcast` (kubernetes
 * pkg/kubelet/envvars). They must not be reported as misspelt settings.
 */
const SERVICE_LINK =
  /^TAILCAST_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$/;

function locate(key: string, sources: SettingSources): { raw: unknown; origin: string } | undefined {
  const flag = sources.flags.get(key);
  if (flag !== undefined) return { raw: flag, origin: flagName(key) };
  const variable = sources.environment.get(environmentName(key));
  if (variable !== undefined) return { raw: variable, origin: environmentName(key) };
  const entry = sources.file?.entries.get(key);
  if (entry !== undefined && entry !== null)
    return { raw: entry, origin: `${key} in ${sources.file?.path ?? ''}` };
  return undefined;
}

function unknownFileKeys(table: SettingTable, { file }: SettingSources): string[] {
  if (file === undefined) return [];
  return [...file.entries.keys()]
    .filter((key) => !Object.hasOwn(table, key))
    .map((key) => `${key} in ${file.path}: no such setting${suggestion(key, Object.keys(table))}`);
}

function unknownVariables(
  table: SettingTable,
  { environment, otherVariables = [] }: SettingSources,
): string[] {
  const known = [...Object.keys(table).map(environmentName), ...otherVariables];
  return [...environment.keys()]
    .filter((name) => name.startsWith('TAILCAST_') && !known.includes(name) && !SERVICE_LINK.test(name))
    .map((name) => `${name}: no such setting${suggestion(name, known)}`);
}

/**
 * Returns a hint with the setting that a name probably stands for. A setting is suggested only if it differs
 * from the name in at most a quarter of the letters.
 */
function suggestion(given: string, known: readonly string[]): string {
  const own = (name: string): string => name.replace(/^TAILCAST_/, '').toLowerCase();
  const near = known
    .map((name) => ({ name, distance: editDistance(own(given), own(name)) }))
    .toSorted((a, b) => a.distance - b.distance)[0];
  const allowed = Math.ceil(own(given).length / 4);
  return near !== undefined && near.distance <= allowed ? `; did you mean ${near.name}?` : '';
}

function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const replace = (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1);
      current.push(Math.min((previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1, replace));
    }
    previous = current;
  }
  return previous[right.length] ?? 0;
}

function kebab(key: string): string {
  return key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** Gives checked values their static type. This is the only function with such a type assertion. */
function trust<T>(value: unknown): T {
  // oxlint-disable-next-line typescript/consistent-type-assertions -- filled key by key from the table
  return value as T;
}

/**
 * Parsers for single setting values. Each function parses a value from the file (typed YAML) or from the environment
 * (text).
 */
import type { ListenAddress } from '../listen.ts';
import { setting, type ParseValue, type Setting } from './settings.ts';

/** Adds the placeholder for the help to a parser. */
function shownAs<T>(placeholder: string, parse: ParseValue<T>): ParseValue<T> {
  return Object.assign(parse, { placeholder });
}

/** Declares an optional text setting. */
export function textSetting(description: string, placeholder: string): Setting<string | undefined> {
  return setting(description, optionalText, undefined, placeholder);
}

/** Declares a setting with a list of texts, which is empty by default. */
export function listSetting(description: string, placeholder: string): Setting<readonly string[]> {
  return setting(description, textList, [], placeholder);
}

/** Returns a listen address that only this machine can reach. */
export function loopback(port: number): ListenAddress {
  return { host: '127.0.0.1', port };
}

/** Parses a text that must not be empty. */
export const text: ParseValue<string> = (raw) => {
  if (typeof raw !== 'string' || raw.trim() === '') throw new Error(`a text is expected, not ${shown(raw)}`);
  return raw;
};

/** Parses a text; undefined if it is empty. */
export const optionalText: ParseValue<string | undefined> = (raw) => {
  if (raw === '' || raw === undefined) return undefined;
  return text(raw);
};

/** Parses a list of texts: a YAML list, or values with commas between them. */
export const textList: ParseValue<readonly string[]> = (raw) => {
  const items = Array.isArray(raw) ? raw.map((item: unknown) => text(item)) : text(raw).split(',');
  return items.map((item) => item.trim()).filter((item) => item !== '');
};

/** Parses a boolean in one of the usual spellings. */
export const flag: ParseValue<boolean> = shownAs('<true|false>', (raw) => {
  if (typeof raw === 'boolean') return raw;
  const word = typeof raw === 'string' ? raw.toLowerCase() : '';
  if (['true', 'yes', 'on', '1'].includes(word)) return true;
  if (['false', 'no', 'off', '0'].includes(word)) return false;
  throw new Error(`true or false is expected, not ${shown(raw)}`);
});

/**
 * Parses a boolean like `flag`, but has no placeholder in the help. On the command line, the flag without a value means
 * true.
 */
export const bareFlag: ParseValue<boolean> = (raw) => flag(raw);

/** Parses one of a fixed set of words. */
export function oneOf<const Words extends readonly string[]>(...words: Words): ParseValue<Words[number]> {
  return shownAs(`<${words.join('|')}>`, (raw) => {
    const found = words.find((word) => word === raw);
    if (found === undefined) throw new Error(`one of ${words.join(', ')} is expected, not ${shown(raw)}`);
    return found;
  });
}

/** Parses an integer within inclusive bounds. */
export function wholeNumber(minimum: number, maximum: number): ParseValue<number> {
  return shownAs('<n>', (raw) => {
    const value = typeof raw === 'string' && /^-?\d+$/.test(raw) ? Number(raw) : raw;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
      throw new Error(`a whole number from ${minimum} to ${maximum} is expected, not ${shown(raw)}`);
    }
    return value;
  });
}

/** Parses port numbers: a YAML list, or values with commas between them. */
export const portList: ParseValue<readonly number[]> = (raw) =>
  (Array.isArray(raw) ? raw : textList(typeof raw === 'number' ? String(raw) : raw)).map(
    wholeNumber(1, 65_535),
  );

/** Returns a parser that returns undefined for `auto`, and otherwise the result of `parse`. */
export function orAuto<Value>(parse: ParseValue<Value>): ParseValue<Value | undefined> {
  const placeholder = parse.placeholder?.replace('>', '|auto>') ?? '<auto>';
  return shownAs(placeholder, (raw) => (raw === 'auto' || raw === undefined ? undefined : parse(raw)));
}

/** Parses a positive number, e.g. a speed factor. */
export function positiveNumber(maximum: number): ParseValue<number> {
  return (raw) => {
    const value = typeof raw === 'string' && raw.trim() !== '' ? Number(raw) : raw;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0 || value > maximum) {
      throw new Error(`a number above 0 and up to ${maximum} is expected, not ${shown(raw)}`);
    }
    return value;
  };
}

/** Parses a number of bytes, such as `8388608`, `8MiB` or `512KiB`. */
export function byteSize(minimum: number, maximum: number): ParseValue<number> {
  return shownAs('<size>', (raw) => {
    const match = /^(\d+)\s*(B|KiB|MiB|GiB|TiB)?$/.exec(
      typeof raw === 'number' ? String(raw) : typeof raw === 'string' ? raw : '',
    );
    const value = match === null ? Number.NaN : Number(match[1]) * unitFactor(match[2] ?? 'B');
    if (!Number.isSafeInteger(value) || value < minimum || value > maximum) {
      throw new Error(`a size such as 8MiB is expected (${minimum} to ${maximum} bytes), not ${shown(raw)}`);
    }
    return value;
  });
}

function unitFactor(unit: string): number {
  return 1024 ** ['B', 'KiB', 'MiB', 'GiB', 'TiB'].indexOf(unit);
}

/**
 * Parses a listen address: `host:port`, `[::1]:port`, or `:port` for all addresses. With port 0, the OS chooses a
 * port.
 */
export const listenAddress: ParseValue<ListenAddress> = shownAs('<host:port>', (raw) => {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(typeof raw === 'string' ? raw : '');
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw new Error(`host:port is expected, e.g. 127.0.0.1:8443 or [::1]:8443, not ${shown(raw)}`);
  }
  const host = match[1] ?? match[2] ?? '';
  return { host: host === '' ? '::' : host, port };
});

/** Parses `host:port`; undefined for `off`. */
export const optionalListenAddress: ParseValue<ListenAddress | undefined> = shownAs(
  '<host:port|off>',
  (raw) => (raw === 'off' || raw === false ? undefined : listenAddress(raw)),
);

/** Parses a name; undefined for `off`. */
export const optionalName: ParseValue<string | undefined> = shownAs('<name|off>', (raw) =>
  raw === 'off' || raw === false ? undefined : text(raw),
);

/** Parses an `http:` or `https:` URL; undefined if it is empty. */
export const webAddress: ParseValue<URL | undefined> = shownAs('<url>', (raw) => {
  if (raw === '' || raw === undefined) return undefined;
  const url = typeof raw === 'string' && URL.canParse(raw) ? new URL(raw) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new Error(`an http:// or https:// address is expected, not ${shown(raw)}`);
  }
  return url;
});

/**
 * Parses a list of web origins in the format of browsers, `https://host` or `https://host:port`: a YAML list, or
 * values with commas between them.
 */
export const originList: ParseValue<readonly string[]> = shownAs('<origins>', (raw) =>
  textList(raw).map((item) => {
    const url = URL.canParse(item) ? new URL(item) : undefined;
    const isWeb = url?.protocol === 'https:' || url?.protocol === 'http:';
    if (url === undefined || !isWeb || url.origin !== item.toLowerCase()) {
      throw new Error(`an origin such as https://dashboard.example.com is expected, not ${shown(item)}`);
    }
    return url.origin;
  }),
);

/** Returns an invalid value for an error message, truncated if it is long. */
function shown(raw: unknown): string {
  const json = JSON.stringify(raw) ?? 'nothing';
  return json.length > 60 ? `${json.slice(0, 57)}…` : json;
}

/**
 * Parsers for single setting values. Each function parses the value of a file (typed YAML) or of the environment
 * (text).
 */
import type { ListenAddress } from '../listen.ts';
import { setting, type ParseValue, type Setting } from './settings.ts';

/** A parser with the placeholder of its value in the help. */
function shownAs<T>(placeholder: string, parse: ParseValue<T>): ParseValue<T> {
  return Object.assign(parse, { placeholder });
}

/** A text that need not be given. */
export function textSetting(description: string, placeholder: string): Setting<string | undefined> {
  return setting(description, optionalText, undefined, placeholder);
}

/** A list of texts that may be empty. */
export function listSetting(description: string, placeholder: string): Setting<readonly string[]> {
  return setting(description, textList, [], placeholder);
}

/** Addresses that only this machine can reach. */
export function loopback(port: number): ListenAddress {
  return { host: '127.0.0.1', port };
}

/** Any text that is not empty. */
export const text: ParseValue<string> = (raw) => {
  if (typeof raw !== 'string' || raw.trim() === '') throw new Error(`a text is expected, not ${shown(raw)}`);
  return raw;
};

/** Text; undefined if it is empty. */
export const optionalText: ParseValue<string | undefined> = (raw) => {
  if (raw === '' || raw === undefined) return undefined;
  return text(raw);
};

/** A list of texts: a YAML list, or comma separated. */
export const textList: ParseValue<readonly string[]> = (raw) => {
  const items = Array.isArray(raw) ? raw.map((item: unknown) => text(item)) : text(raw).split(',');
  return items.map((item) => item.trim()).filter((item) => item !== '');
};

/** `true`/`false` in any of the usual spellings. */
export const flag: ParseValue<boolean> = shownAs('<true|false>', (raw) => {
  if (typeof raw === 'boolean') return raw;
  const word = typeof raw === 'string' ? raw.toLowerCase() : '';
  if (['true', 'yes', 'on', '1'].includes(word)) return true;
  if (['false', 'no', 'off', '0'].includes(word)) return false;
  throw new Error(`true or false is expected, not ${shown(raw)}`);
});

/** The same for a flag without a value, which means true. */
export const bareFlag: ParseValue<boolean> = (raw) => flag(raw);

/** Parses one of a fixed set of words. */
export function oneOf<const Words extends readonly string[]>(...words: Words): ParseValue<Words[number]> {
  return shownAs(`<${words.join('|')}>`, (raw) => {
    const found = words.find((word) => word === raw);
    if (found === undefined) throw new Error(`one of ${words.join(', ')} is expected, not ${shown(raw)}`);
    return found;
  });
}

/** A whole number within bounds, both included. */
export function wholeNumber(minimum: number, maximum: number): ParseValue<number> {
  return shownAs('<n>', (raw) => {
    const value = typeof raw === 'string' && /^-?\d+$/.test(raw) ? Number(raw) : raw;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
      throw new Error(`a whole number from ${minimum} to ${maximum} is expected, not ${shown(raw)}`);
    }
    return value;
  });
}

/** Numbers of ports: a YAML list, or comma separated. */
export const portList: ParseValue<readonly number[]> = (raw) =>
  (Array.isArray(raw) ? raw : textList(typeof raw === 'number' ? String(raw) : raw)).map(
    wholeNumber(1, 65_535),
  );

/** The same as `parse`, or undefined for `auto`. */
export function orAuto<Value>(parse: ParseValue<Value>): ParseValue<Value | undefined> {
  const placeholder = parse.placeholder?.replace('>', '|auto>') ?? '<auto>';
  return shownAs(placeholder, (raw) => (raw === 'auto' || raw === undefined ? undefined : parse(raw)));
}

/** A positive number, e.g. a speed factor. */
export function positiveNumber(maximum: number): ParseValue<number> {
  return (raw) => {
    const value = typeof raw === 'string' && raw.trim() !== '' ? Number(raw) : raw;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0 || value > maximum) {
      throw new Error(`a number above 0 and up to ${maximum} is expected, not ${shown(raw)}`);
    }
    return value;
  };
}

/** A number of bytes: `8388608`, `8MiB`, `512KiB`. */
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

/** `host:port`, `[::1]:port` or `:port` (all addresses). With port 0 the OS chooses a port. */
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

/** A name, or undefined for `off`. */
export const optionalName: ParseValue<string | undefined> = shownAs('<name|off>', (raw) =>
  raw === 'off' || raw === false ? undefined : text(raw),
);

/** An `http:` or `https:` URL. */
export const webAddress: ParseValue<URL | undefined> = shownAs('<url>', (raw) => {
  if (raw === '' || raw === undefined) return undefined;
  const url = typeof raw === 'string' && URL.canParse(raw) ? new URL(raw) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new Error(`an http:// or https:// address is expected, not ${shown(raw)}`);
  }
  return url;
});

/** Origins of web pages, as browsers write them: `https://host` or `https://host:port`, a list or comma separated. */
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

/** Shows a wrong value without flooding the terminal. */
function shown(raw: unknown): string {
  const json = JSON.stringify(raw) ?? 'nothing';
  return json.length > 60 ? `${json.slice(0, 57)}…` : json;
}

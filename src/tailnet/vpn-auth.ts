/** Parses the value of k3s' flag `--vpn-auth`, and logs the node in through the LocalAPI of tailscaled. */
import { pause } from '../async/pause.ts';
import { TailcastError } from '../errors.ts';
import type { LocalApi } from './local-api.ts';
import type { TailnetNode } from './tailnet-status.ts';

/** Preferences of tailscaled as in `ipn.MaskedPrefs`: each value has a field `<name>Set`. */
export type MaskedPreferences = Readonly<Record<string, unknown>>;

export interface VpnAuth {
  readonly joinKey: string;
  /** Preferences that the value of `--vpn-auth` sets. All other preferences are not changed. */
  readonly preferences: MaskedPreferences;
}

/** Maximum time for the login, in milliseconds: longer than the time that k3s allows. */
const LOGIN_MS = 60_000;
const POLL_MS = 250;

/**
 * Arguments that the gateway ignores. k3s sets routes itself (`tailscale set`); `timeout` and `reset` apply only to
 * `tailscale up`.
 */
const LEFT_TO_K3S: ReadonlySet<string> = new Set(['accept-routes', 'advertise-routes', 'timeout', 'reset']);

/**
 * Parses `name=tailscale,joinKey=KEY[,controlServerURL=URL][,extraArgs=ARGS]`. As in k3s, the text after the
 * first `,extraArgs=` contains arguments of `tailscale up`. A value may contain `=`.
 *
 * @throws TailcastError `CONFIG_INVALID`, without the key
 */
export function parseVpnAuth(text: string): VpnAuth {
  const mark = ',extraArgs=';
  const cut = text.indexOf(mark);
  const pairs = new Map<string, string>();
  for (const part of (cut === -1 ? text : text.slice(0, cut)).trim().split(',')) {
    const equals = part.indexOf('=');
    const key = part.slice(0, equals === -1 ? 0 : equals).trim();
    // do not quote a part without a name in the error: the part may be a piece of the auth key
    if (equals === -1) invalid('a part has no "="; write name=tailscale,joinKey=<key>');
    if (!KEYS.has(key)) invalid(`a part has an unknown name; the names are ${[...KEYS].join(', ')}`);
    if (pairs.has(key)) invalid(`${key} occurs twice`);
    pairs.set(key, part.slice(equals + 1).trim());
  }
  if (pairs.get('name') !== 'tailscale') invalid('name is not "tailscale"');
  const joinKey = pairs.get('joinKey') ?? '';
  if (joinKey === '') invalid('joinKey is missing');
  const controlUrl = pairs.get('controlServerURL');
  if (controlUrl !== undefined && !/^https?:\/\//.test(controlUrl)) invalid('controlServerURL is not a URL');
  return {
    joinKey,
    preferences: {
      ...(controlUrl === undefined ? {} : set('ControlURL', controlUrl)),
      ...(cut === -1 ? {} : parseArguments(text.slice(cut + mark.length))),
    },
  };
}

const KEYS: ReadonlySet<string> = new Set(['name', 'joinKey', 'controlServerURL']);

function parseArguments(text: string): MaskedPreferences {
  const words = text.split(/\s+/).filter((word) => word !== '');
  const preferences: Record<string, unknown> = {};
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    const [, name = '', given] = /^--?([a-z][a-z-]*)(?:=(.*))?$/.exec(word) ?? [];
    const isSwitch = SWITCHES.has(name);
    const value = given ?? (isSwitch || name === 'reset' ? 'true' : (words.shift() ?? ''));
    if (name === 'hostname') Object.assign(preferences, set('Hostname', value));
    else if (name === 'advertise-tags') {
      const tags = value.split(',').map((tag) => (tag.startsWith('tag:') ? tag : `tag:${tag}`));
      Object.assign(preferences, set('AdvertiseTags', value === '' ? [] : tags));
    } else if (name === 'accept-dns') Object.assign(preferences, set('CorpDNS', isTrue(name, value)));
    else if (!LEFT_TO_K3S.has(name)) {
      invalid(`extraArgs: ${word} is not supported; log the node in with \`tailscale up\` instead`);
    }
  }
  return preferences;
}

const SWITCHES: ReadonlySet<string> = new Set(['accept-dns', 'accept-routes']);

function isTrue(name: string, value: string): boolean {
  if (value !== 'true' && value !== 'false') invalid(`extraArgs: --${name} is neither true nor false`);
  return value === 'true';
}

function set(name: string, value: unknown): MaskedPreferences {
  return { [name]: value, [`${name}Set`]: true };
}

/**
 * Waits until this node is connected, and returns it. Logs the node in only if tailscaled reports `NeedsLogin`. A
 * connected node is not changed.
 *
 * @param auth undefined if the node must be logged in already
 * @throws TailcastError `TAILNET_UNAVAILABLE`; `CONFIG_INVALID` if the node needs a login and `auth` is undefined
 */
export async function joinTailnet(
  localApi: LocalApi,
  auth: VpnAuth | undefined,
  signal: AbortSignal,
  limitMs = LOGIN_MS,
): Promise<TailnetNode> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
  let isAsked = false;
  let state: string;
  do {
    const status = await localApi.status(signal, { peers: false });
    state = status.backendState;
    if (state === 'Running' && status.self !== undefined) return status.self;
    if (state === 'NeedsLogin' && !isAsked) {
      if (auth === undefined) {
        invalid('the node needs a login; set vpnAuth, or run `tailscale up`');
      }
      isAsked = true;
      await localApi.login(auth.joinKey, { ...auth.preferences, ...set('WantRunning', true) }, signal);
    }
  } while (await pause(POLL_MS, limit));
  throw new TailcastError('TAILNET_UNAVAILABLE', `the node is not connected; tailscaled reports ${state}`);
}

function invalid(problem: string): never {
  throw new TailcastError('CONFIG_INVALID', `vpnAuth: ${problem}`);
}

/** Checks that the recorders in grants respond, and reports their features. */
import { request } from 'node:http';
import { connect, constants } from 'node:http2';
import type { Duplex } from 'node:stream';
import { errorText } from '../errors.ts';
import { offersUpgrade } from '../wire/recorder-api/upload-headers.ts';
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';
import type { CallerGrant } from './grants-check.ts';

export interface RecorderFacts {
  readonly grants: (signal: AbortSignal) => Promise<readonly CallerGrant[]>;
  /** Returns the `ip:port` of each online tailnet node with one of the tags. */
  readonly resolveTags: (tags: readonly string[]) => Promise<readonly string[]>;
  readonly dial: (address: string, signal: AbortSignal) => Promise<Duplex>;
  /** Returns the tailnet node to which this address belongs. All addresses of a node belong to the same recorder. */
  readonly nodeOf: (address: string) => string;
}

/** Response of a recorder to `HEAD /v2/record`. */
export interface RecorderAnswer {
  /** HTTP status. Undefined for a recorder that supports only HTTP/1.1, and therefore only the upload protocol v1. */
  readonly status: number | undefined;
  /** True if the recorder supports the upload protocol of tailcast. */
  readonly upgrades: boolean;
}

const MAX_RECORDERS = 16;
const PROBE_MS = 8_000;

const REACH =
  'start the recorder; allow this node’s tag to reach tcp:80 of the recorder’s tag in the tailnet policy; with ' +
  'tailscaled in userspace mode, set --recorder-dial tailscale';
const ADMIT = 'add this node’s tag to --uploaders of the recorder';

export function recordersCheck(facts: RecorderFacts): Check {
  return {
    id: 'recorders',
    title: 'recorders',
    needs: ['grants'],
    remedy: REACH,
    timeoutMs: 60_000,
    run: (signal) => examine(facts, signal),
  };
}

async function examine(facts: RecorderFacts, signal: AbortSignal): Promise<CheckVerdict> {
  const policies = (await facts.grants(signal)).flatMap((grant) =>
    grant.kind === 'granted' && grant.recording.mode !== 'off' ? [grant.recording] : [],
  );
  if (policies.length === 0) {
    return warning(
      'no grant names a recorder, so no session is recorded',
      'to record, add "recorder": ["tag:<recorder>"] to the grant, and "enforceRecorder": true to refuse ' +
        'unrecorded sessions',
    );
  }
  const enforced = policies.some(({ mode }) => mode === 'failClosed');
  const tags = [...new Set(policies.flatMap(({ recorderTags }) => recorderTags))];
  const named = policies.flatMap(({ recorders }) => recorders);
  const addresses = [...new Set([...named, ...(tags.length === 0 ? [] : await facts.resolveTags(tags))])];
  if (addresses.length === 0) {
    const what =
      tags.length === 0
        ? 'grants enforce recording and name no recorder'
        : `no node with ${tags.join(' or ')} is online`;
    const remedy = tags.length === 0 ? 'add "recorder": ["tag:<recorder>"] to the grants' : REACH;
    return failed(enforced ? `${what}: enforced sessions are refused` : what, remedy);
  }
  return verdictOf(
    await Promise.all(byNode(facts, addresses).map((node) => probeNode(facts, node, signal))),
    enforced,
  );
}

interface Probed {
  readonly addresses: readonly string[];
  readonly outcome: RecorderAnswer | Error;
}

function byNode({ nodeOf }: RecorderFacts, addresses: readonly string[]): readonly (readonly string[])[] {
  const nodes = Map.groupBy(addresses, nodeOf);
  return [...nodes.values()].slice(0, MAX_RECORDERS);
}

/** Probes the addresses of a tailnet node until one of them responds. */
async function probeNode(
  facts: RecorderFacts,
  addresses: readonly string[],
  signal: AbortSignal,
): Promise<Probed> {
  const reasons: string[] = [];
  for (const address of addresses) {
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
      return { addresses: [address], outcome: await probeRecorder(await facts.dial(address, limit), limit) };
    } catch (error) {
      signal.throwIfAborted();
      if (await speaksV1(facts, address, signal))
        return { addresses: [address], outcome: { status: undefined, upgrades: false } };
      reasons.push(`${address}: ${errorText(error)}`);
    }
  }
  return { addresses, outcome: new Error(reasons.join('; ')) };
}

/**
 * Returns true if an HTTP/1.1 server at the address accepts requests. The gateway uploads to such a server with the
 * protocol v1. `POST /record` is not tested, because it would create a recording.
 */
async function speaksV1(facts: RecorderFacts, address: string, signal: AbortSignal): Promise<boolean> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
  try {
    const socket = await facts.dial(address, limit);
    const status = await new Promise<number>((resolve, reject) => {
      const options = { method: 'HEAD', path: '/record', headers: { host: address }, signal: limit };
      const asked = request({ ...options, createConnection: () => socket });
      asked.once('response', ({ statusCode = 0 }) => resolve(statusCode));
      asked.on('error', reject);
      asked.end();
    }).finally(() => socket.destroy());
    return status < 400 || status === 404 || status === 405;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}

function verdictOf(probed: readonly Probed[], enforced: boolean): CheckVerdict {
  const good: string[] = [];
  const plain: string[] = [];
  let hasV1 = false;
  const bad: string[] = [];
  let refused = false;
  for (const { addresses, outcome } of probed) {
    const name = addresses.join(', ');
    if (outcome instanceof Error) bad.push(outcome.message);
    else if (outcome.status === 403) {
      refused = true;
      bad.push(`${name} refuses this node (403)`);
    } else if (outcome.status === undefined) {
      hasV1 = true;
      plain.push(`${name} (HTTP/1.1, so v1)`);
    } else if (outcome.status !== 200) plain.push(`${name} answers HEAD /v2/record with ${outcome.status}`);
    else if (outcome.upgrades) good.push(`${name} (tailcast)`);
    else plain.push(`${name} (v2)`);
  }
  const remedy = refused ? ADMIT : REACH;
  const working = [...good, ...plain].join('; ');
  if (bad.length > 0) {
    const summary = `${bad.join('; ')}${working === '' ? '' : `; working: ${working}`}`;
    // While another recorder works, sessions are still recorded, so this is only a warning.
    return working === ''
      ? failed(enforced ? `${summary}: enforced sessions are refused` : summary, remedy)
      : warning(summary, remedy);
  }
  if (hasV1) {
    return warning(
      `${working}: sessions are recorded without acknowledgements, so a failing recorder can lose visible output`,
      'check that a recorder runs at this address; use the tailcast recorder for acknowledged output and failover',
    );
  }
  if (plain.length > 0) {
    return warning(
      `${working}: sessions are recorded, but a session cannot continue at another recorder`,
      'use the tailcast recorder for exact bytes, exit codes and failover',
    );
  }
  return ok(working);
}

/**
 * Probes a recorder over a connection, and then closes the connection.
 *
 * @throws Error if the peer does not support HTTP/2; the reason of `signal` if it aborts
 */
export async function probeRecorder(socket: Duplex, signal: AbortSignal): Promise<RecorderAnswer> {
  const answer = Promise.withResolvers<RecorderAnswer>();
  const onAbort = (): void => answer.reject(new Error('it accepts connections, but does not respond'));
  signal.addEventListener('abort', onAbort, { once: true });
  const session = connect('http://recorder', {
    createConnection: () => socket,
    settings: { enablePush: false },
  });
  const notOurs = (cause: unknown): void =>
    answer.reject(new Error('the server at this address does not speak the recorder’s HTTP/2', { cause }));
  session.on('error', notOurs);
  try {
    signal.throwIfAborted();
    const stream = session.request({ ':method': 'HEAD', ':path': '/v2/record' }, { endStream: true });
    stream.once('response', (headers) => {
      answer.resolve({
        status: headers[':status'] ?? 0,
        upgrades: offersUpgrade(headers),
      });
      stream.close(constants.NGHTTP2_NO_ERROR);
    });
    stream.on('error', notOurs);
    stream.once('close', () => notOurs(undefined));
    return await answer.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
    session.destroy();
    socket.destroy();
  }
}

/** A relay between a client and an upstream server. The test controls the client and the server. */
import { startRelay, type RelayOptions } from '../../src/proxy/session/relay.ts';
import { NO_BYTES, urgentInput, type ClientInput, type OutputMark } from '../../src/recording/tap.ts';
import { ByteReader } from './byte-reader.ts';
import { socketPair, type SocketPair } from './socket-pair.ts';

const pairs: SocketPair[] = [];
export const NOTHING = new Uint8Array(0);

/** Closes all sockets. Call this function after each test. */
export function closeRelays(): void {
  for (const { near, far } of pairs.splice(0)) {
    near.destroy();
    far.destroy();
  }
}

/** Opens two connected sockets. {@link closeRelays} closes them. */
export async function openPair(): Promise<SocketPair> {
  const pair = await socketPair();
  pairs.push(pair);
  return pair;
}

/**
 * Starts a relay between two socket pairs: client ═ relay ═ upstream. The test uses the client's and the server's end.
 */
export async function relayed(options: Partial<RelayOptions> = {}) {
  const client = await openPair();
  const upstream = await openPair();
  const abort = new AbortController();
  const relay = startRelay({
    client: client.far,
    upstream: upstream.far,
    clientHead: NOTHING,
    upstreamHead: NOTHING,
    lingerMs: 100,
    signal: abort.signal,
    ...options,
  });
  return {
    relay,
    abort,
    inner: { client: client.far, upstream: upstream.far },
    client: client.near,
    upstream: upstream.near,
    fromClient: new ByteReader(upstream.near),
    fromUpstream: new ByteReader(client.near),
  };
}

type Parse = (chunk: Uint8Array) => void | Promise<void>;

/** Creates a tap with configured results for output and input, which counts deliveries. */
export function tap(output: Parse = () => undefined, input: Parse = () => undefined) {
  const state = {
    deliveries: 0,
    heldBytes: 0,
    /** True if the delivered output ends at the end of a frame. */
    betweenFrames: true,
    /** Fields that replace the default result for input. */
    inputIs: {} as Partial<ClientInput>,
    output,
    input(chunk: Uint8Array): ClientInput {
      return { ...urgentInput(chunk, NO_BYTES), recorded: input(chunk) ?? undefined, ...state.inputIs };
    },
    mark: (): OutputMark => ({
      heldBytes: state.heldBytes,
      heldBytesBackpressured: state.heldBytes,
      delivered() {
        state.deliveries += 1;
        return state.betweenFrames;
      },
    }),
  };
  return state;
}

/** The peers of a run. Each peer starts at its first use. */
import type { Bench } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import type { Peer, PeerName } from './peer.ts';
import { startGo } from './go.ts';
import { startReference } from './reference.ts';
import { isTailcast, startTailcast } from './tailcast.ts';
import { startTlsHop } from './tls-hop.ts';

export class PeerSet {
  /** Unavailable peers with the reason. */
  readonly missing = new Map<PeerName, string>();
  readonly #bench: Bench;
  readonly #started = new Map<PeerName, Peer>();

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  /**
   * Returns the available proxies of a list. Proxies that do not run yet are started concurrently.
   * @param own starts a proxy for this case only; default: proxies are shared by all cases
   */
  async take(
    names: readonly PeerName[],
    own?: (name: PeerName, bench: Bench) => Promise<Peer>,
  ): Promise<ReadonlyMap<PeerName, Peer>> {
    const started = await Promise.all(
      names.map(async (name) => ({
        name,
        peer: own === undefined ? await this.#shared(name) : await this.#start(name, own),
      })),
    );
    const taking = new Map<PeerName, Peer>();
    for (const { name, peer } of started) if (peer !== undefined) taking.set(name, peer);
    return taking;
  }

  replace(name: PeerName, peer: Peer): void {
    this.#started.set(name, peer);
  }

  async #shared(name: PeerName): Promise<Peer | undefined> {
    const known = this.#started.get(name);
    if (known !== undefined || this.missing.has(name)) return known;
    const peer = await this.#start(name, startPeer);
    if (peer !== undefined) this.#started.set(name, peer);
    return peer;
  }

  async #start(
    name: PeerName,
    start: (name: PeerName, bench: Bench) => Promise<Peer>,
  ): Promise<Peer | undefined> {
    try {
      return await start(name, this.#bench);
    } catch (error) {
      if (!(error instanceof PeerMissingError)) throw error;
      this.#bench.say(`${name}: skipped, ${error.message}`);
      this.missing.set(name, error.message);
      return undefined;
    }
  }
}

/** Starts a peer. @throws PeerMissingError if it is unavailable here */
function startPeer(name: PeerName, bench: Bench): Promise<Peer> {
  if (isTailcast(name)) return startTailcast(name, bench);
  switch (name) {
    case 'direct':
      return Promise.resolve({ name, target: bench.upstream, pids: () => [] });
    case 'go':
    case 'go-default':
    case 'go-h2':
      return startGo(name, bench);
    case 'tls-hop':
      return startTlsHop(bench, bench.upstream);
    case 'reference':
    case 'reference-recorded':
      return startReference(name, bench);
  }
}

/** The peers of a run, each started when the first case wants it. */
import type { Bench } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import { startPeer, type Peer, type PeerName } from './peer.ts';

export class PeerSet {
  /** Who could not be had, and why. */
  readonly missing = new Map<PeerName, string>();
  readonly #bench: Bench;
  readonly #started = new Map<PeerName, Peer>();

  constructor(bench: Bench) {
    this.#bench = bench;
  }

  async take(names: readonly PeerName[]): Promise<ReadonlyMap<PeerName, Peer>> {
    const taking = new Map<PeerName, Peer>();
    for (const name of names) {
      const peer = this.#started.get(name) ?? (await this.#start(name));
      if (peer !== undefined) taking.set(name, peer);
    }
    return taking;
  }

  replace(name: PeerName, peer: Peer): void {
    this.#started.set(name, peer);
  }

  async #start(name: PeerName): Promise<Peer | undefined> {
    if (this.missing.has(name)) return undefined;
    try {
      const peer = await startPeer(name, this.#bench);
      this.#started.set(name, peer);
      return peer;
    } catch (error) {
      if (!(error instanceof PeerMissingError)) throw error;
      this.#bench.say(`${name}: skipped, ${error.message}`);
      this.missing.set(name, error.message);
      return undefined;
    }
  }
}

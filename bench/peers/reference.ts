/** The reference's own API server proxy, from its module. */
import type { Bench } from '../harness/bench.ts';
import { PeerMissingError } from './missing.ts';
import type { Peer } from './peer.ts';

export function startReference(name: 'reference' | 'reference-recorded', _bench: Bench): Promise<Peer> {
  return Promise.reject(new PeerMissingError(`${name} is not there yet`));
}

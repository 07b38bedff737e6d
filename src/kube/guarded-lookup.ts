/** Name resolution for servers whose address comes from a Kubernetes object. */
import { lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { isForeignHost } from './cluster-objects.ts';

/** Resolves like `dns.lookup`, but fails if a name resolves to a loopback or link-local address. */
export const guardedLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, found) => {
    if (error !== null) return callback(error, []);
    const foreign = found.find(({ address }) => isForeignHost(address));
    if (foreign !== undefined) {
      const reason = `${hostname} resolves to ${foreign.address}, an address of the gateway's own machine or link`;
      return callback(new Error(reason), []);
    }
    const [first] = found;
    if (options.all === true || first === undefined) return callback(null, found);
    callback(null, first.address, first.family);
  });
};

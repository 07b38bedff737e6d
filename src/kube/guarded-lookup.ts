/** Name resolution for servers that an API object names. */
import { lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { isForeignHost } from './cluster-objects.ts';

/** Resolves like `dns.lookup`, and fails if a name resolves to an address of this machine or its link. */
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

/**
 * Finds out whether what a client has sent ends inside what may be a heartbeat: kubectl writes a SPDY ping in four pieces.
 * Nothing of one may reach a server that may have finished, so the beginning waits for its end.
 */
export interface HeartbeatSearch {
  /** Bytes at the end of the last chunk, and of those before, that begin what may be a heartbeat; 0: none do. */
  readonly begunBytes: number;
  /** @param partialBytes bytes since the last end of a frame, `chunk` included */
  look(chunk: Uint8Array, partialBytes: number): void;
}

/**
 * @param isBegun whether bytes from the beginning of a frame may be those of a heartbeat
 * @param maxBytes of a whole heartbeat; what is longer is none
 */
export function createHeartbeatSearch(
  isBegun: (bytes: Uint8Array) => boolean,
  maxBytes: number,
): HeartbeatSearch {
  let begun = new Uint8Array(0);
  return {
    get begunBytes() {
      return begun.length;
    },
    look(chunk, partialBytes) {
      if (partialBytes === 0 || partialBytes >= maxBytes) {
        begun = new Uint8Array(0);
        return;
      }
      // a frame that began before was no heartbeat then, or its beginning is in `begun`
      const isWhole = partialBytes <= chunk.length || partialBytes === begun.length + chunk.length;
      const bytes =
        partialBytes <= chunk.length
          ? chunk.slice(chunk.length - partialBytes)
          : new Uint8Array([...begun, ...chunk]);
      begun = isWhole && isBegun(bytes) ? bytes : new Uint8Array(0);
    },
  };
}

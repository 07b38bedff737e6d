/** Thrown if a peer is unavailable here, with the reason. */
export class PeerMissingError extends Error {}

/** A peer cannot be had here, and why. */
export class PeerMissingError extends Error {}

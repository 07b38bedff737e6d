import { parseExitStatus, MAX_STATUS_BYTES, type ExitStatus } from '../wire/remotecommand/exit-status.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';

/** Collects the error stream and reads the exit status from it. */
export interface StatusCollector {
  /** True if the error stream has bytes. */
  readonly begun: boolean;
  /** Bytes of the error stream, at most one more than the limit of a status. */
  readonly bytes: Uint8Array;
  push(bytes: Uint8Array): void;
  /** Reads the complete stream. Undefined if it is malformed: an unreadable status must not change what is recorded. */
  finish(): ExitStatus | undefined;
}

export function createStatusCollector(version: ChannelVersion): StatusCollector {
  let kept = Buffer.alloc(0);
  return {
    get begun() {
      return kept.length > 0;
    },
    get bytes() {
      return kept;
    },
    push(bytes) {
      if (kept.length <= MAX_STATUS_BYTES)
        kept = Buffer.concat([kept, bytes.subarray(0, MAX_STATUS_BYTES + 1 - kept.length)]);
    },
    finish() {
      try {
        return parseExitStatus(kept, version);
      } catch {
        return undefined;
      }
    },
  };
}

import { parseExitStatus, MAX_STATUS_BYTES, type ExitStatus } from '../wire/remotecommand/exit-status.ts';
import type { ChannelVersion } from '../wire/remotecommand/channel.ts';

/** Puts the error stream together and reads the exit status from it. */
export interface StatusCollector {
  /** Something was said on the error stream. */
  readonly begun: boolean;
  /** All that was said, or one byte more than a status may have. */
  readonly bytes: Uint8Array;
  push(bytes: Uint8Array): void;
  /** The stream is complete. `undefined` when it cannot be read: how a process ended must not decide what is recorded. */
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

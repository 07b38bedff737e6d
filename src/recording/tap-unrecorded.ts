/**
 * Taps of unrecorded connections. They parse frames for two reasons: to find a frame boundary at which a farewell
 * message can be inserted, and to enforce that a receive-only connection stays receive-only.
 *
 * Only `createReceiveOnlyTap` refuses frames. The other taps stop parsing after an unreadable frame, and their
 * connection then ends without a farewell.
 */
import { createWebSocketScanner, encodeWebSocketFrame, OPCODE } from '../wire/websocket/frame.ts';
import { createTaps, type StreamProtocol } from './stream-plan.ts';
import {
  asViolation,
  violation,
  type SessionTaps,
  type Tap,
  type TapPlace,
  type TappedSession,
} from './tap.ts';

/** RFC 6455 §7.4.1. */
const GOING_AWAY = 1001;
const POLICY_VIOLATION = 1008;
const SERVICE_UNAVAILABLE = 503;
/** RFC 6455 §5.5: a control frame has at most 125 bytes, two of which are the code. */
const MAX_REASON_BYTES = 123;

/** A session that ignores everything. */
const NOBODY: TappedSession = {
  unheard: true,
  output() {},
  input() {},
  resize() {},
  exit() {},
  flush() {},
};

/** A tap that parses nothing. */
export const UNSEEN: Tap = { push() {}, delivered() {} };

/** Creates the taps of an unrecorded exec or attach session. Undefined if its protocol is unknown. */
export function createUnrecordedSessionTaps(
  protocol: StreamProtocol,
  chosen: string,
): SessionTaps | undefined {
  let taps: SessionTaps;
  try {
    taps = createTaps(NOBODY, protocol, chosen);
  } catch {
    return undefined;
  }
  return forgiving(taps);
}

/** Creates the taps of another WebSocket connection. Its farewell is a close frame with the reason. */
export function createWebSocketEndTaps(): SessionTaps {
  const scanner = createWebSocketScanner({ expectMask: false });
  let closed = false;
  let deliveredToBoundary = true;
  return forgiving({
    unproved: () => undefined,
    clientToServer: UNSEEN,
    serverToClient: {
      push(chunk) {
        for (const piece of scanner.push(chunk)) if (piece.opcode === OPCODE.close) closed = true;
      },
      delivered() {
        deliveredToBoundary = scanner.atBoundary;
      },
    },
    farewell(message, httpStatus) {
      return deliveredToBoundary && !closed ? closeFrame(message, httpStatus) : undefined;
    },
  });
}

/** Creates the client-side tap of a WebSocket connection on which only the server may send data. */
export function createReceiveOnlyTap(): Tap {
  const scanner = createWebSocketScanner({ expectMask: true });
  return {
    push(chunk) {
      try {
        for (const { opcode, length } of scanner.push(chunk)) {
          if (opcode < OPCODE.close && length > 0) {
            throw violation('the client wrote to a stream that is only for reading');
          }
        }
      } catch (error) {
        throw asViolation(error);
      }
    },
    delivered() {},
  };
}

function closeFrame(message: string, httpStatus: number): Uint8Array {
  const code = httpStatus === SERVICE_UNAVAILABLE ? GOING_AWAY : POLICY_VIOLATION;
  // `encodeInto` never splits a character.
  const { read } = new TextEncoder().encodeInto(message, new Uint8Array(MAX_REASON_BYTES));
  const reason = new TextEncoder().encode(message.slice(0, read));
  const payload = Uint8Array.of(code >>> 8, code & 0xff, ...reason);
  return encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload });
}

/** Place of a tap that stopped parsing. */
const NOWHERE: TapPlace = {
  atBoundary: false,
  unsentBytes: 0,
  conclusionBytes: 0,
  statusBegun: false,
  closing: false,
};

/** Both directions share state, so both stop parsing if one of them fails. */
function forgiving(taps: SessionTaps): SessionTaps {
  let lost = false;
  const forgive = (tap: Tap): Required<Tap> => ({
    push(chunk, more) {
      if (lost) return undefined;
      try {
        return tap.push(chunk, more);
      } catch {
        lost = true;
        return undefined;
      }
    },
    get gathers() {
      return !lost && tap.gathers === true;
    },
    place: () => (lost ? NOWHERE : (tap.place?.() ?? NOWHERE)),
    delivered(unsent, until) {
      if (!lost) tap.delivered(unsent, until);
    },
    get unsentBytes() {
      return lost ? 0 : (tap.unsentBytes ?? 0);
    },
    get conclusionBytes() {
      return lost ? 0 : (tap.conclusionBytes ?? 0);
    },
    get standsBetweenFrames() {
      return !lost && tap.standsBetweenFrames === true;
    },
    get mayWait() {
      return !lost && tap.mayWait === true;
    },
    get begunBytes() {
      return lost ? 0 : (tap.begunBytes ?? 0);
    },
    get answers() {
      return lost ? [] : (tap.answers ?? []);
    },
    get answeredProbe() {
      return lost ? Infinity : (tap.answeredProbe ?? 0);
    },
    get onlyProbes() {
      return !lost && tap.onlyProbes === true;
    },
  });
  return {
    ...(taps.probes === undefined ? {} : { probes: taps.probes }),
    unproved: (pressed) => (lost ? undefined : taps.unproved(pressed)),
    clientToServer: forgive(taps.clientToServer),
    serverToClient: forgive(taps.serverToClient),
    farewell: (message, httpStatus) => (lost ? undefined : taps.farewell(message, httpStatus)),
  };
}

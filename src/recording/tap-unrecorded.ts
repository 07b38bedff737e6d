/**
 * Taps of connections that are not recorded. They look at frames for two reasons only: to know where a word to the user
 * can be put when the gateway ends the connection, and to see that what is let through as one-way stays one-way.
 *
 * Nothing is refused here because it is not understood, except by `createReceiveOnlyTap`: a tap that loses its way stays
 * silent from then on, and its connection ends without a word.
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
/** RFC 6455 §5.5: a control frame holds 125 bytes, two of them for the code. */
const MAX_REASON_BYTES = 123;

/** Sees what there is to see and keeps nothing. */
const NOBODY: TappedSession = {
  unheard: true,
  output() {},
  input() {},
  resize() {},
  exit() {},
  flush() {},
};

/** A tap that only passes. */
export const UNSEEN: Tap = { push() {}, delivered() {} };

/** Taps of an exec or attach session; `undefined` when its protocol is not known. */
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

/** Taps of any other WebSocket connection: it ends with a close frame that says why. */
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

/** The client's side of a WebSocket connection on which only the server has anything to say. */
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
  // cut between characters
  const { read } = new TextEncoder().encodeInto(message, new Uint8Array(MAX_REASON_BYTES));
  const reason = new TextEncoder().encode(message.slice(0, read));
  const payload = Uint8Array.of(code >>> 8, code & 0xff, ...reason);
  return encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload });
}

/** A place of a tap that does not look any more. */
const NOWHERE: TapPlace = {
  atBoundary: false,
  unsentBytes: 0,
  conclusionBytes: 0,
  statusBegun: false,
  closing: false,
};

/** Both directions share what they know, so both stop looking when one of them cannot go on. */
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

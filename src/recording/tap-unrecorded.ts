/**
 * Taps of unrecorded connections. These taps parse frames for two reasons: to find a frame boundary at which a farewell
 * message can be inserted, and to reject input on connections on which the client may only receive data.
 *
 * Only `createReceiveOnlyInput` refuses frames. The other taps stop parsing at an unreadable frame. Their
 * connection then ends without a farewell message.
 */
import { createWebSocketScanner, encodeWebSocketFrame, OPCODE } from '../wire/websocket/frame.ts';
import { createTap, type StreamProtocol } from './stream-plan.ts';
import { asViolation, NO_MARK, urgentInput, violation, type Tap, type TappedSession } from './tap.ts';

/** Status codes of close frames (RFC 6455 §7.4.1). */
const GOING_AWAY = 1001;
const POLICY_VIOLATION = 1008;
const SERVICE_UNAVAILABLE = 503;
/**
 * Maximum length of the reason in a close frame, in bytes: a control frame has at most 125 bytes, and the code needs
 * two bytes (RFC 6455 §5.5).
 */
const MAX_REASON_BYTES = 123;

/** A session that ignores all calls. */
const IGNORED: TappedSession = {
  ignoresOutput: true,
  output() {},
  input() {},
  resize() {},
  exit() {},
  flush() {},
};

/** A tap that parses nothing. */
export const BLIND_TAP: Tap = {
  output() {},
  mark: () => NO_MARK,
  input: urgentInput,
  incompleteReason: () => undefined,
  hasClientLeft: () => false,
  farewell: () => undefined,
};

/** Creates the tap of an unrecorded exec or attach session. Returns undefined if the protocol is unknown. */
export function createUnrecordedSessionTap(protocol: StreamProtocol, chosen: string): Tap | undefined {
  let tap: Tap;
  try {
    tap = createTap(IGNORED, protocol, chosen);
  } catch {
    return undefined;
  }
  return forgiving(tap);
}

/**
 * Creates the tap of any other WebSocket connection. Its farewell message is a close frame with the reason.
 */
export function createWebSocketEndTap(): Tap {
  const scanner = createWebSocketScanner({ expectMask: false });
  let closed = false;
  let deliveredToBoundary = true;
  return forgiving({
    ...BLIND_TAP,
    output(chunk) {
      for (const piece of scanner.push(chunk)) if (piece.opcode === OPCODE.close) closed = true;
    },
    mark() {
      const { atBoundary } = scanner;
      return {
        ...NO_MARK,
        delivered() {
          deliveredToBoundary = atBoundary;
          return false;
        },
      };
    },
    farewell(message, httpStatus) {
      return deliveredToBoundary && !closed ? closeFrame(message, httpStatus) : undefined;
    },
  });
}

/** Creates the parser of the client's frames on a WebSocket connection on which the client must send no data. */
export function createReceiveOnlyInput(): Tap['input'] {
  const scanner = createWebSocketScanner({ expectMask: true });
  return (chunk, kept) => {
    try {
      for (const { opcode, length } of scanner.push(chunk)) {
        if (opcode < OPCODE.close && length > 0) {
          throw violation('the client wrote to a stream that is only for reading');
        }
      }
    } catch (error) {
      throw asViolation(error);
    }
    return urgentInput(chunk, kept);
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

/**
 * Returns a tap that stops parsing at the first unreadable frame instead of refusing that frame. Both directions stop,
 * because they use the same state.
 */
function forgiving(tap: Tap): Tap {
  let failed = false;
  return {
    output(chunk, more) {
      if (failed) return undefined;
      try {
        return tap.output(chunk, more);
      } catch {
        failed = true;
        return undefined;
      }
    },
    mark() {
      if (failed) return NO_MARK;
      const mark = tap.mark();
      return { ...mark, delivered: (heldBytes) => !failed && mark.delivered(heldBytes) };
    },
    input(chunk, kept) {
      try {
        if (!failed) return tap.input(chunk, kept);
      } catch {
        failed = true;
      }
      return { ...urgentInput(chunk, kept), answeredProbe: Infinity };
    },
    nextProbe: () => (failed ? undefined : tap.nextProbe?.()),
    incompleteReason: (backpressured) => (failed ? undefined : tap.incompleteReason(backpressured)),
    hasClientLeft: () => tap.hasClientLeft(),
    farewell: (message, httpStatus) => (failed ? undefined : tap.farewell(message, httpStatus)),
  };
}

/**
 * Finds the ports that a port-forward opens. The client names the port of each stream in the SYN_STREAM. The SPDY
 * connection may be inside WebSocket messages. Parses only the bytes that the client sends, and skips payloads.
 * Sources: client-go `portforward.go`, kubelet `cri/streaming/portforward/httpstream.go`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { TailcastError } from '../errors.ts';
import { createHeaderInflater } from '../wire/spdy/headers.ts';
import { createSpdyParser } from '../wire/spdy/frame.ts';
import { createWebSocketScanner, OPCODE, unmaskPiece } from '../wire/websocket/frame.ts';
import { asViolation, urgentInput, violation, type Tap } from './tap.ts';

/** WebSocket subprotocol whose messages contain the bytes of a SPDY connection. */
export const PORT_FORWARD_TUNNEL = 'SPDY/3.1+portforward.k8s.io';

/** Parser of the input of a port-forward. */
export interface PortForwardInput extends Pick<Tap, 'input'> {
  /** Ports that were opened so far, in ascending order. */
  readonly ports: readonly number[];
}

/**
 * @param transport `spdy`, or `tunnel` for SPDY in WebSocket messages
 * @param judge throws if the port may not be opened; the SYN_STREAM is then not forwarded
 * @param charge counts bytes of header frames. Returns the time that the client must wait before it may send more, in
 *   milliseconds. Default: no limit
 */
export function createPortForwardInput(
  transport: 'spdy' | 'tunnel',
  judge: (port: number) => void,
  charge: (bytes: number) => number = () => 0,
): PortForwardInput {
  const seen = new Set<number>();
  let waitMs = 0;
  const spdy = createSpdyPorts(
    (port) => {
      judge(port);
      if (seen.size < MAX_PORTS) seen.add(port);
    },
    (bytes) => {
      waitMs = charge(bytes);
      if (waitMs > MAX_WAIT_MS) throw new TailcastError('SESSION_LIMIT', TOO_MANY_STREAMS);
    },
  );
  const read = transport === 'spdy' ? spdy : createTunnelReader(spdy);
  return {
    get ports() {
      return [...seen].toSorted((a, b) => a - b);
    },
    input(chunk, kept) {
      waitMs = 0;
      try {
        read(chunk);
      } catch (error) {
        throw asViolation(error);
      }
      const input = urgentInput(chunk, kept);
      return waitMs === 0 ? input : { ...input, recorded: sleep(waitMs, undefined, { ref: false }) };
    },
  };
}

/**
 * Maximum number of ports in the log entry of a port-forward. All ports are checked, even those that are not logged.
 */
const MAX_PORTS = 100;
/** Maximum number of HEADERS frames. kubectl sends none: it names the port in SYN_STREAM frames. */
const MAX_EXTRA_HEADERS = 64;

/**
 * Maximum rate of header frames for all port-forwards of a caller together, in bytes. Parsing costs up to 3 µs of CPU
 * time per byte. kubectl sends about 55 bytes per stream, and opens two streams for each connection through a
 * port-forward.
 */
export const PORT_FORWARD_RATE = { perSecond: 32 * 1024, burst: 64 * 1024 } as const;
/**
 * The gateway delays header frames above the rate. If a frame would wait longer than this time, the gateway ends its
 * session. This happens only to callers with several busy port-forwards.
 */
const MAX_WAIT_MS = 15_000;
const TOO_MANY_STREAMS = 'your port-forwards open too many connections per second';
/** Number of bytes of a SYN_STREAM frame before its header block. */
const SYN_STREAM_BYTES = 18;

function createSpdyPorts(
  open: (port: number) => void,
  charge: (bytes: number) => void,
): (chunk: Uint8Array) => void {
  const parser = createSpdyParser();
  const headers = createHeaderInflater();
  let extra = 0;
  return (chunk) => {
    for (const event of parser.push(chunk)) {
      if (event.kind !== 'synStream' && event.kind !== 'headers') continue;
      if (event.kind === 'headers') extra += 1;
      if (extra > MAX_EXTRA_HEADERS) throw violation('a SPDY client sends too many HEADERS frames');
      charge(SYN_STREAM_BYTES + event.block.length);
      const values = headers.decode(event.block).get('port');
      if (event.kind === 'synStream' && values !== undefined) openFirst(values, open);
    }
  };
}

/**
 * Calls `open` with the port that the kubelet would open: the first of several values. Leading zeros are allowed, as in
 * Go's `ParseUint`. Ignores a value that is not a number, because the kubelet opens no port for it.
 */
function openFirst(values: string, open: (port: number) => void): void {
  const [port = ''] = values.split('\0', 1);
  if (/^\d+$/.test(port)) open(Number(port));
}

function createTunnelReader(spdy: (chunk: Uint8Array) => void): (chunk: Uint8Array) => void {
  const scanner = createWebSocketScanner({ expectMask: true });
  return (chunk) => {
    for (const piece of scanner.push(chunk)) {
      if (piece.rsv !== 0) throw violation('a WebSocket frame is compressed or extended');
      if (piece.opcode < OPCODE.close) spdy(unmaskPiece(piece));
    }
  };
}

import type { Duplex } from 'node:stream';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import { withTimeout } from '../async/with-timeout.ts';
import type { DialRecorder } from './recorder-connection.ts';

/** Delay before the next address of a node is tried in parallel (RFC 8305 §5). */
const NEXT_ADDRESS_DELAY_MS = 250;

/**
 * Connects to the first address of a node that accepts the connection. Tries the addresses in order, each 250 ms after
 * the previous address. Without parallel attempts, an unreachable IPv6 address would cost a complete timeout.
 * @throws Error with the reason of each address, or the reason of `signal`
 */
export async function dialNode(
  addresses: readonly string[],
  dial: DialRecorder,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<{ readonly address: string; readonly socket: Duplex }> {
  signal.throwIfAborted();
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  let won = false;
  const attempts = addresses.map(async (address, index) => {
    if (index > 0) await headStart(index * NEXT_ADDRESS_DELAY_MS, either);
    const socket = await withTimeout(timeoutMs, `connecting to ${address}`, either, (given) =>
      dialAndKeep(address, dial, given),
    );
    if (won) {
      socket.destroy();
      throw new Error(`${address} was not needed`);
    }
    won = true;
    return { address, socket };
  });
  try {
    return await Promise.any(attempts);
  } catch (error) {
    signal.throwIfAborted();
    const reasons: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
    throw new Error(reasons.map(errorText).join('; '), { cause: error });
  } finally {
    stop.abort(new Error('another address answered'));
  }
}

/** Connects to an address. If `signal` aborts first, closes the socket after it has opened. */
async function dialAndKeep(address: string, dial: DialRecorder, signal: AbortSignal): Promise<Duplex> {
  const socket = await dial(address, signal);
  // Without a listener, an error of the unused socket would end the process.
  socket.on('error', () => {});
  if (signal.aborted) {
    socket.destroy();
    signal.throwIfAborted();
  }
  return socket;
}

async function headStart(ms: number, signal: AbortSignal): Promise<void> {
  if (!(await pause(ms, signal))) signal.throwIfAborted();
}

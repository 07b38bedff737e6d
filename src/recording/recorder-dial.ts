import type { Duplex } from 'node:stream';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import { within } from '../async/within.ts';
import type { DialRecorder } from './recorder-connection.ts';

/** How long an address of a node has the field for itself before the next one is tried beside it (RFC 8305 §5). */
const NEXT_ADDRESS_DELAY_MS = 250;

/**
 * Connects to the first address of one node that answers. Addresses are tried in order, each a little after the one
 * before, so that a node whose IPv6 address leads nowhere costs a quarter of a second and not a whole timeout.
 * @throws Error with the reason of every address, or the reason of `signal`
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
    const socket = await within(timeoutMs, `connecting to ${address}`, either, (given) =>
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

/** A dial that ends after its signal aborted must not leave an open socket behind. */
async function dialAndKeep(address: string, dial: DialRecorder, signal: AbortSignal): Promise<Duplex> {
  const socket = await dial(address, signal);
  // Errors are told to whoever uses the socket; until somebody does, they must not end the process.
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

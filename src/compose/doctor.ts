/** Options and helpers of the checks of `tailcast doctor`. The checks of each role have their own file. */
import { once } from '../doctor/checks.ts';
import { createLocalApi } from '../tailnet/local-api.ts';

export interface DoctorOptions {
  readonly environment: ReadonlyMap<string, string>;
  /**
   * Stops all checks when it aborts. The caller must abort this signal in the end, because the watch of the tailnet
   * runs until then.
   */
  readonly signal: AbortSignal;
  /** Tailnet node to which the check of grants is limited; undefined for all nodes. */
  readonly caller: string | undefined;
}

/** Number of bytes in one MiB. */
export const MIB = 1024 ** 2;

/** The LocalAPI of tailscaled, and the status of tailscaled. */
export type LocalStatus = ReturnType<typeof openStatus>;

/**
 * Creates a client of the LocalAPI. The client closes when `signal` aborts. `status` reads the status once and shares
 * it between checks.
 */
export function openStatus(socket: string | undefined, signal: AbortSignal) {
  const localApi = createLocalApi({ socketPath: socket ?? '' });
  signal.addEventListener('abort', () => localApi.close(), { once: true });
  return { socketPath: localApi.socketPath, localApi, status: once(() => localApi.status(signal)) };
}

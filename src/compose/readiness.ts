/** What roles beside tailscaled, or with a mounted file, wait for before they are ready. */
import type { FollowedFile } from '../followed-file.ts';
import type { ReadinessCheck } from '../observe/ops-server.ts';
import type { LocalApi } from '../tailnet/local-api.ts';

/** @throws Error when tailscaled does not answer, or is not connected */
async function assertRunning(localApi: LocalApi, signal: AbortSignal): Promise<void> {
  const { backendState } = await localApi.status(signal, { peers: false });
  if (backendState !== 'Running') throw new Error(`tailscaled is in state ${backendState}`);
}

/** Whether tailscaled is connected. */
export function tailscaledCheck(localApi: LocalApi): ReadinessCheck {
  return { name: 'tailscaled', check: (signal) => assertRunning(localApi, signal) };
}

/** Whether the file has been read once. */
export function fileCheck(name: string, path: string, file: FollowedFile<unknown>): ReadinessCheck {
  return {
    name,
    check: () =>
      file.current === undefined ? Promise.reject(new Error(`${path} has not been read`)) : Promise.resolve(),
  };
}

/** Readiness checks for roles that need tailscaled or a mounted file. */
import type { FollowedFile } from '../followed-file.ts';
import type { ReadinessCheck } from '../observe/ops-server.ts';
import type { LocalApi } from '../tailnet/local-api.ts';

/** @throws Error if tailscaled does not respond or is not connected */
async function assertRunning(localApi: LocalApi, signal: AbortSignal): Promise<void> {
  const { backendState } = await localApi.status(signal, { peers: false });
  if (backendState !== 'Running') throw new Error(`tailscaled is in state ${backendState}`);
}

/** Readiness check: tailscaled is connected. */
export function tailscaledCheck(localApi: LocalApi): ReadinessCheck {
  return { name: 'tailscaled', check: (signal) => assertRunning(localApi, signal) };
}

/** Readiness check: the mounted file was read at least once. */
export function fileCheck(name: string, path: string, file: FollowedFile<unknown>): ReadinessCheck {
  return {
    name,
    check: () =>
      file.current === undefined ? Promise.reject(new Error(`${path} has not been read`)) : Promise.resolve(),
  };
}

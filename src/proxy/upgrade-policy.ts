/** What is done with an upgrade, by what it is for and what must be recorded. Pure. */
import type { RequestClass } from '../kube/interactive.ts';
import type { RecordingPolicy } from '../recording/policy.ts';

export type UpgradeDecision =
  | { readonly action: 'record' }
  | { readonly action: 'tunnel' }
  | { readonly action: 'refuse'; readonly reason: string };

/** Decides for one request; see `decideUpgrade` for the usual answers. */
export type DecideUpgrade = (requestClass: RequestClass, recording: RecordingPolicy) => UpgradeDecision;

/**
 * exec and attach are recorded when somebody is to record them; port-forwards and one-way streams (watch and log over
 * WebSocket) pass; everything else that could be a terminal passes only where nothing has to be recorded.
 */
export const decideUpgrade: DecideUpgrade = (requestClass, recording) => {
  switch (requestClass) {
    case 'exec':
    case 'attach':
      return recording.mode === 'off' ? { action: 'tunnel' } : { action: 'record' };
    case 'portForward':
    case 'streamUpgrade':
      return { action: 'tunnel' };
    case 'nodeProxy':
    case 'podProxy':
    case 'serviceProxy':
    case 'opaqueUpgrade':
    case 'ephemeralContainers':
    case 'longRunning':
    case 'plain':
      return recording.mode === 'failClosed'
        ? {
            action: 'refuse',
            reason: 'your sessions must be recorded, and an upgrade on this path cannot be',
          }
        : { action: 'tunnel' };
  }
};

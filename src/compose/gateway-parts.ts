/** Options of a gateway, and the parts that the functions that assemble it share. */
import type { GatewayConfig } from '../config/gateway.ts';
import type { LineSink } from '../observe/access-log.ts';
import type { Events } from '../observe/events.ts';
import type { Logger } from '../observe/logger.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Policy } from '../proxy/gate/policy.ts';
import type { UserLimits } from '../proxy/gate/user-limits.ts';
import type { RequestEvents } from '../recording/request-event.ts';
import type { Identity } from '../tailnet/identity.ts';
import type { CleanUp } from './clean-up.ts';
import type { Tailnet } from './tailnet.ts';

export interface GatewayOptions {
  readonly config: GatewayConfig;
  readonly environment: ReadonlyMap<string, string>;
  readonly log: Logger;
  /** Receives the lines of the access log. */
  readonly accessSink: LineSink;
  /** Identity to use instead of the identity file in the settings. */
  readonly identity?: Identity;
  /** Token that every request must contain. Default: none. */
  readonly callerToken?: string;
  /** Default: a new registry. */
  readonly metrics?: Metrics;
  /** Limits per user. Default: derived from the available memory and `requestsPerUser`. */
  readonly userLimits?: { readonly connections: number; readonly bytes: number };
}

export interface GatewayParts extends GatewayOptions {
  readonly metrics: Metrics;
  readonly policy: Policy;
  readonly tailnet: Tailnet;
  readonly events: Events;
  readonly requestEvents: RequestEvents;
  readonly limits: { readonly requests: number; readonly users: UserLimits };
  readonly stateDirectory: string;
  /** Aborts when the gateway closes. */
  readonly signal: AbortSignal;
  readonly stack: CleanUp;
}

/** What is counted and written down about an upgrade, however it goes: its answer, and its line in the access log. */
import type { IncomingMessage } from 'node:http';
import type { ErrorCode } from '../../errors.ts';
import { CLIENT_LEFT, loggedPath, type AccessLog } from '../../observe/access-log.ts';
import type { Metrics } from '../../observe/metrics.ts';
import { callerName, type Peer } from '../../tailnet/identity.ts';
import type { Admission } from '../gate/gate.ts';
import type { SessionResult } from './upgrade-session.ts';

export interface AccountDeps {
  readonly metrics: Pick<Metrics, 'requestStarted' | 'requestFinished'>;
  readonly accessLog: Pick<AccessLog, 'write'>;
  readonly monotonicMs: () => number;
}

export interface UpgradeAccount {
  admitted(admission: Admission): void;
  /** The status that was sent, the first time; later ones change nothing. `error`: it was the gateway’s own. Returns what counts. */
  answered(status: number, error?: ErrorCode): number;
  /** Nothing more happens. The line in the access log says how long it all took and how much went by. */
  closed(result?: SessionResult): void;
}

const NOTHING: SessionResult = { fromClient: 0, fromUpstream: 0 };

/** Opens the account of one upgrade; `closed` must be called in the end. */
export function openAccount(request: IncomingMessage, peer: Peer, deps: AccountDeps): UpgradeAccount {
  const startedAtMs = deps.monotonicMs();
  let who = { id: '', user: '' };
  let sent: number | undefined;
  let refused: ErrorCode | undefined;
  deps.metrics.requestStarted();
  const answered = (status: number, error?: ErrorCode): number => {
    if (sent !== undefined) return sent;
    sent = status;
    refused = error;
    // what comes after a 101 is counted as a session
    deps.metrics.requestFinished({
      protocol: 'upgrade',
      status,
      seconds: (deps.monotonicMs() - startedAtMs) / 1000,
      longRunning: false,
      requestBytes: 0,
      responseBytes: 0,
    });
    return status;
  };
  return {
    admitted({ id, identity }) {
      who = { id, user: callerName(identity) };
    },
    answered,
    closed(result = NOTHING) {
      const status = answered(CLIENT_LEFT);
      const error = result.error ?? refused;
      deps.accessLog.write({
        ...who,
        ...whatWasAsked(request, peer),
        protocol: 'upgrade',
        status,
        durationMs: deps.monotonicMs() - startedAtMs,
        requestBytes: result.fromClient,
        responseBytes: result.fromUpstream,
        ...(error === undefined ? {} : { error }),
      });
    },
  };
}

/** For logs: a request, without its query. */
export function whatWasAsked(
  { method = '', url = '' }: IncomingMessage,
  peer: Peer,
): { readonly peer: string; readonly method: string; readonly path: string } {
  return { peer: peer.address, method, path: loggedPath(url) };
}

/** What is counted and written down about one request for the portal, however it goes. */
import { callerName } from '../tailnet/identity.ts';
import { errorText, TailcastError, type ErrorCode } from '../errors.ts';
import { CLIENT_LEFT, loggedPath, type AccessLog } from '../observe/access-log.ts';
import type { Events } from '../observe/events.ts';
import type { Metrics, Protocol } from '../observe/metrics.ts';
import type { Caller, InboundRequest } from '../proxy/gate/gate.ts';

export interface AccountDeps {
  readonly metrics: Pick<Metrics, 'requestStarted' | 'requestFinished'>;
  readonly accessLog: Pick<AccessLog, 'write'>;
  readonly events: Pick<Events, 'requestRefused'>;
  readonly monotonicMs: () => number;
}

export interface Account {
  /** A status has been sent. */
  readonly begun: boolean;
  recognised(caller: Caller): void;
  answered(status: number, bytes?: number): void;
  /** Bytes of a body that has begun. */
  sent(bytes: number): void;
  /** The gateway itself says no. */
  refused(error: unknown, status: number): void;
  /** What had begun did not come to its end. */
  broken(error: unknown): void;
  /** Nothing more happens; counts once. */
  closed(): void;
}

export function openAccount(protocol: Protocol, request: InboundRequest, deps: AccountDeps): Account {
  const startedAtMs = deps.monotonicMs();
  const path = loggedPath(request.target);
  const asked = { protocol, peer: request.peer.address, method: request.method.slice(0, 20), path };
  let who = { id: '', user: '' };
  let status: number | undefined;
  let bytes = 0;
  let problem: ErrorCode | undefined;
  let open = true;
  deps.metrics.requestStarted();
  return {
    get begun() {
      return status !== undefined;
    },
    recognised({ id, identity }) {
      who = { id, user: callerName(identity) };
    },
    answered(sent, whole = 0) {
      status = sent;
      bytes += whole;
    },
    sent(more) {
      bytes += more;
    },
    refused(error, sent) {
      const known = error instanceof TailcastError ? error : new TailcastError('INTERNAL');
      status = sent;
      problem = known.code;
      const reason = error instanceof TailcastError ? error.message : errorText(error);
      deps.events.requestRefused({ ...who, ...asked, code: known.code, reason });
    },
    broken(error) {
      problem = error instanceof TailcastError ? error.code : 'RECORDER_UNREACHABLE';
    },
    closed() {
      if (!open) return;
      open = false;
      const durationMs = deps.monotonicMs() - startedAtMs;
      const sizes = { requestBytes: 0, responseBytes: bytes };
      const counted = { protocol, status: status ?? CLIENT_LEFT, ...sizes };
      deps.metrics.requestFinished({ ...counted, seconds: durationMs / 1000, longRunning: true });
      const error = problem === undefined ? {} : { error: problem };
      deps.accessLog.write({ ...who, ...asked, ...counted, durationMs, ...error });
    },
  };
}

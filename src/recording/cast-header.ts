/**
 * Creates the header line of a recording, and the session annotation. The annotation contains data for which asciicast
 * has no field.
 */
import type { ExecOptions } from '../kube/exec-options.ts';
import type { RequestInfo } from '../kube/request-info.ts';
import type { Identity } from '../tailnet/identity.ts';
import {
  AUDIT_ID_KEY,
  CLUSTER_KEY,
  CONVENTIONS,
  CONVENTIONS_KEY,
  encodeCastHeader,
} from '../wire/asciicast/header.ts';
import type { SessionAnnotation } from '../wire/recorder-api/annotation.ts';
import type { TerminalSize } from '../wire/remotecommand/resize.ts';

/** Properties of a session that the gateway knows before the first byte of the session. */
export interface SessionBeginning {
  /**
   * Id of the session. The id also becomes the field `connectionID` of the header; the reference leaves that field
   * empty for Kubernetes sessions.
   */
  readonly sessionId: string;
  readonly identity: Identity;
  readonly info: RequestInfo;
  readonly exec: ExecOptions;
  /** Start of the session, in Unix seconds. */
  readonly timestamp: number;
  /** User that the gateway impersonates; undefined in noauth mode. */
  readonly user: string | undefined;
  /** Id of the session in the API server's audit log; undefined if the client or the API server chose this id. */
  readonly auditId: string | undefined;
  readonly groups: readonly string[];
  readonly protocol: 'spdy' | 'websocket';
  readonly subprotocol: string;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string | undefined;
  /** True if the session runs only while a moderator watches it. */
  readonly moderated?: boolean;
}

/** Returns the header line. For a session without a terminal, `size` has 0 columns and 0 rows. */
export function castHeaderLine(facts: SessionBeginning, size: TerminalSize): string {
  const { identity, info, exec } = facts;
  return encodeCastHeader({
    version: 2,
    width: size.columns,
    height: size.rows,
    timestamp: facts.timestamp,
    ...(exec.command.length === 0 ? {} : { command: exec.command.join(' ') }),
    srcNode: identity.nodeName,
    srcNodeID: identity.nodeId,
    ...(identity.kind === 'tagged'
      ? { srcNodeTags: identity.tags }
      : { srcNodeUserID: identity.userId, srcNodeUser: identity.login }),
    env: null,
    sshUser: '',
    localUser: '',
    connectionID: facts.sessionId,
    kubernetes: {
      PodName: info.name,
      Namespace: info.namespace,
      Container: exec.container ?? '',
      SessionType: info.subresource,
    },
    extra: new Map<string, string | number>([
      [CONVENTIONS_KEY, CONVENTIONS],
      ...(facts.user === undefined ? ([[AUDIT_ID_KEY, facts.auditId ?? '']] as const) : []),
      ...(facts.cluster === undefined ? [] : ([[CLUSTER_KEY, facts.cluster]] as const)),
    ]),
  });
}

/** Returns the session annotation, which follows the header line. */
export function sessionAnnotation(facts: SessionBeginning): SessionAnnotation {
  const { exec, subprotocol, user } = facts;
  return {
    kind: 'session',
    id: facts.sessionId,
    ...(user === undefined ? {} : { user }),
    ...(facts.groups.length === 0 ? {} : { groups: facts.groups }),
    ...(exec.command.length === 0 ? {} : { argv: exec.command }),
    tty: exec.tty,
    stdin: exec.stdin,
    protocol: facts.protocol,
    ...(subprotocol === '' ? {} : { subprotocol }),
    path: facts.info.path,
    ...(facts.cluster === undefined ? {} : { cluster: facts.cluster }),
    ...(facts.moderated === true ? { moderated: true } : {}),
  };
}

/**
 * Parses the query of `pods/exec` and `pods/attach` with the rules of the API server, so that the recording names
 * the command that runs. Source: `PodExecOptions` and `PodAttachOptions` of Kubernetes' core v1 API, and
 * apimachinery's query conversions.
 */
import { firstQueryValue, queryFlag, queryValues, type Target } from './canonical-target.ts';

export interface ExecOptions {
  /** Undefined if the API server chooses (the pod's only container). */
  readonly container: string | undefined;
  /** Words of the command: one element per `command` parameter, so arguments stay separate. Empty for attach. */
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  /** The value is never true with a terminal, because a terminal has only one output. */
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Parses the options of an exec or attach target. `parseTarget` limits counts and sizes. */
export function parseExecOptions(target: Pick<Target, 'query'>): ExecOptions {
  const { query } = target;
  const container = firstQueryValue(query, 'container');
  const tty = queryFlag(query, 'tty');
  return {
    container: container === '' ? undefined : container,
    command: queryValues(query, 'command'),
    stdin: queryFlag(query, 'stdin'),
    stdout: queryFlag(query, 'stdout'),
    stderr: queryFlag(query, 'stderr') && !tty,
    tty,
  };
}

/**
 * Parses the query of `pods/exec` and `pods/attach` like the API server, so that the recording contains the command
 * that actually runs. Source: `PodExecOptions` and `PodAttachOptions` of Kubernetes' core v1 API, and apimachinery's
 * query conversions.
 */
import { firstQueryValue, queryFlag, queryValues, type Target } from './canonical-target.ts';

export interface ExecOptions {
  /**
   * Name of the container. Undefined if the request does not name one; the API server then uses the pod's only
   * container.
   */
  readonly container: string | undefined;
  /** The command and its arguments, one element for each `command` parameter. Empty for attach. */
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  /** True if the client gets stderr. Never true together with `tty`, because a terminal has only one output. */
  readonly stderr: boolean;
  readonly tty: boolean;
}

/**
 * Parses the options of an exec or attach target. `parseTarget` has already limited the number and size of the
 * options.
 */
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

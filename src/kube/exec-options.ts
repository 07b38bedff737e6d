/**
 * The query of `pods/exec` and `pods/attach`, read with the API server's rules, so that what is recorded is what runs.
 * Source: `PodExecOptions` and `PodAttachOptions` of Kubernetes' core v1 API, and apimachinery's query conversions.
 */
import { firstQueryValue, queryFlag, queryValues, type Target } from './canonical-target.ts';

export interface ExecOptions {
  /** Undefined when the client left the choice to the API server (the pod's only container). */
  readonly container: string | undefined;
  /** One element per `command` parameter: argument boundaries are kept. Empty for attach. */
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  /** Never true with a terminal, whatever was sent: a terminal has one output. */
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** The options of an exec or attach target. Counts and sizes are bounded by `parseTarget`. */
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

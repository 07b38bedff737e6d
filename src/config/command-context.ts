import type { Readable, Writable } from 'node:stream';

/** Environment of a command: its streams, variables and the signal that stops it. */
export interface CommandContext {
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number };
  readonly stderr: Writable;
  /** Key presses of a user at a terminal. */
  readonly stdin?: Readable & { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown };
  readonly environment: ReadonlyMap<string, string>;
  /** Aborted by Ctrl-C or a termination signal. */
  readonly signal: AbortSignal;
  /**
   * Shows a text in the pager of the person at the terminal, and resolves when the person closes it.
   * @returns false when there is no pager
   */
  readonly page?: (text: string) => Promise<boolean>;
  /** Command that the user typed, for example `kubectl tailcast`. Default: `tailcast`. */
  readonly programName?: string;
}

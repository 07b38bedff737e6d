import type { Readable, Writable } from 'node:stream';

/** Input of a command: its streams, environment variables, and the signal that stops the command. */
export interface CommandContext {
  readonly stdout: Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number };
  readonly stderr: Writable;
  /** Standard input, from which a command reads key presses at a terminal. */
  readonly stdin?: Readable & { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown };
  readonly environment: ReadonlyMap<string, string>;
  /** Aborts after Ctrl-C or a termination signal. */
  readonly signal: AbortSignal;
  /**
   * Shows a text in the pager of the user at the terminal, and resolves when the user closes the pager.
   * @returns false if there is no pager
   */
  readonly page?: (text: string) => Promise<boolean>;
  /** Name of the command as the user typed it, for example `kubectl tailcast`. Default: `tailcast`. */
  readonly programName?: string;
}

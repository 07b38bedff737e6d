/** The commands of `tailcast`, with their exit codes. */
import { Command } from 'commander';
import type { CommandContext } from '../config/command-context.ts';

/** Parsed options of a command. */
export type Options = Readonly<Record<string, unknown>>;

/** Arguments of the command in order, then its options. */
type Run = (...args: never[]) => void | Promise<number | void>;

/** Result of an invocation, which all commands of a program share. */
interface Outcome {
  code: number;
  /** Exit code for a TailcastError, if the command defines one. */
  failureCode?: number;
}

export class Tool extends Command {
  readonly context: CommandContext;
  readonly outcome: Outcome;
  #failureCode: number | undefined;

  constructor(name: string, context: CommandContext, outcome: Outcome = { code: 0 }) {
    super(name);
    this.context = context;
    this.outcome = outcome;
  }

  override createCommand(name = ''): Tool {
    return new Tool(name, this.context, this.outcome);
  }

  /** Adds a command. */
  add(name: string, description: string): Tool {
    return this.command(name).description(description);
  }

  /** Sets the exit code for a TailcastError. */
  failsWith(code: number): this {
    this.#failureCode = code;
    return this;
  }

  /** Sets the function that runs the command. The function returns the exit code; default: 0. */
  override action(run: Run): this {
    return super.action((...args: unknown[]) => this.#run(run, args));
  }

  /** Sets a function that is loaded when the command runs. The context is its last argument. */
  loads(load: () => Promise<Run>): this {
    return super.action(async (...args: unknown[]) =>
      this.#run(await load(), [...args.slice(0, -1), this.context]),
    );
  }

  async #run(run: Run, args: readonly unknown[]): Promise<void> {
    if (this.#failureCode !== undefined) this.outcome.failureCode = this.#failureCode;
    const code: unknown = await Reflect.apply(run, undefined, args);
    this.outcome.code = typeof code === 'number' ? code : 0;
  }
}

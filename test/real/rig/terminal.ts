/** A program on a pseudo-terminal. Tests wait for output and then type. */
import { type IPty, spawn } from '@lydell/node-pty';

export interface Terminal {
  /** Complete output of the program so far, byte for byte as text. */
  output(): string;
  /**
   * Resolves when `wanted` appears after the previous match.
   *
   * @returns the output since the previous match, including the new match
   */
  expect(wanted: string | RegExp, timeoutMs?: number): Promise<string>;
  type(text: string): void;
  resize(columns: number, rows: number): void;
  /** Resolves with the exit code. */
  readonly ended: Promise<number>;
  kill(): void;
}

export interface TerminalOptions {
  readonly env: Readonly<Record<string, string>>;
  readonly columns?: number;
  readonly rows?: number;
  /** Receives all output of the program. */
  readonly onOutput?: (text: string) => void;
}

const EXPECT_MS = 15_000;

/** Starts a program on a new pseudo-terminal, which defines size, echo and signals. */
export function openTerminal(path: string, args: readonly string[], options: TerminalOptions): Terminal {
  const pty: IPty = spawn(path, [...args], {
    name: 'xterm',
    cols: options.columns ?? 80,
    rows: options.rows ?? 24,
    env: { ...options.env },
  });
  let text = '';
  let position = 0;
  const listeners = new Set<() => void>();
  const notify = (): void => {
    for (const listener of listeners) listener();
  };
  pty.onData((data) => {
    text += data;
    options.onOutput?.(data);
    notify();
  });
  let code: number | undefined;
  const ended = new Promise<number>((done) => {
    pty.onExit(({ exitCode }) => {
      code = exitCode;
      notify();
      done(exitCode);
    });
  });

  function find(wanted: string | RegExp): string | undefined {
    const rest = text.slice(position);
    const end =
      typeof wanted === 'string'
        ? endOf(rest.indexOf(wanted), wanted.length)
        : endOf(rest.search(wanted), wanted.exec(rest)?.[0].length ?? 0);
    if (end === undefined) return undefined;
    position += end;
    return rest.slice(0, end);
  }

  return {
    output: () => text,
    expect(wanted, timeoutMs = EXPECT_MS) {
      return new Promise((done, fail) => {
        const look = (): void => {
          const found = find(wanted);
          if (found === undefined && code === undefined) return;
          listeners.delete(look);
          clearTimeout(timer);
          if (found !== undefined) done(found);
          else fail(new Error(`ended with code ${code} before ${wanted} appeared:\n${text}`));
        };
        const timer = setTimeout(() => {
          listeners.delete(look);
          fail(new Error(`${wanted} did not appear in ${timeoutMs} ms:\n${text}`));
        }, timeoutMs);
        listeners.add(look);
        look();
      });
    },
    type: (input) => pty.write(input),
    resize: (columns, rows) => pty.resize(columns, rows),
    ended,
    kill: () => pty.kill('SIGKILL'),
  };
}

function endOf(start: number, length: number): number | undefined {
  return start < 0 ? undefined : start + length;
}

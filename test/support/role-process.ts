/** A role of tailcast as a process. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** Folder of this checkout. */
export const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));

/** One line of the role's log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly msg?: string };

export interface RoleProcess {
  readonly pid: number;
  /** Port of the role's service. */
  readonly port: number;
  /** `http://host:port` of health and metrics. */
  readonly ops: string;
  readonly lines: readonly LogLine[];
  /** Returns the first log line that matches; waits if none exists yet. */
  line(fits: (line: LogLine) => boolean): Promise<LogLine>;
  /** Returns the value of a series, whose `name` includes all labels; 0 if the series does not exist. */
  metric(name: string): Promise<number>;
  signal(signal: NodeJS.Signals): void;
  /** Stops the process with SIGTERM. @returns the exit code */
  stop(): Promise<number | null>;
}

/**
 * Starts a role, and resolves when it accepts requests.
 * @param checkout folder of the sources to run
 * @throws Error with the output of the process if the process exits first
 */
export async function startRole(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  checkout: string = CHECKOUT,
): Promise<RoleProcess> {
  const child = spawn(
    process.execPath,
    [join(checkout, 'src', 'main.ts'), ...args, '--ops-listen', '127.0.0.1:0'],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, NODE_NO_WARNINGS: '1', ...environment },
    },
  );
  const ended = once(child, 'exit');
  const lines: LogLine[] = [];
  const wakes = new Set<() => void>();
  const said: string[] = [];
  createInterface({ input: child.stderr }).on('line', (text) => {
    said.push(text);
    try {
      lines.push(JSON.parse(text) as LogLine);
    } catch {
      lines.push({ msg: text });
    }
    for (const wake of wakes) wake();
  });
  const line = async (fits: (line: LogLine) => boolean): Promise<LogLine> => {
    for (;;) {
      const found = lines.find(fits);
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => {
        wakes.add(resolve);
      });
    }
  };
  const ready = await Promise.race([
    line(({ msg }) => msg === `${args[0] ?? ''} is ready`),
    ended.then(() => undefined),
  ]);
  if (ready === undefined) throw new Error(`it did not start: ${said.join('\n')}`);
  const ops = ready['ops'] as { readonly port: number };
  const opsUrl = `http://127.0.0.1:${ops.port}`;
  const listen = String(ready['listen'] ?? ready['url']);
  return {
    pid: child.pid ?? 0,
    port: Number(listen.split(':').at(-1)),
    ops: opsUrl,
    lines,
    line,
    async metric(name) {
      const text = await (await fetch(`${opsUrl}/metrics`)).text();
      const found = text.split('\n').find((row) => row.startsWith(`${name} `));
      return found === undefined ? 0 : Number(found.slice(name.length));
    },
    signal: (signal) => void child.kill(signal),
    async stop() {
      if (child.exitCode === null) child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
      const [code] = (await ended) as [number | null];
      clearTimeout(timer);
      return code;
    },
  };
}

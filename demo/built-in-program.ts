import { createServer, type Server } from 'node:http';
import { PassThrough } from 'node:stream';
import { listenOn } from '../src/listen.ts';
import { createOutput } from './output.ts';
import type { ExitResult, RunningProcess } from './process.ts';

/** A program that runs inside this process, for containers whose spec has no command. */
export interface BuiltInProgram extends RunningProcess {
  /**
   * Local port that stands for the container's port. Resolves when the program listens, and rejects if it cannot
   * listen.
   */
  readonly port: Promise<number> | undefined;
}

/** Prints `lines` and waits for a signal. */
export function startIdleProgram(lines: readonly string[]): BuiltInProgram {
  return startProgram(lines, undefined);
}

/**
 * A small web server on a free local port. The server returns a page with the name of its pod, and prints an access
 * log.
 */
export function startWebProgram(podName: string): BuiltInProgram {
  return startProgram([`${podName}: serving one page`], (print) =>
    createServer((request, response) => {
      const found = request.url === '/';
      const body = found
        ? `<!doctype html><title>tailcast demo</title><h1>Hello from pod ${podName}</h1>\n`
        : 'not found\n';
      response.writeHead(found ? 200 : 404, { 'content-type': found ? 'text/html' : 'text/plain' });
      response.end(request.method === 'HEAD' ? undefined : body);
      const time = new Date().toISOString();
      print(
        `127.0.0.1 - - [${time}] "${request.method ?? ''} ${request.url ?? ''}" ${found ? '200' : '404'}`,
      );
    }),
  );
}

function startProgram(
  lines: readonly string[],
  createWebServer: ((print: (line: string) => void) => Server) | undefined,
): BuiltInProgram {
  const screen = new PassThrough();
  const stdout = createOutput(screen);
  const ended = Promise.withResolvers<ExitResult>();
  const print = (line: string): void => {
    // If nothing reads the output, log lines are dropped, so that the web server does not wait.
    if (!screen.writableEnded && !screen.writableNeedDrain) screen.write(`${line}\n`);
  };
  for (const line of lines) print(line);
  const server = createWebServer?.(print);
  const end = (result: ExitResult): void => {
    server?.close();
    server?.closeAllConnections();
    if (!screen.writableEnded) screen.end();
    ended.resolve(result);
  };
  return {
    pid: undefined,
    stdin: undefined,
    stdout,
    stderr: undefined,
    resize: () => undefined,
    kill(signal) {
      if (signal === 'SIGTERM' || signal === 'SIGINT' || signal === 'SIGHUP') end({ code: 0, signal: 0 });
      if (signal === 'SIGKILL') end({ code: 137, signal: 9 });
    },
    exited: ended.promise,
    port: server && listenOn(server, { host: '127.0.0.1', port: 0 }).then(({ port }) => port),
  };
}

/** A WebSocket client of an exec session (`v5.channel.k8s.io`). */
import { once } from 'node:events';
import { WebSocket } from 'ws';

export interface ExecClient {
  /** Output of the command so far. */
  readonly output: string;
  /** Content of the error channel: a `metav1.Status`. */
  readonly status: { readonly status: string; readonly message?: string } | undefined;
  write(text: string): void;
  /** Resolves when the output contains `text`. @throws Error if the session ends first */
  until(text: string): Promise<void>;
  /** Resolves when the connection is closed. */
  readonly over: Promise<void>;
  close(): void;
}

/** Thrown if the server refuses the session before the upgrade. */
export class RefusedError extends Error {
  readonly httpStatus: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: { readonly reason?: string; readonly message?: string };

  constructor(httpStatus: number, headers: RefusedError['headers'], body: string) {
    super(`refused with ${httpStatus}: ${body}`);
    this.httpStatus = httpStatus;
    this.headers = headers;
    this.body = JSON.parse(body) as RefusedError['body'];
  }
}

/** @throws RefusedError */
export async function openExec(options: {
  /** `https://host:port` */
  readonly url: string;
  readonly caPem: string;
  readonly pod: string;
  readonly command: readonly string[];
  readonly token?: string;
}): Promise<ExecClient> {
  const query = new URLSearchParams([
    ['stdin', 'true'],
    ['stdout', 'true'],
    ['stderr', 'true'],
  ]);
  for (const word of options.command) query.append('command', word);
  const address = new URL(
    `/api/v1/namespaces/default/pods/${options.pod}/exec?${query.toString()}`,
    options.url,
  );
  address.protocol = 'wss:';
  const socket = new WebSocket(address, ['v5.channel.k8s.io'], {
    ca: options.caPem,
    ...(options.token === undefined ? {} : { headers: { authorization: `Bearer ${options.token}` } }),
  });
  const refused = new Promise<RefusedError>((resolve) => {
    socket.once('unexpected-response', (_request, response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString()));
      response.on('end', () => resolve(new RefusedError(response.statusCode ?? 0, response.headers, body)));
    });
  });
  let output = '';
  let status: ExecClient['status'];
  const wakes = new Set<() => void>();
  let ended = false;
  const over = new Promise<void>((resolve) => {
    socket.once('close', () => {
      ended = true;
      resolve();
      for (const wake of wakes) wake();
    });
  });
  socket.on('message', (data: Buffer) => {
    if (data[0] === 1 || data[0] === 2) output += data.subarray(1).toString();
    if (data[0] === 3) status = JSON.parse(data.subarray(1).toString()) as NonNullable<ExecClient['status']>;
    for (const wake of wakes) wake();
  });
  const opened = once(socket, 'open').then(() => undefined);
  socket.on('error', () => undefined);
  const refusal = await Promise.race([opened, refused]);
  if (refusal !== undefined) throw refusal;
  return {
    get output() {
      return output;
    },
    get status() {
      return status;
    },
    write: (text) => socket.send(Buffer.concat([Uint8Array.of(0), Buffer.from(text)])),
    async until(text) {
      for (let from = 0; !output.includes(text, from);) {
        from = Math.max(0, output.length - text.length);
        if (ended) throw new Error(`the session ended; it had said ${JSON.stringify(output)}`);
        await new Promise<void>((resolve) => {
          wakes.add(resolve);
        });
      }
    },
    over,
    close: () => socket.terminate(),
  };
}

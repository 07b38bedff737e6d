/** `tailcast ingress` between hostile clients and hostile Services, without TLS, over HTTP/1.1 and HTTP/2. */
import { once } from 'node:events';
import { createServer as createService, request as ask, type IncomingMessage } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { IngressServer, type IngressServerOptions, type RequestOutcome } from '../../src/ingress/server.ts';
import { createUpstreams } from '../../src/ingress/upstreams.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { createTailnetListener, type TailnetListener } from '../../src/tailnet/listener.ts';
import type { IngressTable } from '../../src/wire/ingress-table.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { FRAME, PREFACE, encodeFrame, readFrames } from './raw-http2.ts';
import { listenOn } from '../support/listen.ts';

export const HONEST = 'honest.example.org';
/** Host names of Services with scripted responses: the first over HTTP/1.1, the second over HTTP/2. */
export const HOSTILE = 'hostile.example.org';
export const HOSTILE_RPC = 'rpc.example.org';

export const ALICE: Identity = {
  kind: 'user',
  nodeId: 'nAlice',
  nodeName: 'alice.lab.ts.net',
  addresses: ['100.64.0.4'],
  capabilities: new Map(),
  userId: 1n,
  login: 'alice@example.com',
  displayName: 'Alice',
};

export interface IngressRig {
  readonly server: IngressServer;
  /** Port for HTTP/1.1. */
  readonly port: number;
  /** Requests to the honest Service. */
  readonly seen: IncomingMessage[];
  readonly ended: RequestOutcome[];
  /** Open connections to the hostile Services. */
  readonly services: Set<Socket>;
  identity: () => Promise<Identity>;
  /** Handles a request or a stream at the hostile Service. */
  script: (socket: Socket, streamId: number) => void;
  connect(protocol: 'h1' | 'h2'): Promise<Socket>;
  /** Opens a request of another user, the witness, which stays open until the test closes it. */
  witness(): Promise<Witness>;
  close(): Promise<void>;
}

export interface Witness {
  /** Checks that the witness's request continues. Rejects if the request was interrupted. */
  goesOn(): Promise<void>;
  end(): void;
}

export async function openIngressRig(
  options: Partial<IngressServerOptions> & { readonly idleMs?: number } = {},
): Promise<IngressRig> {
  const { idleMs = 60_000, ...limits } = options;
  const seen: IncomingMessage[] = [];
  const ended: RequestOutcome[] = [];
  const services = new Set<Socket>();
  const honest = createService((request, response) => {
    seen.push(request);
    request.pipe(response);
  });
  const track = (socket: Socket): void => {
    services.add(socket);
    socket.once('close', () => services.delete(socket));
    socket.on('error', () => {});
  };
  const hostile = createServer((socket) => {
    track(socket);
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (!text.includes('\r\n\r\n')) return;
      text = '';
      rig.script(socket, 0);
    });
  });
  const rpc = createServer((socket) => {
    track(socket);
    socket.once('data', (first: Buffer) => {
      socket.pause();
      socket.unshift(first.subarray(PREFACE.length));
      readFrames(socket, ({ type, streamId }) => {
        if (type === FRAME.headers) rig.script(socket, streamId);
      });
      socket.resume();
      socket.write(encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0)));
    });
  });
  const [own, bad, other] = await Promise.all([honest, hostile, rpc].map(listen));
  const table: IngressTable = {
    version: 1,
    certificates: [],
    secure: [],
    redirect: false,
    hosts: [
      { name: HONEST, prefixes: [['/', `http://127.0.0.1:${own}`]], exact: [] },
      { name: HOSTILE, prefixes: [['/', `http://127.0.0.1:${bad}`]], exact: [] },
      { name: HOSTILE_RPC, prefixes: [['/', `h2c://127.0.0.1:${other}`]], exact: [] },
    ],
  };
  const upstreams = createUpstreams({ idleMs });
  const log = createSilentLogger();
  const server = new IngressServer({
    table: () => table,
    identities: { whois: () => rig.identity() },
    upstreams,
    onEnd: (outcome) => ended.push(outcome),
    log,
    ...limits,
  });
  const door = async (alpn: 'http/1.1' | 'h2'): Promise<TailnetListener> => {
    const common = { host: '127.0.0.1', port: 0, proxyProtocol: 'off', tls: 'none', log } as const;
    const listener = await createTailnetListener(common);
    listener.onConnection((socket, _none, peer) => server.handler(false)(socket, alpn, peer));
    return listener;
  };
  const doors = { h1: await door('http/1.1'), h2: await door('h2') };
  const rig: IngressRig = {
    server,
    port: doors.h1.address.port,
    seen,
    ended,
    services,
    identity: () => Promise.resolve(ALICE),
    script: (socket) => socket.destroy(),
    async connect(protocol) {
      const socket = connect(doors[protocol].address.port, '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      return socket;
    },
    async witness() {
      const request = ask({
        host: '127.0.0.1',
        port: doors.h1.address.port,
        method: 'POST',
        path: '/witness',
        headers: { host: HONEST },
        agent: false,
      });
      request.on('error', () => {});
      request.write('begun');
      const [response] = (await once(request, 'response')) as [IncomingMessage];
      await once(response, 'data');
      let round = 0;
      return {
        async goesOn() {
          const word = `round ${++round}`;
          request.write(word);
          const [heard] = (await once(response, 'data')) as [Buffer];
          if (heard.toString() !== word) throw new Error(`heard ${heard.toString()}`);
        },
        end: () => request.destroy(),
      };
    },
    async close() {
      server.close();
      upstreams.close();
      for (const socket of services) socket.destroy();
      honest.closeAllConnections();
      for (const one of [honest, hostile, rpc]) one.close();
      await Promise.all(Object.values(doors).map((one) => one.close(AbortSignal.abort())));
    },
  };
  return rig;
}

async function listen(server: Server): Promise<number> {
  return await listenOn(server);
}

import { OPCODE } from '../wire/websocket/frame.ts';
import { parsePath } from './api-path.ts';
import { encodeBody, methodNotAllowed } from './api-status.ts';
import type { UserInfo } from './authentication.ts';
import type { ApiExchange, ResponseStream } from './exchange.ts';
import { acceptWebSocket, respondToUpgrade, type ApiUpgrade } from './upgrade.ts';
import { serveWebSocket } from './websocket-server.ts';

/**
 * What a browser may ask for in place of a long answer: the same bytes as messages. `base64.binary.k8s.io` has logs in
 * base64 text; watch events are one JSON text message each whatever was chosen. Source: apiserver
 * `pkg/util/wsstream/stream.go` and `pkg/endpoints/handlers/watch.go` (HandleWS).
 */
const PROTOCOLS = ['', 'binary.k8s.io', 'base64.binary.k8s.io'];

/** An exchange whose streamed answer goes over WebSocket; anything else it answers refuses the upgrade. */
export function createWebSocketExchange(
  upgrade: ApiUpgrade,
  user: UserInfo,
  content: 'events' | 'bytes',
): ApiExchange {
  const { request, socket } = upgrade;
  const { path, query } = parsePath(request.url ?? '/');
  const gone = new AbortController();
  return {
    method: 'GET',
    path,
    query,
    accept: request.headers.accept ?? '',
    contentType: '',
    user,
    signal: gone.signal,
    readBody: () => Promise.reject(methodNotAllowed()),
    readObject: () => Promise.reject(methodNotAllowed()),
    send: (httpStatus, body, contentType = 'application/json') => {
      respondToUpgrade(socket, httpStatus, encodeBody(body), contentType);
    },
    sendText: (httpStatus, text, contentType) => {
      respondToUpgrade(socket, httpStatus, Buffer.from(text).toString('utf8'), contentType);
    },
    stream() {
      const protocol = acceptWebSocket(upgrade, (name) => PROTOCOLS.includes(name));
      return openMessageStream(upgrade, content === 'events' ? 'text' : protocol, () => {
        gone.abort();
      });
    },
  };
}

function openMessageStream(upgrade: ApiUpgrade, protocol: string, onEnd: () => void): ResponseStream {
  const connection = serveWebSocket(upgrade.socket, { onFrame: () => undefined, onEnd });
  const encode = (chunk: string | Uint8Array): readonly [opcode: number, payload: Uint8Array] => {
    if (protocol === 'text') return [OPCODE.text, Buffer.from(chunk)];
    if (protocol !== 'base64.binary.k8s.io') return [OPCODE.binary, Buffer.from(chunk)];
    return [OPCODE.text, Buffer.from(Buffer.from(chunk).toString('base64'))];
  };
  return {
    write: (chunk) =>
      new Promise((resolve) => {
        connection.send(...encode(chunk), resolve);
      }),
    end: () => {
      connection.close(1000);
    },
  };
}

/**
 * Selects the protocol to the API server when a client requests exec or attach over WebSocket: WebSocket, or
 * SPDY/3.1, which the gateway translates (ADR 28). The gateway keeps the client's method, so that RBAC verb
 * and audit entry stay the same. The API server accepts SPDY with GET and with POST.
 */
import { headerLines, withoutHeader } from '../../kube/headers.ts';
import { acceptKey } from '../../kube/websocket-accept.ts';
import { TailcastError } from '../../errors.ts';
import { parseSubprotocol, splitProtocolLines } from '../../wire/remotecommand/channel.ts';
import type { ChannelVersion } from '../../wire/remotecommand/channel.ts';
import type { Admission } from '../gate/gate.ts';
import type { UpgradeAnswer, UpgradeDial } from './dial.ts';
import { ExecOverSpdy, spdyVersionOf } from './exec-over-spdy.ts';

type Switched = Extract<UpgradeAnswer, { kind: 'switched' }>;

/** A WebSocket request of a client, translated to SPDY. */
export interface ExecTranslation {
  readonly dial: UpgradeDial;
  /**
   * Translates the response of the API server into a WebSocket response.
   * @throws TailcastError `UPSTREAM_BROKEN` if the response names no stream protocol
   */
  answer(switched: Switched): Switched;
}

/** Translates a request. Returns undefined if the request must be sent unchanged. */
export type TranslateExec = typeof translateToSpdy;

/**
 * Translates a WebSocket request to SPDY.
 * @param dial the client's own request
 * @returns undefined if the request must be sent unchanged, for example in `noauth` mode or for a base64 subprotocol
 */
export function translateToSpdy(
  {
    requestClass,
    impersonation,
    exec,
    info,
  }: Pick<Admission, 'requestClass' | 'impersonation' | 'exec' | 'info'>,
  dial: UpgradeDial,
): ExecTranslation | undefined {
  if (dial.protocol !== 'websocket' || impersonation === undefined) return undefined;
  if (requestClass !== 'exec' && requestClass !== 'attach') return undefined;
  // An aggregated API server may support only WebSocket.
  if (info.apiGroup !== '') return undefined;
  const chosen = earlyHandshake(dial.headers);
  if (chosen === undefined) return undefined;
  const asked = spdyVersionOf(chosen.version);
  const name = asked === 1 ? 'channel.k8s.io' : `v${asked}.channel.k8s.io`;
  const { stdin, stdout, stderr, tty } = exec;
  return {
    dial: {
      ...dial,
      headers: [...HANDSHAKE.reduce(withoutHeader, dial.headers), 'X-Stream-Protocol-Version', name],
      protocol: 'SPDY/3.1',
      subprotocol: { header: STREAM_PROTOCOL, offered: [name] },
    },
    answer(switched) {
      const { socket, head, subprotocol, rawHeaders } = switched;
      if (subprotocol === '') {
        socket.destroy();
        throw new TailcastError('UPSTREAM_BROKEN', 'it named no stream protocol');
      }
      return {
        ...switched,
        // The proof of the end comes after the output on the same connection, so the output before it is
        // complete.
        provesEnd: true,
        socket: new ExecOverSpdy({ socket, head, version: chosen.version, stdin, stdout, stderr, tty }),
        head: Buffer.alloc(0),
        rawHeaders: [...withoutHeader(rawHeaders, STREAM_PROTOCOL), ...chosen.rawHeaders],
        subprotocol: chosen.name,
      };
    },
  };
}

const SUBPROTOCOL = 'sec-websocket-protocol';
const STREAM_PROTOCOL = 'x-stream-protocol-version';
/** Headers of a WebSocket handshake (RFC 6455 §11.3). */
const HANDSHAKE = [SUBPROTOCOL, 'sec-websocket-key', 'sec-websocket-version', 'sec-websocket-extensions'];

/**
 * Returns the headers and the subprotocol of a 101 response that the gateway creates itself. Returns
 * undefined if the handshake is invalid or the gateway supports no offered subprotocol.
 */
export function earlyHandshake(headers: readonly string[]): EarlyHandshake | undefined {
  const key = handshakeKey(headers);
  const chosen = chooseSubprotocol(headerLines(headers, SUBPROTOCOL));
  if (key === undefined || chosen === undefined) return undefined;
  return {
    ...chosen,
    rawHeaders: ['Sec-WebSocket-Accept', acceptKey(key), 'Sec-WebSocket-Protocol', chosen.name],
  };
}

export interface EarlyHandshake {
  /** Name of the subprotocol. */
  readonly name: string;
  readonly version: ChannelVersion;
  readonly rawHeaders: readonly string[];
}

/**
 * Returns the key of a valid handshake. Returns undefined for an invalid handshake, which the API server will refuse.
 */
function handshakeKey(headers: readonly string[]): string | undefined {
  const [key, ...keys] = headerLines(headers, 'sec-websocket-key').map((line) => line.trim());
  const versions = headerLines(headers, 'sec-websocket-version').map((line) => line.trim());
  const inOrder = keys.length === 0 && versions.length === 1 && versions[0] === '13';
  return inOrder && key !== undefined && /^[A-Za-z0-9+/]{22}==$/.test(key) ? key : undefined;
}

/**
 * Returns the subprotocol that an API server would choose: `v5.channel.k8s.io` if offered
 * (`IsWebSocketRequestWithStreamCloseProtocol`), else the first offered subprotocol that is known. Returns undefined
 * for a base64 subprotocol, which is not translated.
 */
function chooseSubprotocol(
  lines: readonly string[],
): { readonly name: string; readonly version: ChannelVersion } | undefined {
  const known = splitProtocolLines(lines).flatMap((name) => {
    const parsed = parseSubprotocol(name);
    return parsed === undefined ? [] : [{ name, ...parsed }];
  });
  const chosen = known.find(({ version }) => version === 5) ?? known[0];
  return chosen === undefined || chosen.base64 ? undefined : chosen;
}

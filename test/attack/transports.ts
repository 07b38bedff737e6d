/** Sends one attack with headers over every transport. */
import { ALICE, GATEWAY_HOST, sendHttp1, sendHttp2, type Arena, type Caller, type Outcome } from './arena.ts';
import type { Field } from './raw-http2.ts';
import type { Sent } from './verdict.ts';

export const TRANSPORTS = ['h1 request', 'h1 upgrade', 'h2 request', 'h2 connect'] as const;
export type Transport = (typeof TRANSPORTS)[number];

export const PLACEMENTS = ['first', 'last', 'duplicated', 'mixed case'] as const;
export type Placement = (typeof PLACEMENTS)[number];

export const LIST = '/api/v1/namespaces/default/pods';
export const EXEC = '/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true&stdout=true';

export const WEBSOCKET: readonly Field[] = [
  ['Connection', 'Upgrade'],
  ['Upgrade', 'websocket'],
  ['Sec-WebSocket-Version', '13'],
  ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
  ['Sec-WebSocket-Protocol', 'v5.channel.k8s.io'],
];
export const SPDY: readonly Field[] = [
  ['Connection', 'Upgrade'],
  ['Upgrade', 'SPDY/3.1'],
  ['X-Stream-Protocol-Version', 'v4.channel.k8s.io'],
];

export interface Ask {
  readonly caller?: Caller;
  readonly method?: string;
  readonly target?: string;
  /** Headers that replace Host (or `:authority`) and the common headers of all clients. */
  readonly base?: readonly Field[];
  readonly fields?: readonly Field[];
  readonly placement?: Placement;
  readonly body?: string;
}

/** A valid request on this transport as the API server receives it. */
export function honest(transport: Transport, ask: Ask = {}): Sent {
  const upgrade = transport === 'h1 upgrade';
  const { caller = ALICE, method = 'GET', target = upgrade ? EXEC : LIST } = ask;
  return { caller, method, target, upgrade };
}

export function send(arena: Arena, transport: Transport, ask: Ask = {}): Promise<Outcome> {
  const { caller, method, target, upgrade } = honest(transport, ask);
  if (transport === 'h1 request' || transport === 'h1 upgrade') {
    const base: readonly Field[] = ask.base ?? [
      ['Host', GATEWAY_HOST],
      ['User-Agent', 'kubectl/v1.36.0'],
      ...(upgrade ? WEBSOCKET : []),
    ];
    const lines = place(base, ask).map(([name, value]) => `${name}: ${value}\r\n`);
    return sendHttp1(arena, caller, `${method} ${target} HTTP/1.1\r\n${lines.join('')}\r\n${ask.body ?? ''}`);
  }
  const connecting: readonly Field[] = transport === 'h2 connect' ? [[':protocol', 'websocket']] : [];
  const pseudo: readonly Field[] = [
    [':method', transport === 'h2 connect' ? 'CONNECT' : method],
    ...connecting,
    [':scheme', 'https'],
    [':path', target],
    [':authority', GATEWAY_HOST],
  ];
  const lower = (fields: readonly Field[]): readonly Field[] =>
    ask.placement === 'mixed case' ? fields : fields.map(([name, value]) => [name.toLowerCase(), value]);
  const placed = place([['user-agent', 'kubectl/v1.36.0']], { ...ask, fields: lower(ask.fields ?? []) });
  const body = ask.body === undefined ? {} : { body: Buffer.from(ask.body, 'latin1') };
  return sendHttp2(arena, caller, [...(ask.base ?? pseudo), ...placed], body);
}

function place(base: readonly Field[], { fields = [], placement = 'last' }: Ask): readonly Field[] {
  switch (placement) {
    case 'first':
      return [...fields, ...base];
    case 'last':
      return [...base, ...fields];
    case 'duplicated':
      return [...fields, ...base, ...fields.map(([name, value]): Field => [name, value])];
    case 'mixed case':
      return [...base, ...fields.map(([name, value]): Field => [mixCase(name), value])];
  }
}

function mixCase(name: string): string {
  return Array.from(name.toLowerCase())
    .map((letter, index) => (index % 2 === 1 ? letter.toUpperCase() : letter))
    .join('');
}

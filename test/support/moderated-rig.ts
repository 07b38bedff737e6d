/** Moderated sessions of a gateway with a recorder, between a raw client and a simulated API server. */
import type { Duplex } from 'node:stream';
import { expect } from 'vitest';
import { openTestBuffers } from './elastic-buffers.ts';
import type { UpgradeDeps } from '../../src/proxy/session/upgrade.ts';
import { translateToSpdy } from '../../src/proxy/session/exec-upstream.ts';
import { holdSession } from '../../src/proxy/session/moderated.ts';
import { parseViewRule, type Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { createRig, request, until, type Answer, type Rig } from '../tsrecorder/recorder-rig.ts';
import { createSpdyPeer, STATUS_SUCCESS, serverEnd, utf8 } from './stream-peers.ts';
import { WIRES, type Protocol } from './shell-wires.ts';
import { askUpgrade, EXEC_TTY, startApiServerDouble, startRig, switching } from './upgrade-rig.ts';

export const BOB: Viewer = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'bob@example.com' };
/** Rule that names bob and alice as moderators. alice is also the user of the sessions. */
export const RULE = {
  moderate: ['exec'],
  moderators: { users: ['bob@example.com', 'alice@example.com'], tags: [] },
  clusters: [],
  namespaces: [],
} as const;
export const PROTOCOLS = ['websocket', 'spdy', 'websocket to SPDY'] as const;

const closers: (() => Promise<void>)[] = [];

/** Closes all gateways and recorders of a test. */
export async function closeAll(): Promise<void> {
  for (const close of closers.splice(0).reverse()) await close();
}

export interface Options {
  readonly protocol?: (typeof PROTOCOLS)[number];
  readonly headers?: readonly string[];
  /** Handles the gateway's upgrade request. Default: a shell that echoes its input. */
  readonly script?: (socket: Duplex) => void;
  /** Returns the viewer that the recorder identifies for a request. Default: bob. */
  readonly viewer?: () => Viewer;
  readonly viewers?: readonly string[];
  /** Target of the client. Default: a terminal. */
  readonly target?: string;
  readonly deps?: Pick<UpgradeDeps, 'asksReason' | 'refuseHiddenTerminal'>;
  /** See {@link ApiServerDouble}. */
  readonly pod?: unknown;
}

/** Opens a gateway that moderates all sessions, its recorder, and an API server whose shell echoes its input. */
export async function openGateway({
  protocol = 'websocket',
  script,
  viewer = () => BOB,
  viewers = ['*', 'bob@example.com=end'],
  deps,
  pod,
}: Options = {}) {
  const recorder: Rig = await createRig({
    identifyViewer: async () => viewer(),
    viewers: viewers.map(parseViewRule),
  });
  closers.push(async () => recorder[Symbol.asyncDispose]());
  const shells: Duplex[] = [];
  const apiServer = await startApiServerDouble((asked, socket) => {
    socket.on('error', () => {});
    if (script !== undefined) return script(socket);
    shells.push(socket);
    const isSpdy = protocol !== 'websocket';
    socket.write(switching(asked, isSpdy ? 'v4.channel.k8s.io' : 'v5.channel.k8s.io'));
    if (isSpdy) return runSpdyShell(socket);
    const wire = WIRES.websocket();
    socket.write(wire.greeting);
    socket.on('data', (message: Buffer) => {
      if (message.includes(wire.input('typed\n'))) socket.write(wire.output('echo\n'));
      if (message.includes(wire.input('exit\n'))) socket.end(serverEnd(STATUS_SUCCESS));
    });
  });
  apiServer.pod = pod;
  const { host, port } = recorder.recorder.address;
  const gateway = await startRig({
    apiServer,
    recording: { mode: 'failClosed', recorders: [`${host}:${port}`], recorderTags: [], events: false },
    moderation: [RULE],
    deps: {
      ...deps,
      holdSession,
      buffers: openTestBuffers(),
      ...(protocol === 'websocket to SPDY' ? { translateExec: translateToSpdy } : {}),
    },
  });
  closers.push(
    () => gateway.close(),
    async () => apiServer.close(),
  );
  return { recorder, apiServer, gateway, shells };
}

/** Accepts all streams, writes a greeting after the last one is open, and echoes input. */
function runSpdyShell(socket: Duplex): void {
  const server = createSpdyPeer();
  let opened = 0;
  let isGreeted = false;
  let received = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
    for (; received.length >= 8; received = received.subarray(8 + received.readUIntBE(5, 3))) {
      const end = 8 + received.readUIntBE(5, 3);
      if (received.length < end) break;
      const isOpening = received.readUInt32BE(0) === 0x8003_0001;
      if (isOpening) socket.write(server.reply(received.readUInt32BE(8)));
      if (isOpening) opened += 1;
      if (opened === 4 && !isGreeted) socket.write(server.data(5, utf8('# ')));
      isGreeted = opened === 4;
      const text = received.subarray(8, end).toString('latin1');
      if (text === 'typed\n') socket.write(server.data(5, utf8('echo\n')));
      if (text === 'exit\n')
        socket.end(
          Buffer.concat([server.data(1, STATUS_SUCCESS, true), server.data(5, new Uint8Array(0), true)]),
        );
    }
  });
}

/** Opens a moderated session, whose client waits for a moderator. */
export async function openShell(options: Options = {}) {
  const opened = await openGateway(options);
  const { recorder, gateway } = opened;
  const protocol: Protocol = options.protocol === 'spdy' ? 'spdy' : 'websocket';
  const wire = WIRES[protocol]();
  const client = await askUpgrade(gateway.port, {
    method: protocol === 'spdy' ? 'POST' : 'GET',
    target: options.target ?? EXEC_TTY,
    headers: options.headers ?? wire.headers,
  });
  expect(client.status).toBe(101);
  const shown = (): string => client.reader.bytes.toString('latin1');
  const showing = (text: string): Promise<void> => client.reader.until(() => shown().includes(text));
  client.socket.write(Buffer.concat([wire.start, wire.size]));
  await showing('this session starts when bob@example.com watches it');
  const id = await until(async () => (await recorder.list('?state=running'))[0]?.id);
  const watch = (headers: Record<string, string> = {}): Promise<Answer> =>
    request(recorder.recorder, { path: `/api/v1/recordings/${id}/orders/watch`, method: 'POST', headers });
  return { ...opened, client, wire, shown, showing, id, watch };
}

import { request } from 'node:https';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startDemoCluster, type DemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';

let cluster: DemoCluster;
let withoutPty: DemoCluster;

beforeAll(async () => {
  const log = createSilentLogger();
  cluster = await startDemoCluster({ log });
  withoutPty = await startDemoCluster({ log, loadPty: () => Promise.reject(new Error('no binary')) });
});
afterAll(async () => {
  await cluster.close();
  await withoutPty.close();
});

const POD = '/api/v1/namespaces/default/pods/shell';

function exec(argv: readonly string[], flags: string): string {
  return `${POD}/exec?${argv.map((part) => `command=${encodeURIComponent(part)}`).join('&')}&${flags}`;
}

interface Session {
  readonly socket: WebSocket;
  /** Text received on a channel. */
  text(channel: number): string;
  /** All received messages. `binary` is true for a binary message. */
  readonly messages: (readonly [binary: boolean, bytes: Buffer])[];
  readonly closed: Promise<number>;
}

interface OpenOptions {
  readonly to?: DemoCluster;
  readonly token?: string | null;
}

async function open(
  path: string,
  protocols: readonly string[],
  { to = cluster, token = to.adminToken }: OpenOptions = {},
): Promise<Session> {
  const socket = new WebSocket(to.url.replace('https', 'wss') + path, [...protocols], {
    ca: to.caPem,
    headers: token === null ? {} : { authorization: `Bearer ${token}` },
  });
  const messages: (readonly [boolean, Buffer])[] = [];
  socket.on('message', (data: Buffer, binary: boolean) => messages.push([binary, data]));
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  const decode = (bytes: Buffer): readonly [number, string] => [bytes[0]!, bytes.subarray(1).toString()];
  return {
    socket,
    messages,
    closed,
    text: (channel) =>
      messages
        .map(([, bytes]) => decode(bytes))
        .flatMap(([from, text]) => (from === channel ? [text] : []))
        .join(''),
  };
}

describe('exec over WebSocket', () => {
  it.each(['v4.channel.k8s.io', 'v5.channel.k8s.io'])('speaks %s', async (protocol) => {
    const path = exec(
      ['sh', '-c', 'read line; echo "got $line"; echo oops >&2; exit 9'],
      'stdin=1&stdout=1&stderr=1',
    );
    const session = await open(path, ['v9.channel.k8s.io', protocol]);
    expect(session.socket.protocol).toBe(protocol);
    session.socket.send(Buffer.from('\0hello\n'));
    expect(await session.closed).toBe(1000);
    expect(session.messages[0]).toEqual([true, Buffer.of(1)]);
    expect(session.text(1)).toBe('got hello\n');
    expect(session.text(2)).toBe('oops\n');
    expect(JSON.parse(session.text(3))).toMatchObject({
      status: 'Failure',
      reason: 'NonZeroExitCode',
      details: { causes: [{ reason: 'ExitCode', message: '9' }] },
    });
  });

  it('closes input at the v5 signal only', async () => {
    const session = await open(exec(['cat'], 'stdin=1'), ['v5.channel.k8s.io']);
    session.socket.send(Buffer.from('\0abc'));
    session.socket.send(Buffer.of(255, 0));
    expect(await session.closed).toBe(1000);
    expect(session.text(1)).toBe('abc');
    expect(JSON.parse(session.text(3))).toMatchObject({ status: 'Success' });
  });

  it('knows no such signal before v5', async () => {
    const session = await open(exec(['head', '-n', '2'], 'stdin=1'), ['v4.channel.k8s.io']);
    session.socket.send(Buffer.from('\0one\n'));
    session.socket.send(Buffer.of(255, 0));
    session.socket.send(Buffer.from('\0two\n'));
    expect(await session.closed).toBe(1000);
    expect(session.text(1)).toBe('one\ntwo\n');
  });

  it('reads on when the command takes no more input', async () => {
    const script = 'exec 0<&-; echo closed; while ! [ -e go ]; do sleep 0.05; done; rm go; echo done';
    const session = await open(exec(['sh', '-c', script], 'stdin=1'), ['v5.channel.k8s.io']);
    await expect.poll(() => session.text(1)).toBe('closed\n');
    for (let part = 0; part < 64; part += 1) session.socket.send(Buffer.alloc(32 * 1024));
    const pong = new Promise((resolve) => session.socket.once('pong', resolve));
    session.socket.ping('still there');
    expect(String(await pong)).toBe('still there');
    await (
      await open(exec(['touch', 'go'], ''), ['v5.channel.k8s.io'])
    ).closed;
    expect(await session.closed).toBe(1000);
    expect(session.text(1)).toBe('closed\ndone\n');
  });

  it('answers pings while a command runs, and takes messages of any cut', async () => {
    const session = await open(exec(['head', '-c', '100000'], 'stdin=1'), ['v5.channel.k8s.io']);
    const pong = new Promise((resolve) => session.socket.once('pong', resolve));
    session.socket.ping('are you there');
    expect(String(await pong)).toBe('are you there');
    session.socket.send(Buffer.concat([Buffer.of(0), Buffer.alloc(99_999, 'x')]));
    session.socket.send(Buffer.of(0));
    session.socket.send(Buffer.from('\0y'));
    await session.closed;
    expect(session.text(1)).toBe(`${'x'.repeat(99_999)}y`);
  });

  it('takes the token as subprotocol and never selects it', async () => {
    const hidden = `base64url.bearer.authorization.k8s.io.${Buffer.from(cluster.adminToken).toString('base64url')}`;
    const session = await open(exec(['true'], ''), [hidden, 'v4.channel.k8s.io'], { token: null });
    expect(session.socket.protocol).toBe('v4.channel.k8s.io');
    await session.closed;
    await expect(open(exec(['true'], ''), ['v4.channel.k8s.io'], { token: null })).rejects.toThrow('401');
  });

  it.each([
    ['no known subprotocol', exec(['true'], ''), ['v2.channel.k8s.io'], '403'],
    ['no command', `${POD}/exec`, ['v4.channel.k8s.io'], '400'],
    ['no such pod', exec(['true'], '').replace('shell', 'nobody'), ['v4.channel.k8s.io'], '404'],
    ['no such container', exec(['true'], 'container=x'), ['v4.channel.k8s.io'], '400'],
    ['a path that cannot be upgraded', POD, ['v4.channel.k8s.io'], '400'],
  ])('is refused with %s', async (_reason, path, protocols, status) => {
    await expect(open(path, protocols)).rejects.toThrow(`Unexpected server response: ${status}`);
  });
});

describe('SPDY upgrades', () => {
  it.each([
    ['without a stream protocol', {}, 400, 'X-Stream-Protocol-Version header is required'],
    [
      'with none that is known',
      { 'X-Stream-Protocol-Version': ['v5.channel.k8s.io'] },
      403,
      'unable to negotiate',
    ],
    ['with another protocol', { Upgrade: 'h2c' }, 400, 'names neither'],
  ])('are refused %s', async (_reason, headers, status, message) => {
    const answer = await new Promise<{ status: number; text: string }>((resolve, reject) => {
      const outgoing = request(
        cluster.url + exec(['true'], ''),
        {
          method: 'POST',
          ca: cluster.caPem,
          agent: false,
          headers: {
            Connection: 'Upgrade',
            Upgrade: 'SPDY/3.1',
            authorization: `Bearer ${cluster.adminToken}`,
            ...headers,
          },
        },
        (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
        },
      );
      outgoing.on('error', reject).end();
    });
    expect(answer.status).toBe(status);
    expect((JSON.parse(answer.text) as { message: string }).message).toContain(message);
  });
});

describe('a machine without pseudo-terminals', () => {
  it('says so, and runs a usable shell on pipes', async () => {
    expect(withoutPty.describeTerminal).toContain('shells run on pipes');
    expect(withoutPty.describeTerminal).toContain('no binary');
    expect(cluster.describeTerminal).toContain('real pseudo-terminal');
    const session = await open(exec(['bash'], 'stdin=1&stdout=1&tty=1'), ['v5.channel.k8s.io'], {
      to: withoutPty,
    });
    const screen = (): string => session.text(1);
    await expect.poll(screen).toContain('shell');
    session.socket.send(Buffer.from('\0echo $((6*7))x\u007f\r'));
    await expect.poll(screen).toMatch(/echo \$\(\(6\*7\)\)x[\b] [\b]\r\n42\r\n/);
    session.socket.send(Buffer.from('\0echo st""arted; sleep 1000\r'));
    await expect.poll(screen).toMatch(/started\r\n/);
    session.socket.send(Buffer.from('\0\u0003'));
    session.socket.send(Buffer.from('\0exit 3\r'));
    expect(await session.closed).toBe(1000);
    expect(session.text(3)).toContain('"message":"3"');
  });
});

/**
 * Attack corpus: control of running sessions. A compromised recorder sends session orders, and a program tries to hide
 * its output from rules.
 */
import type { Duplex } from 'node:stream';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { parseQuery } from '../../src/search/query.ts';
import type { AlertSettings } from '../../src/tsrecorder/search/alerts/alerts.ts';
import { encodeRecords } from '../../src/wire/recorder-api/length-prefixed.ts';
import { startRecorderDouble, type DoubleUpload } from '../support/recorder-double.ts';
import { clientMessage, serverMessage, utf8 } from '../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC_TTY,
  startApiServerDouble,
  startRig,
  switching,
  WEBSOCKET_V5,
} from '../support/upgrade-rig.ts';
import { createRig, HEADER, openUpload, until, type Rig, type Upload } from '../tsrecorder/recorder-rig.ts';

const CANARY = 'owned-by-the-recorder';
const ORDER = { id: 'o1', action: 'end', by: 'carol@example.com', reason: '' };

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A gateway with a recorder that the test controls, and a function that opens a session. */
async function site() {
  const recorder = await startRecorderDouble();
  const shells: { readonly socket: Duplex; readonly received: () => string }[] = [];
  const apiServer = await startApiServerDouble((asked, socket) => {
    let received = '';
    shells.push({ socket, received: () => received });
    socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
    socket.write(switching(asked, 'v5.channel.k8s.io'));
    socket.write(serverMessage(1, utf8('# ')));
  });
  const gateway = await startRig({
    apiServer,
    recording: { mode: 'failClosed', recorders: [recorder.address], recorderTags: [], events: false },
  });
  closers.push(
    async () => recorder.close(),
    async () => apiServer.close(),
    () => gateway.close(),
  );
  return {
    gateway,
    recorder,
    async open() {
      const client = await askUpgrade(gateway.port, { target: EXEC_TTY, headers: WEBSOCKET_V5 });
      client.socket.write(clientMessage(4, utf8('{"Width":80,"Height":24}\n')));
      await client.reader.until(() => client.reader.bytes.includes('# '));
      const upload = recorder.uploads.at(-1)!;
      const shell = shells.at(-1)!;
      const sizes = await until(async () => shell.received() || undefined);
      return {
        client,
        upload,
        shown: () => client.reader.bytes.toString('utf8'),
        typed: () => shell.received().slice(sizes.length),
        /** Checks that output of the API server still reaches the client. */
        async works(mark: string) {
          shell.socket.write(serverMessage(1, utf8(mark)));
          await client.reader.until(() => client.reader.bytes.includes(mark));
        },
        say: (...acks: readonly string[]) => say(upload, acks),
      };
    },
  };
}

/** Sends acknowledgements as the recorder would. */
function say(upload: DoubleUpload, acks: readonly string[]): void {
  upload.say?.(
    Buffer.concat(encodeRecords([Buffer.from(acks.map((ack) => `${ack}\n`).join(''))], 64 * 1024)),
  );
}

const withOrder = (order: unknown): string => JSON.stringify({ ack: 1, order });
const confirmations = ({ body }: DoubleUpload): number =>
  body.toString('latin1').split('"kind":"order"').length - 1;

describe('a recorder that sends orders', () => {
  it.each(['end', 'pause', 'resume'])('cannot %s another session than that of its upload', async (action) => {
    const { open, gateway } = await site();
    const victim = await open();
    const own = await open();
    const session = victim.upload.headers['tailcast-session'];
    expect(session).not.toBe(own.upload.headers['tailcast-session']);
    for (const name of ['session', 'sessionId', 'recording', 'target'])
      own.say(withOrder({ ...ORDER, action, [name]: session }));
    if (action === 'end') await own.client.reader.untilClosed();
    else await until(async () => confirmations(own.upload) === 4 || undefined);
    await victim.works('still-here');
    expect(confirmations(victim.upload)).toBe(0);
    if (action === 'end') await gateway.until('sessionEnded');
    expect(gateway.named('sessionEnded')).toHaveLength(action === 'end' ? 1 : 0);
  });

  it.each<readonly [string, string]>([
    ['that is text', withOrder('end')],
    ['that is a list', withOrder([ORDER])],
    ['without an id', withOrder({ ...ORDER, id: undefined, reason: CANARY })],
    ['with controls in its id', withOrder({ ...ORDER, id: 'o1\r\n', reason: CANARY })],
    ['with an unknown action', withOrder({ ...ORDER, action: 'type', reason: CANARY, input: `${CANARY}\n` })],
    [
      'with a name of an object as its action',
      withOrder({ ...ORDER, action: 'constructor', reason: CANARY }),
    ],
    ['with a list of actions', withOrder({ ...ORDER, action: ['end'], reason: CANARY })],
    ['with a long reason', withOrder({ ...ORDER, reason: CANARY.repeat(20) })],
    ['with a long name', withOrder({ ...ORDER, by: CANARY.repeat(20) })],
    ['with an object as the reason', withOrder({ ...ORDER, reason: { text: CANARY } })],
    [
      'that is not JSON',
      `{"ack":1,"order":{"id":"o1","action":"end","reason":"${CANARY}"`.padEnd(66_000, 'x'),
    ],
    ['with deep lists', `{"ack":1,"order":${'['.repeat(20_000)}`.padEnd(66_000, '[')],
  ])('is left after an order %s, and nothing of it is followed', async (_name, text) => {
    const { open, recorder } = await site();
    const session = await open();
    session.say(text);
    // the gateway continues the recording over another connection
    await recorder.until(() => recorder.uploads.length > 1);
    await session.works('still-here');
    expect(recorder.uploads.map(confirmations).filter((count) => count > 0)).toEqual([]);
    expect(session.shown()).not.toContain(CANARY);
    expect(session.typed()).toBe('');
  });

  it('cannot add input or output', async () => {
    const { open } = await site();
    const session = await open();
    session.say(
      withOrder({
        ...ORDER,
        action: 'resume',
        input: CANARY,
        stdin: CANARY,
        output: CANARY,
        command: [CANARY],
        __proto__: { action: 'end' },
      }),
    );
    await until(async () => confirmations(session.upload) === 1 || undefined);
    await session.works('still-here');
    expect(session.shown()).not.toContain(CANARY);
    expect(session.typed()).toBe('');
    expect(session.upload.body.toString('latin1')).not.toContain(CANARY);
  });

  it.each([
    ['escape sequences', '\u001b]52;c;ZXZpbA==\u0007\u001b[2J\u009b31m'],
    ['line breaks', 'a\r\nb\nc\u2028d\u2029e\u0085f'],
    ['reversed text', 'a\u202egnp.exe\u2066b\u2069\u200f'],
    ['half a character', 'a\ud800b'],
    ['tag characters', 'a\u{e0041}b'],
    ['nothing that is shown', '\u0000\u0008\u007f\u200b\ufeff'],
  ])('cannot send the terminal %s', async (_name, reason) => {
    const { open } = await site();
    const session = await open();
    session.say(withOrder({ ...ORDER, by: reason, reason }));
    await session.client.reader.untilClosed();
    const status = /\{"metadata".*?\}(?=[^{}]*$)/s.exec(session.shown())?.[0] ?? '';
    const { message } = JSON.parse(status) as { message: string };
    expect(message).toContain('the session was ended on request');
    expect(message).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
  });

  it('cannot fill the memory with orders, and can still end the session', async () => {
    const { open } = await site();
    const session = await open();
    for (let batch = 0; batch < 40; batch += 1)
      session.say(
        ...Array.from({ length: 250 }, () =>
          withOrder({ ...ORDER, action: 'resume', reason: 'x'.repeat(200) }),
        ),
      );
    session.say(withOrder({ ...ORDER, reason: 'last' }));
    await session.client.reader.untilClosed();
    expect(session.shown()).toContain('carol@example.com: last');
    await until(async () => session.upload.ended || session.upload.aborted || undefined);
    expect(confirmations(session.upload)).toBeLessThanOrEqual(257);
  });

  it('cannot end a session twice, or after its end', async () => {
    const { open, gateway } = await site();
    const session = await open();
    session.say(
      withOrder(ORDER),
      withOrder({ ...ORDER, reason: CANARY }),
      withOrder({ ...ORDER, action: 'pause' }),
    );
    await session.client.reader.untilClosed();
    expect(session.shown()).not.toContain(CANARY);
    session.say(withOrder({ ...ORDER, reason: CANARY }));
    const other = await open();
    await other.works('still-here');
    await gateway.until('sessionEnded');
    expect(gateway.named('sessionEnded')).toHaveLength(1);
  });
});

const NEEDLE = 'needle-4711';
const LETTERS = Array.from(NEEDLE);
const half = NEEDLE.slice(0, 5);
const rest = NEEDLE.slice(5);

function rules(): AlertSettings {
  return {
    rules: [
      { name: 'found', query: parseQuery('', 0), pattern: { in: 'output', source: NEEDLE }, action: 'end' },
      {
        name: 'numbers',
        query: parseQuery('', 0),
        pattern: { in: 'output', source: '([0-9]+-){30}x' },
        action: 'end',
      },
    ],
    webhooks: new Map(),
    giveUpMs: 3_600_000,
  };
}

const line = (text: string, at = 1): string => `${JSON.stringify([at, 'o', text])}\n`;

/** Resolves with the first session order of the recorder. */
const ended = ({ acks }: Upload): Promise<unknown> =>
  until(async () => acks.find(({ order }) => order !== undefined)?.order);

let rig: Rig;
beforeAll(async () => {
  rig = await createRig({ searchText: 'all', alerts: rules() });
});
afterAll(async () => rig[Symbol.asyncDispose]());

/** Records a session with this output. @returns the session order that a rule causes */
async function orderAfter(session: string, writes: readonly string[]): Promise<unknown> {
  const headers = { 'tailcast-session': session.replaceAll(' ', '-'), 'tailcast-orders': '1' };
  const upload = openUpload(rig.recorder, headers);
  upload.write(HEADER);
  for (const [index, text] of writes.entries()) upload.write(line(text, 1 + index / 10));
  const order = await ended(upload);
  upload.close();
  return order;
}

const noise = (characters: number): string =>
  Array.from({ length: Math.ceil(characters / 79) }, (_, at) =>
    `${String(at).padStart(9, '0')} ${'haystack '.repeat(7)}`.padEnd(77, '.'),
  ).join('\r\n');

describe('output', () => {
  it.each<readonly [string, readonly string[]]>([
    ['before much text', [NEEDLE, ...Array.from({ length: 60 }, () => `\r\n${noise(64_000)}`)]],
    ['after much text', [...Array.from({ length: 60 }, () => `\r\n${noise(64_000)}`), `\r\n${NEEDLE}\r\n`]],
    [
      'in one line without an end',
      [...Array.from({ length: 40 }, () => 'x'.repeat(64_000)), NEEDLE, 'x'.repeat(64_000)],
    ],
    ['across two pieces of a long line', ['x'.repeat(16_384 - 5), NEEDLE, 'x'.repeat(16_384)]],
    ['after many almost equal texts', [`${half} `.repeat(50_000), ` ${NEEDLE} `]],
    [
      'after many rows that are changed',
      [...Array.from({ length: 40 }, () => '\u001b[H\u001b[2J'.repeat(4000)), NEEDLE],
    ],
    ['after many titles', [...Array.from({ length: 20 }, () => '\u001b]0;x\u0007'.repeat(8000)), NEEDLE]],
    ['after many sizes of a scroll region', ['\u001b[2;3r\u001b[r'.repeat(20_000), NEEDLE]],
  ])('cannot flood a rule: the text is found %s', async (name, writes) => {
    expect(await orderAfter(name, writes)).toMatchObject({ action: 'end', by: 'rule found' });
  });

  it.each<readonly [string, readonly string[]]>([
    ['a control string without an end', [`\u001bPq${NEEDLE}`]],
    ['an application string', [`\u001b_${NEEDLE}\u001b\\`]],
    ['a private message', [`\u001b^${NEEDLE}\u001b\\`]],
    ['a title', [`\u001b]2;${NEEDLE}\u0007`]],
    ['a link', [`\u001b]8;;http://x/${NEEDLE}\u0007x\u001b]8;;\u0007`]],
    ['colours between the letters', [LETTERS.join('\u001b[31m')]],
    ['a control string between the letters', [LETTERS.join('\u001b]0;x\u0007')]],
    ['characters without width', [LETTERS.join('\u200b')]],
    ['soft hyphens', [LETTERS.join('\u00ad')]],
    ['invisible text', [`\u001b[8m${NEEDLE}\u001b[0m`]],
    ['the end of a row', [`${'.'.repeat(75)}${NEEDLE}`]],
    ['two writes', [half, rest]],
    ['one write per character', LETTERS],
    ['corrections with backspace', [`${half}XX\b\b${rest}`]],
    ['a row that is overwritten', [`XXXXXX${NEEDLE.slice(6)}\r${NEEDLE.slice(0, 6)}`]],
    ['inserted characters', [`\u001b[4h${rest}\r${half}\u001b[4l`]],
    ['deleted characters', [`${half}XX${rest}\u001b[1;6H\u001b[2P`]],
    ['repeated characters', [`ne\u001b[1bdle-4711`]],
    ['cursor movements', [`${half}\u001b[10;1H\u001b[1;6H${rest}`]],
    [
      'the order from right to left',
      [
        LETTERS.map(
          (_letter, at) => `\u001b[1;${NEEDLE.length - at}H${LETTERS[NEEDLE.length - 1 - at]}`,
        ).join(''),
      ],
    ],
    ['the alternate screen', [`\u001b[?1049h${NEEDLE}\u001b[?1049l`]],
    ['text that is erased at once', [`${NEEDLE}\r\u001b[2K`]],
    ['a reset', [`${NEEDLE}\u001bc`]],
    ['line drawing', [`\u001b(0${NEEDLE}\u001b(B`]],
    ['a single shift', [LETTERS.join('\u001bN\u0008')]],
    ['carriage returns', [`${'x'.repeat(200)}\r${NEEDLE}\r${'x'.repeat(200)}`]],
  ])('cannot hide from a rule in or with %s', async (name, writes) => {
    expect(await orderAfter(name, [...writes, '\r\n$ '])).toMatchObject({ action: 'end', by: 'rule found' });
  });
});
